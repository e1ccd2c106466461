//! The house rules, checked over this repository. `scripts/test` runs them one after another and shows each line.

use std::collections::BTreeSet;

use landfall_house::ceilings::Counts;
use landfall_house::{ceilings, circles, methods, paths, questions, tree, walls, words};

/// No file of Rust may be longer.
const MAX_LINES: usize = 500;
/// Pages whose paths must exist; and all of `docs/`.
const PAGES: [&str; 2] = ["README.md", "CONTRIBUTING.md"];

#[test]
fn no_crate_reaches_through_a_wall() {
    let root = tree::root();
    let workspace = walls::workspace(&root).unwrap();
    let mut broken = walls::broken(walls::WALLS, &workspace);
    for wall in walls::WALLS {
        let mut line = format!("wall {} knows {}", wall.name, list(wall.may));
        if !wall.never.is_empty() && workspace.contains_key(wall.name) {
            let tree = walls::dependencies(&root, wall.name).unwrap();
            let found = walls::forbidden(wall, &tree);
            broken.extend(found.iter().map(|name| format!("{} must not have {name} in its tree", wall.name)));
            line += &format!("; none of {} crates in its tree is one of {}", tree.len(), list(wall.never));
        }
        println!("{line}");
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "no other".to_owned() } else { names.join(", ") }
}

#[test]
fn no_two_files_import_each_other() {
    let root = tree::root();
    let files = tree::texts(&root, &["rs"]).unwrap();
    let found: Vec<_> =
        circles::crate_roots(files.keys()).into_iter().flat_map(|of| circles::of_crate(&root, of).unwrap()).collect();
    let lines: Vec<_> = found.iter().map(|circle| format!("circle {}", circle.join(" "))).collect();
    assert!(found.is_empty(), "move what they share to a file that imports neither:\n{}", lines.join("\n"));
    println!("ok   no two files import each other");
}

#[test]
fn every_path_the_documentation_names_exists() {
    let root = tree::root();
    let files = tree::texts(&root, &["rs", "md", "toml", "proto", "service", "sh", "py", "dict"]).unwrap();
    let mut all = paths::with_folders(files.keys());
    for entry in std::fs::read_dir(root.join("scripts")).unwrap() {
        all.insert(format!("scripts/{}", entry.unwrap().file_name().to_string_lossy()));
    }
    let tops: BTreeSet<String> = all.iter().filter(|path| !path.contains('/')).cloned().collect();
    let pages = files
        .iter()
        .filter(|(page, _)| page.starts_with("docs/") && page.ends_with(".md") || PAGES.contains(&page.as_str()));
    let (mut named, mut missing) = (0, Vec::new());
    for (page, text) in pages {
        for path in paths::named(text, &tops) {
            named += 1;
            if !paths::exists(&root, page, &path, &all) {
                missing.push(format!("{page} names {path}, which does not exist"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    println!("ok   {named} paths that the documentation names exist");
}

#[test]
fn files_are_no_longer_than_allowed() {
    let files = tree::texts(&tree::root(), &["rs"]).unwrap();
    held("files-above-500-lines", &words::count_long_files(&files, MAX_LINES));
}

#[test]
fn types_with_many_methods_only_become_fewer() {
    let counts = methods::by_type(&tree::texts(&tree::root(), &["rs"]).unwrap()).unwrap();
    let many: Vec<_> = counts.iter().filter(|(_, count)| **count > methods::MOST).collect();
    let mut above = Counts::new();
    for (of_type, count) in &many {
        println!("     {of_type} has {count} methods; at most {} are wanted", methods::MOST);
        *above.entry(tree::folder(of_type).to_owned()).or_default() += 1;
    }
    held("types-above-30-methods", &above);
}

#[test]
fn avoided_words_only_become_fewer() {
    let files = tree::texts(&tree::root(), &["rs", "md"]).unwrap();
    held("avoided-words", &words::count(&files));
}

#[test]
fn long_test_names_only_become_fewer() {
    let files = tree::texts(&tree::root(), &["rs"]).unwrap();
    held("test-names-above-10-words", &words::count_long_names(&files));
}

#[test]
fn only_the_machine_crate_decides_by_phase_or_condition() {
    let found = questions::answered_elsewhere(&tree::texts(&tree::root(), &["rs"]).unwrap());
    assert!(found.is_empty(), "ask landfall-machine instead, in a function with a name:\n{}", found.join("\n"));
    println!("ok   no code of the coordinator beside landfall-machine decides by phase, condition or lease");
}

/// Fails where a count is above its ceiling.
fn held(table: &str, counts: &Counts) {
    if let Err(error) = ceilings::check(table, counts) {
        panic!("{error:#}");
    }
}
