//! Wrong templates in `tests/golden/wrong-templates/`: what a person reads of each, word for word.
//!
//! `NAME.yaml` is the file, `NAME.txt` is what is said of it.

use std::fs;

use landfall_api::Document;
use landfall_golden as golden;

const FOLDER: &str = "wrong-templates";

/// The least that the corpus may shrink to.
const FEWEST: usize = 60;

#[test]
fn each_wrong_template_is_refused_in_the_recorded_words() {
    let mut names: Vec<String> = fs::read_dir(golden::path(FOLDER))
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".yaml")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() >= FEWEST, "{} are left", names.len());
    for name in names {
        let file = format!("{name}.yaml");
        let problems = match Document::from_yaml_str(&file, &golden::text(&format!("{FOLDER}/{file}"))) {
            Ok(read) => panic!("{file} is taken: {read:?}"),
            Err(problems) => problems,
        };
        let mut said = String::new();
        for problem in problems {
            said += &format!("{} [{}]\n  {}\n", problem.subject, problem.code, problem.message);
            assert!(problem.causes.is_empty(), "{file}: {problem}");
            if !problem.hint.is_empty() {
                said += &format!("  hint: {}\n", problem.hint);
            }
        }
        golden::same(&format!("{FOLDER}/{name}.txt"), &said);
    }
}
