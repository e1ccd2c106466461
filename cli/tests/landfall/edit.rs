//! `landfall edit` with editors that are scripts.

use std::os::unix::fs::PermissionsExt;

use crate::fake::{Fake, Run, command, finished};

/// An editor that counts its calls in a file and does what the script says with `$1`; `$n` is the call.
fn edit(fake: &Fake, script: &str) -> Run {
    let dir = fake.dir.path();
    let editor = dir.join("editor");
    let count = dir.join("count");
    let text = format!(
        "#!/bin/sh\necho x >> {0}\nn=$(wc -l < {0})\ncp \"$1\" {1}/opened.$n\n{script}\n",
        count.display(),
        dir.display()
    );
    std::fs::write(&editor, text).unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o700)).unwrap();
    let temp = dir.join("tmp");
    std::fs::create_dir_all(&temp).unwrap();
    let mut command = command(&fake.server());
    finished(command.args(["edit", "machine", "node-1"]).env("EDITOR", &editor).env("TMPDIR", &temp))
}

fn opened(fake: &Fake, call: usize) -> String {
    std::fs::read_to_string(fake.dir.path().join(format!("opened.{call}"))).unwrap_or_default()
}

fn kept(fake: &Fake) -> Vec<String> {
    let entries = std::fs::read_dir(fake.dir.path().join("tmp")).unwrap();
    entries.map(|e| std::fs::read_to_string(e.unwrap().path()).unwrap()).collect()
}

const SERIAL: &str = r#"sed -i 's/^  identity:/  identity:\n    serial: abc/' "$1""#;

#[test]
fn a_saved_edit_is_applied_and_leaves_no_file() {
    let fake = Fake::start();
    let run = edit(&fake, SERIAL);
    assert_eq!((run.code, run.out.as_str()), (0, "machine/node-1 edited\n"), "{}", run.err);
    let shown = opened(&fake, 1);
    assert!(shown.contains("resourceVersion: 5") && !shown.contains("status:"), "{shown}");
    assert!(kept(&fake).is_empty());
}

#[test]
fn an_unchanged_or_empty_edit_applies_nothing() {
    let fake = Fake::start();
    let same = edit(&fake, "true");
    assert_eq!((same.code, same.out.as_str()), (0, ""), "{}", same.err);
    assert!(same.err.contains("Nothing was changed"));
    assert_eq!(edit(&fake, ": > \"$1\"").code, 1);
    assert!(fake.seen().is_empty(), "{:?}", fake.seen());
}

#[test]
fn a_refused_edit_is_reopened_and_its_text_kept() {
    let fake = Fake::start();
    let script = r#"if [ $n = 1 ]; then sed -i 's/macs:/mac:/' "$1"; fi"#;
    let run = edit(&fake, script);
    assert_eq!(run.code, 4, "{}", run.err);
    let again = opened(&fake, 2);
    assert!(again.starts_with("#! It was not applied."), "{again}");
    assert!(again.contains("there is no field \"mac\" here") && again.contains("mac:"), "{again}");
    assert!(run.err.contains("Your text is kept in "), "{}", run.err);
    assert!(kept(&fake)[0].contains("mac:"), "{:?}", kept(&fake));
    // Corrected at the second opening it is applied.
    let fake = Fake::start();
    let script =
        format!("if [ $n = 1 ]; then sed -i 's/macs:/mac:/' \"$1\"; else sed -i 's/mac:/macs:/' \"$1\"; {SERIAL}; fi");
    let run = edit(&fake, &script);
    assert_eq!((run.code, run.out.as_str()), (0, "machine/node-1 edited\n"), "{}", run.err);
}

#[test]
fn a_change_by_another_person_is_shown_first() {
    let fake = Fake::start();
    let script = r#"if [ $n = 1 ]; then sed -i 's/^  identity:/  identity:\n    serial: late/' "$1"; else echo '# seen' >> "$1"; fi"#;
    let run = edit(&fake, script);
    assert_eq!((run.code, run.out.as_str()), (0, "machine/node-1 edited\n"), "{}", run.err);
    let again = opened(&fake, 2);
    assert!(again.contains("#!   metadata.labels.rack: \"r7\" -> \"r8\""), "{again}");
    assert!(again.contains("resourceVersion: 9") && again.contains("serial: late"), "{again}");
    assert_eq!(fake.seen(), ["apply node-1", "conflict node-1", "apply node-1"]);
}

#[test]
fn saving_again_confirms_the_changes_of_others() {
    for (second, code) in [("touch \"$1\"", 0), ("true", 4)] {
        let fake = Fake::start();
        let script = format!("if [ $n = 1 ]; then {}; else {second}; fi", SERIAL.replace("abc", "late"));
        let run = edit(&fake, &script);
        assert_eq!(run.code, code, "{second} {}", run.err);
        assert_eq!(opened(&fake, 3), "");
        assert_eq!(kept(&fake).len(), usize::from(code != 0));
    }
}

#[test]
fn heartbeats_do_not_prevent_an_edit() {
    let fake = Fake::start();
    let run = edit(&fake, &SERIAL.replace("abc", "busy-2"));
    assert_eq!((run.code, run.out.as_str()), (0, "machine/node-1 edited\n"), "{}", run.err);
    assert_eq!(opened(&fake, 2), "", "it was opened again");
    let fake = Fake::start();
    let run = edit(&fake, &format!("if [ $n = 1 ]; then {}; fi", SERIAL.replace("abc", "busy-99")));
    assert_eq!(run.code, 4, "{}", run.err);
    assert!(opened(&fake, 2).contains("busy-99"));
    assert_eq!(fake.seen().iter().filter(|s| *s == "heartbeat node-1").count(), 6);
}

#[test]
fn ctrl_c_is_the_editors() {
    let fake = Fake::start();
    let interrupt = r#"p=$PPID
until [ "$(cat /proc/$p/comm)" = landfall ]; do p=$(sed -n 's/^PPid:\t//p' /proc/$p/status); done
kill -INT $p"#;
    let run = edit(&fake, &format!("{interrupt}\n{SERIAL}"));
    assert_eq!((run.code, run.out.as_str()), (0, "machine/node-1 edited\n"), "{}", run.err);
}

#[test]
fn an_editor_that_fails_applies_nothing_and_loses_nothing() {
    let fake = Fake::start();
    let run = edit(&fake, &format!("{SERIAL}; exit 3"));
    assert_eq!(run.code, 1);
    assert!(fake.seen().is_empty() && kept(&fake)[0].contains("serial: abc"), "{}", run.err);
    assert_eq!(fake.landfall(&["edit", "workflow", "node-1-a"]).code, 4);
    assert_eq!(fake.landfall(&["edit", "machines"]).code, 2);
}
