//! Every example in `examples/` beside its recorded documents and findings, and what validation says of the documents.

use std::{fs, path::PathBuf};

use landfall_api::Document;
use landfall_golden as golden;
use landfall_import::{CsvFile, File, Import, Level};

fn examples(kind: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples").join(kind);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap()))
        .collect();
    found.sort();
    found
}

fn imported(kind: &str, name: &str, text: &str) -> Import {
    let file = File { name, text };
    match kind {
        "curtin" => landfall_import::curtin(&file),
        "bmc" => landfall_import::bmc(&[CsvFile { name, content: text.as_bytes() }], Some("bmc")),
        _ => landfall_import::tinkerbell(&[file]),
    }
    .unwrap()
}

/// What `landfall template validate` says of the documents.
fn refusals(import: &Import) -> Vec<String> {
    match Document::from_yaml_str("documents", &import.to_yaml()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(|p| format!("{}: {}", p.subject, p.message)).collect(),
    }
}

fn checked(kind: &str) {
    for (name, text) in examples(kind) {
        let import = imported(kind, &name, &text);
        let refusals = refusals(&import);
        let mut said: String = import.findings.iter().map(|finding| format!("{finding}\n")).collect();
        for tally in &import.tally {
            said += &format!("{}: {} of {}\n", tally.kind, tally.mapped, tally.found);
        }
        said.extend(import.commands.iter().map(|command| format!("next: {command}\n")));
        said.extend(refusals.iter().map(|refusal| format!("refused: {refusal}\n")));
        let stem = name.split('.').next().unwrap();
        golden::same(&format!("import/{kind}/{stem}.yaml"), &import.to_yaml());
        golden::same(&format!("import/{kind}/{stem}.txt"), &said);
        if import.is_complete() {
            assert_eq!(refusals, [""; 0], "{name}: complete, and refused");
        }
        // Only a placeholder is refused, and each was found before.
        let placeholder = |refusal: &&String| {
            ["todo", "has no operation", "must be fixed text"].iter().any(|word| refusal.contains(word))
        };
        let other: Vec<_> = refusals.iter().filter(|refusal| !placeholder(refusal)).collect();
        assert_eq!(other, [""; 0], "{name}");
        let placed = import.to_yaml().contains("todo");
        assert_eq!(!refusals.is_empty(), placed, "{name}: {refusals:#?}");
        let asked = import.findings.iter().any(|finding| finding.level == Level::Todo);
        assert!(asked || !placed, "{name}: a placeholder without a finding");
    }
}

#[test]
fn tinkerbells_examples_become_the_recorded_documents() {
    checked("tinkerbell");
}

#[test]
fn curtins_examples_become_the_recorded_documents() {
    checked("curtin");
}

#[test]
fn tables_of_machines_become_the_recorded_documents() {
    checked("bmc");
}

#[test]
fn no_password_of_a_file_reaches_documents_or_findings() {
    for kind in ["tinkerbell", "curtin", "bmc"] {
        for (name, text) in examples(kind) {
            let import = imported(kind, &name, &text);
            let all = format!("{import:?}");
            for secret in ["hunter2", "correct horse"] {
                assert!(!all.contains(secret), "{name}");
            }
        }
    }
}

#[test]
fn bad_yaml_is_refused_with_file_line_and_column() {
    let broken = |name, text| landfall_import::tinkerbell(&[File { name, text }]).unwrap_err().remove(0).subject;
    assert_eq!(broken("a.yaml", "kind: Hardware\nmetadata: [\n"), "a.yaml:2:11");
    // Inside of the data the place is that of the file around it.
    let template =
        "apiVersion: tinkerbell.org/v1alpha1\nkind: Template\nspec:\n  data: |\n    tasks:\n      - a: b: c\n";
    assert_eq!(broken("t.yaml", template), "t.yaml:6:13");
    let curtin = landfall_import::curtin(&File { name: "c.yaml", text: "a: [\n" }).unwrap_err().remove(0).subject;
    assert!(curtin.starts_with("c.yaml:") && curtin.matches(':').count() == 2, "{curtin}");
}

#[test]
fn of_a_key_that_stands_twice_curtin_takes_the_last() {
    let text = "write_files:\n  a: {path: /x, content: z,\n    path: /y, new: 1, new: 2}\n";
    let import = landfall_import::curtin(&File { name: "c.yaml", text }).unwrap();
    assert!(import.to_yaml().contains("path: /y") && !import.to_yaml().contains("/x"), "{}", import.to_yaml());
    let said: Vec<String> = import.findings.iter().map(ToString::to_string).collect();
    assert!(said[1].contains("c.yaml:2: note: path stands twice; that of line 3 is taken"), "{said:#?}");
    assert_eq!(said.iter().filter(|said| said.contains("new of a has no counterpart")).count(), 1, "{said:#?}");
}
