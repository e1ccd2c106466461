//! Contexts from making one to asking its coordinator.

use std::os::unix::fs::PermissionsExt;

use crate::fake::{Fake, Run, command, finished};

fn landfall(fake: &Fake, args: &[&str]) -> Run {
    let mut command = command("");
    finished(command.env_remove("LANDFALL_SERVER").env("XDG_CONFIG_HOME", fake.dir.path()).args(args))
}

#[test]
fn a_context_is_made_used_shown_and_forgotten() {
    let fake = Fake::start();
    let server = fake.server();
    let made = landfall(&fake, &["context", "set", "lab", "--server", &server]);
    assert_eq!((made.code, made.out.as_str()), (0, "context/lab created\n"), "{}", made.err);
    let file = fake.dir.path().join("landfall/config.yaml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(landfall(&fake, &["get", "m", "-o", "name"]).out, "machine/node-1\n");
    let away = ["context", "set", "away", "--server", "https://127.0.0.1:1", "--ca", "ca.pem", "--token-file", "t"];
    assert_eq!(landfall(&fake, &away).code, 0);
    let list = landfall(&fake, &["context", "list"]).out;
    assert!(list.contains("*        lab") && list.contains("away") && list.contains("/ca.pem"), "{list}");
    // Its token file is not there: the context was really used.
    let other = landfall(&fake, &["--context", "away", "get", "m"]);
    assert!(other.code == 1 && other.err.contains("/t"), "{}", other.err);
    let slip = landfall(&fake, &["--context", "lb", "get", "m"]);
    assert!(slip.code == 2 && slip.err.contains("did you mean lab?"), "{}", slip.err);
    assert_eq!(landfall(&fake, &["context", "use", "away"]).code, 0);
    assert_eq!(landfall(&fake, &["get", "m"]).code, 1);
    assert_eq!(landfall(&fake, &["context", "delete", "away"]).code, 0);
    assert_eq!(landfall(&fake, &["context", "use", "away"]).code, 2);
}

#[test]
fn an_invalid_context_is_refused_with_its_line() {
    let fake = Fake::start();
    for bad in [
        &["context", "set", "a"][..],
        &["context", "set", "a", "--server", "https://x"],
        &["context", "set", "a", "--server", "https://x", "--ca", "c", "--cert", "c"],
        &["context", "set", "a b", "--server", "unix:///s"],
        &[
            "context", "set", "a", "--server", "https://x", "--ca", "c", "--cert", "c", "--key", "k", "--token-file",
            "t",
        ],
    ] {
        assert_eq!(landfall(&fake, bad).code, 2, "{bad:?}");
    }
    let dir = fake.dir.path().join("landfall");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.yaml"), "contexts:\n  a:\n    server: ftp://x\n").unwrap();
    let run = landfall(&fake, &["get", "m"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("config.yaml:3") && run.err.contains("context a: server: write unix://"), "{}", run.err);
}
