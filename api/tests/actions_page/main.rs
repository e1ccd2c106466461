//! `docs/actions/` has one page for each action: a part made from its declaration and its schema, and an explanation by hand. The
//! fields of `docs/facts.md` are made the same way.
//!
//! `LANDFALL_BLESS=1 cargo test -p landfall-api --test actions_page` writes the made parts anew, and begins the page of a new action.

mod declaration;
mod examples;
mod fields;
mod page;
mod sample;

use std::{fs, path::Path};

use landfall_api::{ActionSpec, ErrorCode};

use self::declaration::{declaration, table};
use self::fields::Schema;
use self::page::{Page, SECTIONS, blessing};

/// Cargo runs a test in the folder of its crate.
const FOLDER: &str = "../docs/actions";
/// What all actions share.
const SHARED: &str = "README.md";

fn file_of(key: &str) -> String {
    format!("{key}.md")
}

#[test]
fn every_action_has_a_page_and_every_page_an_action() {
    for (key, _) in ActionSpec::ALL {
        assert!(
            blessing() || Path::new(FOLDER).join(file_of(key)).exists(),
            "the action {key} has no page: docs/actions/{key}.md is missing. LANDFALL_BLESS=1 cargo test -p landfall-api --test \
             actions_page begins it, with what the declaration says; then explain the action in it, like docs/actions/writeFile.md does"
        );
    }
    for entry in fs::read_dir(FOLDER).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = name == SHARED || ActionSpec::KEYS.iter().any(|key| file_of(key) == name);
        assert!(known, "docs/actions/{name} is the page of no action: delete it, or give it the name of its action");
    }
}

#[test]
fn the_pages_say_what_the_declarations_say() {
    let schema = Schema::new();
    Page::read(SHARED).holds("actions", &table()).holds("fields", &schema.shared_fields()).written();
    for (key, info) in ActionSpec::ALL {
        let page = Page::read(&file_of(key));
        page.holds("declaration", &declaration(key, &info, &schema)).holds("fields", &schema.fields_of(key)).written();
    }
}

#[test]
fn the_page_of_facts_says_what_the_schema_says() {
    Page::read("../facts.md").holds("facts", &Schema::of_facts()).written();
}

#[test]
fn each_page_explains_retries_restarts_and_errors() {
    for (key, _) in ActionSpec::ALL {
        let page = Page::read(&file_of(key));
        for name in SECTIONS {
            let empty = page.section(name).is_none_or(|text| text.trim().is_empty());
            assert!(!empty, "docs/actions/{key}.md says nothing under \"## {name}\": explain it there, from the code");
        }
        let example = page.section("Example").unwrap_or_default();
        assert!(example.contains(&format!("{key}:")), "docs/actions/{key}.md has no example with {key}");
    }
}

#[test]
fn the_error_codes_on_the_pages_exist() {
    for name in ActionSpec::KEYS.map(file_of).into_iter().chain([SHARED.to_owned()]) {
        let page = Page::read(&name);
        let rows = page.section("Errors").unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| `"));
        let codes: Vec<&str> =
            rows.flat_map(|row| row.split(" | ").next()).flat_map(|cell| cell.split("`, `")).collect();
        for code in codes.iter().map(|code| code.trim_matches('`')) {
            let known = ErrorCode::ALL.iter().any(|one| one.as_str() == code);
            assert!(known, "docs/actions/{name} explains the error {code}, which does not exist");
        }
    }
}

#[test]
fn every_example_on_the_pages_is_a_valid_template() {
    let mut count = 0;
    for name in ActionSpec::KEYS.map(file_of).into_iter().chain([SHARED.to_owned()]) {
        for (line, text) in examples::of(&Page::read(&name).text) {
            count += 1;
            if let Err(problems) = examples::validated(&name, &text) {
                let said: Vec<String> = problems.iter().map(|problem| format!("{problem}")).collect();
                panic!("the example in docs/actions/{name} line {line} is invalid:\n{}\n{text}", said.join("\n"));
            }
        }
    }
    assert!(count >= ActionSpec::KEYS.len(), "{count} examples were found");
}
