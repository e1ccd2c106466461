//! Files of one crate that import each other, directly or around a circle.
//!
//! A file imports another if it names, in a `use` or in place, something that is defined there; re-exports are followed to the
//! definition. A module is made of what lies below it: that it declares and uses its children is no import, so children may use
//! what their parent defines. Tests count as no part of their file. Methods have no path and are not seen.

mod module;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};

use module::Crate;

/// The circles of the crate whose root is this file: each the files that reach one another, sorted; relative to `root`.
///
/// # Errors
/// A file cannot be read or is no Rust.
pub fn of_crate(root: &Path, crate_root: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let parsed = Crate::read(root, crate_root)?;
    let mut edges = names::imports(&parsed);
    let module = |file: &usize| {
        let of_file = parsed.modules.iter().filter(|(_, module)| module.file == *file);
        of_file.map(|(path, _)| path).min_by_key(|path| path.len())
    };
    for (from, to) in &mut edges {
        let parent = module(from);
        to.retain(|to| !parent.is_some_and(|parent| module(to).is_some_and(|child| child.starts_with(parent))));
    }
    let names = |circle: BTreeSet<usize>| -> Vec<String> {
        let names: BTreeSet<_> = circle.into_iter().map(|file| parsed.files[file].clone()).collect();
        names.into_iter().collect()
    };
    Ok(circles(&edges).into_iter().map(names).collect())
}

/// The roots of every crate among these files: what cargo takes for a library or program by default.
pub fn crate_roots<'a>(files: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    files.map(String::as_str).filter(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs")).collect()
}

/// The strongly connected parts of a graph that have more than one node.
fn circles(edges: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<BTreeSet<usize>> {
    let pairs = edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
    let graph = DiGraphMap::<usize, ()>::from_edges(pairs);
    let mut found: Vec<BTreeSet<usize>> =
        tarjan_scc(&graph).into_iter().filter(|part| part.len() > 1).map(|part| part.into_iter().collect()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        of_crate(dir.path(), "src/lib.rs").unwrap()
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let found = found(&[
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use crate::b::B; pub struct A(B);"),
            ("src/b.rs", "pub struct B; fn f() -> Option<super::a::A> { None }"),
        ]);
        assert_eq!(found, [["src/a.rs", "src/b.rs"]]);
    }

    #[test]
    fn a_parent_may_be_made_of_its_children() {
        let found = found(&[
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod b; pub struct A; fn f() { b::run(); }"),
            ("src/a/b.rs", "use super::A; pub(super) fn run() { let _: A; }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_circle_through_a_parent_is_one() {
        let found = found(&[
            ("src/lib.rs", "mod a; mod c;"),
            ("src/a/mod.rs", "mod b; pub struct A(crate::c::C);"),
            ("src/a/b.rs", "pub struct B;"),
            ("src/c.rs", "pub struct C; fn f(_: crate::a::A) {}"),
        ]);
        assert_eq!(found, [["src/a/mod.rs", "src/c.rs"]]);
    }

    #[test]
    fn re_exports_lead_to_the_definition() {
        let found = found(&[
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod b; mod c; pub use b::B; pub use c::*;"),
            ("src/a/b.rs", "pub struct B;"),
            ("src/a/c.rs", "use super::B; pub struct C(B);"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn names_in_macros_count_and_tests_do_not() {
        let found = found(&[
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "pub const A: u8 = 1; fn f() { println!(\"{}\", crate::b::B); }"),
            ("src/b.rs", "use crate::{a::A, c::C}; pub const B: u8 = A + C;"),
            ("src/c.rs", "pub const C: u8 = 1; #[cfg(test)] mod tests { use crate::b::B; }"),
        ]);
        assert_eq!(found, [["src/a.rs", "src/b.rs"]]);
    }
}
