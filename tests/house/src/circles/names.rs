//! Which file each file imports: the paths it names, resolved.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Item, ItemUse, Macro, Visibility, visit};

use super::module::{Crate, Imported, Name, attributes, imports as imported, is_test};

/// Imports that lead to one another are followed so far.
const DEPTH: usize = 16;

/// For each file the files it imports.
pub(super) fn imports(parsed: &Crate) -> BTreeMap<usize, BTreeSet<usize>> {
    let mut edges: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (path, module) in &parsed.modules {
        let mut seen = Seen::default();
        module.items.iter().for_each(|item| seen.visit_item(item));
        let found = seen.paths.iter().filter_map(|named| resolve(parsed, path, named, DEPTH)?.file(parsed));
        let found = found.filter(|file| *file != module.file);
        edges.entry(module.file).or_default().extend(found);
    }
    edges
}

/// The paths that a module names.
#[derive(Default)]
struct Seen {
    paths: BTreeSet<Vec<String>>,
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, used: &'ast ItemUse) {
        // A re-export imports nothing; where its own module uses the name, that is seen by the name.
        if !matches!(used.vis, Visibility::Inherited) {
            return;
        }
        for import in imported(&used.tree) {
            match import {
                // A name, or a module: what is used of a module is seen by its own path.
                Imported::Name(_, path) | Imported::Glob(path) => self.paths.insert(path),
            };
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}

impl Seen {
    /// Takes every run of `name::name` for a path.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.paths.insert(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.paths.insert(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.paths.insert(path);
    }
}

/// What a path leads to.
enum Target {
    /// A module, by its path.
    Module(Vec<String>),
    /// A definition in this file.
    Definition(usize),
}

impl Target {
    /// The file that defines it. A module by itself is not a definition: only what is named in it counts.
    fn file(&self, _: &Crate) -> Option<usize> {
        match self {
            Self::Module(_) => None,
            Self::Definition(file) => Some(*file),
        }
    }
}

/// What `path`, as the module `from` writes it, leads to; `None` outside of this crate.
fn resolve(parsed: &Crate, from: &[String], path: &[String], depth: usize) -> Option<Target> {
    let depth = depth.checked_sub(1)?;
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Target::Module(Vec::new()),
        "self" => Target::Module(from.to_vec()),
        "super" => Target::Module(from.split_last()?.1.to_vec()),
        name => lookup(parsed, from, name, depth)?,
    };
    while let Target::Module(module) = &at {
        let Some((name, left)) = rest.split_first() else { break };
        at = match name.as_str() {
            "super" => Target::Module(module.split_last()?.1.to_vec()),
            // Not found: a name that a macro or the build makes there.
            name => lookup(parsed, module, name, depth)
                .or_else(|| Some(Target::Definition(parsed.modules.get(module)?.file)))?,
        };
        rest = left;
    }
    Some(at)
}

/// What a name in a module stands for.
fn lookup(parsed: &Crate, module: &[String], name: &str, depth: usize) -> Option<Target> {
    let found = parsed.modules.get(module)?;
    match found.names.get(name) {
        Some(Name::Item) => Some(Target::Definition(found.file)),
        Some(Name::Module) => Some(Target::Module(module.iter().cloned().chain([name.to_owned()]).collect())),
        Some(Name::Import(path)) => resolve(parsed, module, path, depth),
        None => found.globs.iter().find_map(|glob| {
            let Target::Module(other) = resolve(parsed, module, glob, depth)? else { return None };
            // Through a glob only what is there counts, not a guess.
            parsed.modules.get(&other)?.names.get(name)?;
            lookup(parsed, &other, name, depth.checked_sub(1)?)
        }),
    }
}
