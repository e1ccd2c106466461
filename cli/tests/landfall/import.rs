//! `landfall import`, and the script that imports a whole directory.

use std::{fs, path::Path, process::Command};

use crate::fake::{Fake, command, finished, run_landfall};

const COMPLETE: &str = "\
write_files:
  motd: {path: /etc/motd, content: welcome}
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn away(args: &[&str]) -> crate::fake::Run {
    run_landfall("unix:///nonexistent", args)
}

#[test]
fn documents_go_out_and_findings_go_to_people() {
    let fake = Fake::start();
    let file = fake.file("node.yaml", COMPLETE);
    let run = away(&["import", "curtin", &file]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out.starts_with("apiVersion: landfall.dev/v1alpha1\nkind: Template\nmetadata:\n  name: node\n"),
        "{}",
        run.out
    );
    assert!(run.err.contains("node.yaml:1: note: no storage"), "{}", run.err);
    assert!(run.err.contains("write_files    1      1\n"), "{}", run.err);
    assert!(
        run.err.ends_with("1 document; 0 findings to work on\nnext: landfall provision MACHINE --template node\n"),
        "{}",
        run.err
    );
    // What was printed is valid.
    let template = fake.file("template.yaml", &run.out);
    assert_eq!(away(&["template", "validate", &template]).code, 0);
}

#[test]
fn what_has_no_counterpart_has_an_exit_code() {
    let fake = Fake::start();
    let file = fake.file("node.yaml", &format!("{COMPLETE}early_commands: {{a: wipefs /dev/sda}}\n"));
    let run = away(&["import", "curtin", &file]);
    assert_eq!(run.code, 7, "{}", run.err);
    assert!(run.err.contains("node.yaml:3: \"wipefs /dev/sda\" runs beside the installed system"), "{}", run.err);
    let template = fake.file("template.yaml", &run.out);
    assert_eq!(away(&["template", "validate", &template]).code, 4, "the placeholder is refused");
    let run = away(&["import", "tinkerbell", &fake.file("bad.yaml", "a: [\n")]);
    assert_eq!((run.code, run.out.as_str()), (4, ""), "{}", run.err);
    assert!(run.err.contains("bad.yaml:1:"), "{}", run.err);
    assert_eq!(away(&["import", "curtin", "/nonexistent"]).code, 1);
}

#[test]
fn an_import_into_a_directory_replaces_no_file() {
    let fake = Fake::start();
    let file = fake.file("node.yaml", COMPLETE);
    let folder = fake.dir.path().join("out");
    let args = ["import", "curtin", &file, "--output", folder.to_str().unwrap()];
    let run = away(&args);
    assert_eq!(run.code, 0, "{}", run.err);
    let written = folder.join("template-node.yaml");
    assert_eq!(run.out, format!("{}\n", written.display()));
    let run = away(&args);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("template-node.yaml") && run.err.contains("name another directory"), "{}", run.err);
    assert!(fs::read_to_string(written).unwrap().contains("/etc/motd"));
}

#[test]
fn the_table_counts_each_file_of_a_directory() {
    let fake = Fake::start();
    let folder = fake.dir.path().join("site");
    fs::create_dir_all(folder.join("tinkerbell")).unwrap();
    fs::write(folder.join("node.yaml"), COMPLETE).unwrap();
    fs::write(folder.join("other.yaml"), "something: else\n").unwrap();
    fs::write(folder.join("bad.yml"), "storage: [\n").unwrap();
    let example = root().join("cli/import/examples/tinkerbell/complete.yaml");
    fs::copy(example, folder.join("tinkerbell/complete.yaml")).unwrap();
    let mut script = Command::new(root().join("scripts/import-table"));
    let run = finished(script.arg(&folder).env("LANDFALL", env!("CARGO_BIN_EXE_landfall")));
    assert_eq!(run.code, 0, "{}", run.err);
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = run.out.lines().map(columns).collect();
    assert_eq!(lines[1][..4], ["bad.yml", "0", "0/0", "0"], "{}", run.out);
    assert_eq!(lines[2], ["node.yaml", "1", "2/2", "0", "complete"], "{}", run.out);
    assert_eq!(lines[3], ["/tinkerbell", "(1", "files)", "2", "7/7", "0", "complete"], "{}", run.out);
    assert_eq!(lines[4], ["total:", "3", "3", "9/9", "0", "2", "complete,", "1", "refused"], "{}", run.out);
}

