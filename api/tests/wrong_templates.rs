//! Wrong templates in `tests/golden/wrong-templates/`: what a person reads of each, word for word.
//!
//! `NAME.yaml` is the file, `NAME.txt` is what is said of it. In `rows/`, each document of a file is the `spec` of a template
//! of its own; and in `tests/golden/right-templates/` of one that is taken.

use std::fs;

use landfall_api::{Document, Problem};
use landfall_golden as golden;

const FOLDER: &str = "wrong-templates";
const ROWS: &str = "wrong-templates/rows";
const RIGHT: &str = "right-templates";

/// The least that the corpus may shrink to.
const FEWEST: usize = 60;
/// The least number of rows, wrong or right.
const FEWEST_ROWS: usize = 80;

/// The names of the YAML files in a folder, without their ending.
fn names(folder: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(golden::path(folder))
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
        .collect();
    names.sort();
    names
}

/// Every row of a folder: the file's name, and the text.
fn rows(folder: &str) -> Vec<(String, String)> {
    let of_file = |name: String| {
        let text = golden::text(&format!("{folder}/{name}.yaml"));
        text.split("---\n").map(|row| (name.clone(), row.to_owned())).collect::<Vec<_>>()
    };
    let rows: Vec<_> = names(folder).into_iter().flat_map(of_file).collect();
    assert!(rows.len() >= FEWEST_ROWS, "{} are left", rows.len());
    rows
}

fn read(row: &str) -> Result<(), Vec<Problem>> {
    let spec: String = row.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("apiVersion: landfall.dev/v1alpha1\nkind: Template\nmetadata: {{ name: t }}\nspec:\n{spec}");
    Document::from_yaml_str("row", &text).map(drop)
}

/// What is said of a problem at `place`.
fn said(place: &str, problem: &Problem) -> String {
    assert!(problem.causes.is_empty(), "{problem}");
    let hint = if problem.hint.is_empty() { String::new() } else { format!("  hint: {}\n", problem.hint) };
    format!("{place} [{}]\n  {}\n{hint}", problem.code, problem.message)
}

#[test]
fn each_wrong_template_is_refused_in_the_recorded_words() {
    let names = names(FOLDER);
    assert!(names.len() >= FEWEST, "{} are left", names.len());
    for name in names {
        let file = format!("{name}.yaml");
        let problems = match Document::from_yaml_str(&file, &golden::text(&format!("{FOLDER}/{file}"))) {
            Ok(read) => panic!("{file} is taken: {read:?}"),
            Err(problems) => problems,
        };
        let said: String = problems.iter().map(|problem| said(&problem.subject, problem)).collect();
        golden::same(&format!("{FOLDER}/{name}.txt"), &said);
    }
}

#[test]
fn each_wrong_row_is_refused_in_the_recorded_words() {
    let mut files = std::collections::BTreeMap::<_, String>::new();
    for (name, row) in rows(ROWS) {
        let problems = read(&row).expect_err(&row);
        let out = files.entry(name).or_default();
        *out += &row;
        for problem in problems {
            // Without the line, which is always the same.
            let (_, place) = problem.subject.split_once(' ').expect(&row);
            *out += &said(&format!("=> {place}"), &problem);
        }
    }
    for (name, said) in files {
        golden::same(&format!("{ROWS}/{name}.txt"), &said);
    }
}

#[test]
fn each_right_row_is_taken() {
    for (name, row) in rows(RIGHT) {
        let taken = read(&row);
        assert!(taken.is_ok(), "{name}: {row} {taken:?}");
    }
}
