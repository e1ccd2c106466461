//! The modules of a crate, and the names each one defines or imports.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use syn::{Attribute, Item, UseTree};

/// A module's path from the crate's root, which is empty.
pub(super) type ModulePath = Vec<String>;

/// What a name in a module stands for.
pub(super) enum Name {
    /// A definition in the module's file.
    Item,
    /// A child module.
    Module,
    /// What this path leads to, as written.
    Import(Vec<String>),
}

/// One module.
pub(super) struct Module {
    /// Its file: a place in [`Crate::files`].
    pub(super) file: usize,
    /// Names that others can reach through it.
    pub(super) names: BTreeMap<String, Name>,
    /// Modules all of whose names it imports.
    pub(super) globs: Vec<Vec<String>>,
    /// Its items, without its tests and child modules.
    pub(super) items: Vec<Item>,
}

/// One crate, parsed.
#[derive(Default)]
pub(super) struct Crate {
    /// Its files, relative to the repository's root.
    pub(super) files: Vec<String>,
    /// Its modules by path.
    pub(super) modules: BTreeMap<ModulePath, Module>,
}

/// One import that a `use` makes.
pub(super) enum Imported {
    /// A name, and the path it stands for.
    Name(String, Vec<String>),
    /// All names of a module.
    Glob(Vec<String>),
}

impl Crate {
    /// Reads the crate whose root is this file, with every file its modules lie in.
    pub(super) fn read(root: &Path, crate_root: &str) -> anyhow::Result<Self> {
        let mut read = Self::default();
        let file = PathBuf::from(crate_root);
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        read.file(root, &file, &folder, Vec::new())?;
        Ok(read)
    }

    fn file(&mut self, root: &Path, file: &Path, children: &Path, path: ModulePath) -> anyhow::Result<()> {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{} is no Rust", file.display()))?;
        self.files.push(file.to_string_lossy().into_owned());
        self.module(root, self.files.len() - 1, children, path, parsed.items)
    }

    fn module(
        &mut self, root: &Path, file: usize, children: &Path, path: ModulePath, items: Vec<Item>,
    ) -> anyhow::Result<()> {
        let mut module = Module { file, names: BTreeMap::new(), globs: Vec::new(), items: Vec::new() };
        for item in items.into_iter().filter(|item| !is_test(attributes(item))) {
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    module.names.insert(name.clone(), Name::Module);
                    let child: ModulePath = path.iter().cloned().chain([name.clone()]).collect();
                    match inner.content {
                        Some((_, items)) => self.module(root, file, &children.join(&name), child, items)?,
                        None => {
                            let flat = children.join(format!("{name}.rs"));
                            let nested = children.join(&name).join("mod.rs");
                            let file = if root.join(&flat).exists() { flat } else { nested };
                            // Code that the build makes is in no file of ours.
                            if root.join(&file).exists() {
                                self.file(root, &file, &children.join(&name), child)?;
                            }
                        }
                    }
                    continue;
                }
                Item::Use(ref used) => {
                    for import in imports(&used.tree) {
                        match import {
                            Imported::Name(name, path) => {
                                module.names.entry(name).or_insert(Name::Import(path));
                            }
                            Imported::Glob(path) => module.globs.push(path),
                        }
                    }
                }
                ref other => {
                    if let Some(name) = defined(other) {
                        module.names.insert(name, Name::Item);
                    }
                }
            }
            module.items.push(item);
        }
        self.modules.insert(path, module);
        Ok(())
    }
}

/// Every import of a `use`.
pub(super) fn imports(tree: &UseTree) -> Vec<Imported> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<Imported>) {
    let with = |prefix: &[String], name: String| -> Vec<String> { prefix.iter().cloned().chain([name]).collect() };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            let last = prefix.last().cloned().unwrap_or_default();
            found.push(Imported::Name(last, prefix.clone()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push(Imported::Name(name.clone(), with(prefix, name)));
        }
        UseTree::Rename(rename) => {
            let path = if rename.ident == "self" { prefix.clone() } else { with(prefix, rename.ident.to_string()) };
            found.push(Imported::Name(rename.rename.to_string(), path));
        }
        UseTree::Glob(_) => found.push(Imported::Glob(prefix.clone())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, prefix, found)),
    }
}

/// Whether an item is there for tests only.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test")))
    })
}

/// An item's attributes.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
