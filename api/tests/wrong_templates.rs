//! Wrong templates in `tests/golden/wrong-templates/rows/`: what a person reads of each, word for word.
//!
//! A row is the `spec` of a template, or in `document.txt` a whole document; behind it stands what is said of it, from `=>` on.
//! A new row ends with a line `=>`, and blessing writes the words. In `tests/golden/right-templates/`, each document of a file is
//! the `spec` of a template that is taken.

use std::fs;

use landfall_api::{Document, Problem};
use landfall_golden as golden;

const WRONG: &str = "wrong-templates/rows";
const RIGHT: &str = "right-templates";

/// The least that the wrong rows may shrink to.
const FEWEST_WRONG: usize = 140;
/// The least that the right rows may shrink to.
const FEWEST_RIGHT: usize = 80;

/// What stands before a `spec`.
const HEAD: &str = "apiVersion: landfall.dev/v1alpha1\nkind: Template\nmetadata: { name: t }\nspec:\n";

/// The names of the files in a folder.
fn names(folder: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(golden::path(folder))
        .unwrap()
        .map(|entry| format!("{folder}/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    names.sort();
    names
}

/// The rows of a text, without what is said of them.
fn wrong_rows(text: &str) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut said = false;
    for line in text.split_inclusive('\n') {
        let words = line.starts_with("=>") || said && line.starts_with("  ");
        if said && !words {
            rows.push(String::new());
        }
        if !words {
            *rows.last_mut().unwrap() += line;
        }
        said = words;
    }
    rows
}

fn read(head: &str, row: &str) -> Result<(), Vec<Problem>> {
    let indent = if head.is_empty() { "" } else { "  " };
    let body: String = row.lines().map(|line| format!("{indent}{line}\n")).collect();
    Document::from_yaml_str("row", &format!("{head}{body}")).map(drop)
}

/// What is said of a problem of a row.
fn said(head: &str, row: &str, problem: &Problem) -> String {
    assert!(problem.causes.is_empty(), "{problem}");
    let at = problem.subject.strip_prefix("row:").expect(row);
    let (line, place) = at.split_at(at.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(at.len()));
    // The line in the row, if it has several; 0 is that of `spec:`.
    let line = line.parse::<usize>().unwrap() - head.lines().count();
    let line = if row.lines().count() == 1 { String::new() } else { line.to_string() };
    let hint = if problem.hint.is_empty() { String::new() } else { format!("  hint: {}\n", problem.hint) };
    format!("=> {} [{}]\n  {}\n{hint}", format!("{line}{place}").trim_start(), problem.code, problem.message)
}

#[test]
fn each_wrong_row_is_refused_in_the_recorded_words() {
    let mut count = 0;
    for name in names(WRONG) {
        let head = if name.ends_with("/document.txt") { "" } else { HEAD };
        let mut now = String::new();
        for row in wrong_rows(&golden::text(&name)) {
            count += 1;
            let problems = read(head, &row).expect_err(&row);
            now += &row;
            now.extend(problems.iter().map(|problem| said(head, &row, problem)));
        }
        golden::same(&name, &now);
    }
    assert!(count >= FEWEST_WRONG, "{count} are left");
}

#[test]
fn each_right_row_is_taken() {
    let files: Vec<_> = names(RIGHT).into_iter().map(|name| (golden::text(&name), name)).collect();
    let rows: Vec<_> = files.iter().flat_map(|(text, name)| text.split("---\n").map(move |row| (name, row))).collect();
    assert!(rows.len() >= FEWEST_RIGHT, "{} are left", rows.len());
    for (name, row) in rows {
        let taken = read(HEAD, row);
        assert!(taken.is_ok(), "{name}: {row} {taken:?}");
    }
}
