//! Watching: names without a document, deletions without a watch, and closed outputs.

use std::io::{BufRead, BufReader, Read, pipe};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::fake::{Fake, command};

/// Generous: a loaded machine is not a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a command that does not end by itself until it says that; the text so far.
fn until(fake: &Fake, args: &[&str], said: &str) -> String {
    let mut child = command(&fake.server()).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, lines) = mpsc::channel();
    let pipes: [Box<dyn Read + Send>; 2] =
        [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
    for pipe in pipes {
        let out = out.clone();
        thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).for_each(|line| drop(out.send(line))));
    }
    drop(out);
    let (mut text, end) = (String::new(), Instant::now() + LIMIT);
    while !text.contains(said) {
        let left = end.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => text += &format!("{line}\n"),
            Err(_) => break,
        }
    }
    // It may have ended by itself, which the text tells.
    drop(child.kill());
    child.wait().unwrap();
    // What was said before on the other of the two pipes may arrive after it.
    lines.iter().for_each(|line| text += &format!("{line}\n"));
    assert!(text.contains(said), "{args:?} {text}");
    text
}

/// The exit code of a command whose output is closed, and was before it began.
fn unread(fake: &Fake, args: &[&str]) -> Option<i32> {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    command(&fake.server()).args(args).stdout(writer).stderr(Stdio::null()).status().unwrap().code()
}

#[test]
fn an_unknown_name_is_not_watched_for_ever() {
    let fake = Fake::start();
    for args in [&["get", "m", "nod-1", "-w"][..], &["get", "m/node-1", "wf/node-1-b", "-w"], &["watch", "nod-1"]] {
        let run = fake.landfall(args);
        assert_eq!(run.code, 3, "{args:?} {}{}", run.out, run.err);
        assert!(run.err.contains("did you mean node-1"), "{args:?} {}", run.err);
    }
}

#[test]
fn a_deletion_during_a_disconnect_is_reported() {
    let text = until(&Fake::emptied(), &["get", "machine", "node-1", "-w"], "machine/node-1 is gone");
    assert!(text.contains("NAME"), "{text}");
}

#[test]
fn events_of_a_run_that_is_gone_end() {
    let fake = Fake::emptied();
    let mut child = command(&fake.server())
        .args(["events", "workflow/node-1-a", "-f"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
        }
        thread::yield_now();
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_command_with_a_closed_output_has_failed() {
    let fake = Fake::start();
    for args in [
        &["backup", "-o", "-"][..],
        &["wait", "machine/node-1", "template/mini", "--for=delete", "--timeout", "60s"],
        &["provision", "node-1", "-t", "mini", "--wait"],
        &["delete", "machine/node-1", "workflow/node-1-a"],
        &["provision", "-l", "fleet=4", "-t", "mini"],
        &["provision", "-l", "fleet=4", "-t", "mini", "--wait", "-o", "json"],
    ] {
        assert_eq!(unread(&fake, args), Some(1), "{args:?}");
    }
    assert_eq!(unread(&fake, &["wait", "machine/node-1", "--for=delete"]), Some(0), "it was done");
    assert_eq!(unread(&fake, &["get", "machines"]), Some(0));
}