const RACK: &str = "name,bmc,macs,label.rack\nnode-8,192.0.2.7,52:54:00:00:00:08,r7\nnode-9,,52:54:00:00:00:09,r7\n";

#[test]
fn a_table_of_machines_becomes_documents_that_apply_takes() {
    let fake = Fake::start();
    let file = fake.file("rack.csv", RACK);
    let run = away(&["import", "bmc", "--credentials", "bmc-r7", &file]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("address: redfish+https://192.0.2.7\n    credentials: bmc-r7\n"), "{}", run.out);
    assert!(
        run.err.ends_with("2 documents; 0 findings to work on\nnext: landfall apply -f DOCUMENTS\n"),
        "{}",
        run.err
    );
    let documents = fake.file("rack.yaml", &run.out);
    assert_eq!(away(&["template", "validate", &documents]).code, 0);
    let applied = fake.landfall(&["apply", "-f", &documents]);
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert!(fake.seen().iter().any(|seen| seen.contains("node-9")), "{:?}", fake.seen());
    // Of standard input, into a directory.
    let folder = fake.dir.path().join("machines");
    let mut command = command("unix:///nonexistent");
    command.args(["import", "bmc", "--credentials", "bmc-r7", "-", "--output"]).arg(&folder);
    let run = finished(command.stdin(fs::File::open(&file).unwrap()));
    assert_eq!(run.code, 0, "{}", run.err);
    let written = ["node-8", "node-9"].map(|name| folder.join(format!("machine-{name}.yaml")).display().to_string());
    assert_eq!(run.out.lines().collect::<Vec<_>>(), written);
}

#[test]
fn a_wrong_table_writes_no_document() {
    let fake = Fake::start();
    let good = fake.file("good.csv", RACK);
    let bad = fake.file("bad.csv", "name,macs,rack\nnode-8,x,r7\n");
    let folder = fake.dir.path().join("machines");
    let args = ["import", "bmc", "--credentials", "s", "--output", folder.to_str().unwrap(), &good, &bad];
    let run = away(&args);
    assert_eq!((run.code, run.out.as_str()), (4, ""), "{}", run.err);
    for part in [
        "bad.csv:1 rack: \"rack\" is an unknown column [InvalidDocument]\n  hint: remove it, or write it as a label",
        "bad.csv:2 macs: \"x\" is not a MAC address",
        "bad.csv:2 name: node-8 stands twice, first at ",
        "good.csv:2",
        "\n3 problems; no document was written\n",
    ] {
        assert!(run.err.contains(part), "{part}: {}", run.err);
    }
    assert!(!folder.exists());
    let run = away(&["import", "bmc", "--credentials", "No Name", &good]);
    assert_eq!(run.code, 2, "{}", run.err);
    let latin = fake.dir.path().join("latin.csv");
    fs::write(&latin, b"name,macs,label.city\na,52:54:00:00:00:01,K\xf6ln\n").unwrap();
    let run = away(&["import", "bmc", latin.to_str().unwrap()]);
    assert_eq!(run.code, 4, "{}", run.err);
    assert!(run.err.contains("latin.csv:2: the line is not UTF-8"), "{}", run.err);
    let run = away(&["import", "bmc", &fake.file("account.csv", "name,macs,password\na,52:54:00:00:00:01,hunter2\n")]);
    assert_eq!(run.code, 7, "{}", run.err);
    assert!(!(run.out + &run.err).contains("hunter2"));
}
