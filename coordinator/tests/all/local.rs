//! The real program on one host: what it says of its data directory, and what its socket answers.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::site::{API, Coordinator, Site, call};
use serde_json::json;

#[test]
fn the_start_names_a_data_directory_others_may_read() {
    let site = Site::new();
    drop(Coordinator::start(&site.config()));
    let quiet = Coordinator::start(&site.config());
    assert!(!quiet.said().contains("other users may read"), "{}", quiet.said());
    drop(quiet);
    fs::set_permissions(site.data(), fs::Permissions::from_mode(0o755)).unwrap();
    let warned = Coordinator::start(&site.config());
    let said = warned.said();
    let line = said.lines().find(|line| line.contains("WARN") && line.contains("other users may read")).unwrap_or("");
    assert!(line.contains(site.data().to_str().unwrap()) && line.contains("chmod"), "{said}");
}

/// The caller writes all of it before it reads: what closes the connection before that takes the answer with it.
#[test]
fn a_document_of_two_megabytes_is_answered_with_413() {
    let site = Site::new();
    let _coordinator = Coordinator::start(&site.config());
    let socket = site.data().join("api.sock");
    let document = json!({ "kind": "Template", "x": "y".repeat(2 << 20) });
    let (status, answer) = call(&socket, "POST", &format!("{API}/apply"), &document).unwrap();
    assert_eq!(status, 413, "{answer}");
    let (status, answer) = call(&socket, "GET", &format!("{API}/machines"), &json!(null)).unwrap();
    assert_eq!(status, 200, "{answer}");
}
