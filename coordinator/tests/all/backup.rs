//! Backup and restore with the real program: while it works, while it does not, and with files that are not whole.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::site::{API, Coordinator, Site, call, machine, run};
use serde_json::{Value, json};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn mac(n: usize) -> String {
    format!("52:54:00:00:{:02x}:{:02x}", n / 256, n % 256)
}

fn backup(site: &Site, output: &Path) -> (bool, String) {
    run(&["backup", "--config", text(&site.config()), "--output", text(output)])
}

fn restore(config: &Path, from: &Path, more: &[&str]) -> (bool, String) {
    run(&[&["restore", "--config", text(config), "--from", text(from)], more].concat())
}

fn names(site: &Site) -> Vec<String> {
    let list = site.api("GET", "/machines", &Value::Null);
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn an_online_backup_restores_the_ca_and_every_answered_document() {
    let site = Site::new();
    let coordinator = Coordinator::start(&site.config());
    let (answered, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let file = site.dir.path().join("b.tar");
    let socket = site.data().join("api.sock");
    let before = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (status, answer) =
                    call(&socket, "POST", &format!("{API}/apply"), &machine(&format!("m{n}"), &mac(n))).unwrap();
                assert_eq!(status, 200, "{answer}");
                answered.store(n + 1, Ordering::SeqCst);
            }
        });
        while answered.load(Ordering::SeqCst) < 20 {
            std::thread::yield_now();
        }
        let before = answered.load(Ordering::SeqCst);
        let (good, said) = backup(&site, &file);
        stop.store(true, Ordering::SeqCst);
        assert!(good && said.contains("the running coordinator"), "{said}");
        before
    });
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (good, said) = backup(&site, &file);
    assert!(!good && said.contains("already exists"), "{said}");
    let audit = site.api("GET", "/audit", &Value::Null).to_string();
    assert!(audit.contains("GET /backup"), "{audit}");
    let ca = fs::read(site.data().join("pki/ca.pem")).unwrap();
    let (good, said) = restore(&site.config(), &file, &["--replace"]);
    assert!(!good && said.contains("in use"), "a running coordinator's data was replaced: {said}");
    coordinator.kill();

    let (good, said) = restore(&site.config(), &file, &[]);
    assert!(!good && said.contains("--replace"), "{said}");
    let (good, said) = restore(&site.config(), &file, &["--replace"]);
    assert!(good && said.contains("replaced-"), "{said}");
    assert_eq!(fs::read(site.data().join("pki/ca.pem")).unwrap(), ca);
    let kept = fs::read_dir(site.dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(kept.filter(|name| name.starts_with("data.")).count(), 1, "the old data, and nothing half made");
    let restored = Coordinator::start(&site.config());
    let there = names(&site);
    assert!(there.len() >= before && (0..there.len()).all(|n| there.contains(&format!("m{n}"))), "{there:?}");
    // Who has followed what is lost, up to any revision of it, does not go on in what takes its place, also if that is lost too.
    let after = || {
        site.api("POST", "/apply", &machine("late", &mac(999)));
        site.api("GET", "/machines/late", &Value::Null)["metadata"]["resourceVersion"].as_u64().unwrap()
    };
    let late = after();
    restored.kill();
    let (good, said) = restore(&site.config(), &file, &["--replace"]);
    assert!(good, "{said}");
    let restored = Coordinator::start(&site.config());
    assert!(after().abs_diff(late) > 1, "{late}");
    for lost in [there.len() as u64, there.len() as u64 + 1, 1000, late] {
        let path = format!("{API}/machines?watch=true&resourceVersion={lost}");
        let (status, answer) = call(&socket, "GET", &path, &Value::Null).unwrap();
        assert!(status == 410 && answer.contains("Expired"), "{lost}: {answer}");
    }
    drop(restored);
}

#[test]
fn a_restore_withdraws_tokens_and_lists_what_to_revoke() {
    let site = Site::new();
    let coordinator = Coordinator::start(&site.config());
    site.api("POST", "/apply", &machine("m1", &mac(1)));
    site.api("POST", "/tokens", &json!({ "name": "ci", "role": "admin" }));
    site.api("POST", "/operators/ann/revoke", &Value::Null);
    let file = site.dir.path().join("b.tar");
    assert!(backup(&site, &file).0);
    coordinator.kill();
    let (good, said) = restore(&site.config(), &file, &["--replace"]);
    assert!(good, "{said}");
    for wanted in ["withdrawn (ci)", "ann in the backup stay revoked", "landfall revoke operator/", "among m1"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let _restored = Coordinator::start(&site.config());
    assert!(!site.api("GET", "/tokens", &Value::Null).to_string().contains("ci"), "the token is there again");
}

#[test]
fn an_offline_backup_includes_the_write_ahead_log() {
    let site = Site::new();
    let (good, said) = backup(&site, &site.dir.path().join("early.tar"));
    assert!(!good && said.contains("no coordinator's data"), "{said}");
    let coordinator = Coordinator::start(&site.config());
    site.api("POST", "/apply", &machine("m1", &mac(1)));
    // Killed: its write-ahead log was never folded back.
    coordinator.kill();
    let file = site.dir.path().join("b.tar");
    let (good, said) = backup(&site, &file);
    assert!(good && said.contains("does not run"), "{said}");
    let data = site.dir.path().join("elsewhere");
    let (good, said) = restore(&site.configure("other.toml", &data), &file, &[]);
    assert!(good, "{said}");
    fs::rename(&data, site.dir.path().join("moved")).unwrap();
    fs::remove_dir_all(site.data()).unwrap();
    fs::rename(site.dir.path().join("moved"), site.data()).unwrap();
    let _restored = Coordinator::start(&site.config());
    assert_eq!(names(&site), ["m1"]);
}

#[test]
fn a_damaged_backup_is_refused_before_any_change() {
    let site = Site::new();
    let coordinator = Coordinator::start(&site.config());
    site.api("POST", "/apply", &machine("m1", &mac(1)));
    let file = site.dir.path().join("b.tar");
    assert!(backup(&site, &file).0);
    coordinator.kill();
    let whole = fs::read(&file).unwrap();
    let bad = site.dir.path().join("bad.tar");
    let listing = |path: &Path| {
        let mut all: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
        all.sort();
        all
    };
    let (before, around) = (listing(&site.data()), listing(site.dir.path()).len() + 1);
    // Some bytes of every member's head and body; the padding between them belongs to none.
    let mut places = Vec::new();
    let mut archive = tar::Archive::new(&whole[..]);
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let (head, body, bytes) = (entry.raw_header_position(), entry.raw_file_position(), entry.size());
        places.extend([head, head + 124, body, body + bytes / 2, body + bytes - 1]);
    }
    assert!(places.len() > 30, "manifest, database, key, CA, admin's certificate and digest: {places:?}");
    for at in places {
        let at = usize::try_from(at).unwrap();
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        for content in [&whole[..at], &flipped[..]] {
            fs::write(&bad, content).unwrap();
            let (good, said) = restore(&site.config(), &bad, &["--replace"]);
            assert!(!good && said.contains("nothing was changed"), "byte {at} of {}: {said}", whole.len());
        }
    }
    assert_eq!((listing(&site.data()), listing(site.dir.path()).len()), (before, around));
    let (good, said) = restore(&site.config(), &site.dir.path().join("none.tar"), &["--replace"]);
    assert!(!good && said.contains("none.tar"), "{said}");
}

#[test]
fn an_interrupted_restore_creates_no_new_authority() {
    let site = Site::new();
    let coordinator = Coordinator::start(&site.config());
    site.api("POST", "/apply", &machine("m1", &mac(1)));
    let file = site.dir.path().join("b.tar");
    assert!(backup(&site, &file).0);
    coordinator.kill();
    // As the power left it: the old data has its new name, and the restored data not yet.
    let (old, new) = (site.dir.path().join("data.replaced-20260101T000000Z"), site.dir.path().join("data.restoring-7"));
    fs::rename(site.data(), &old).unwrap();
    fs::create_dir(&new).unwrap();
    for left in [&old, &new] {
        let (good, said) = run(&["run", "--config", text(&site.config())]);
        assert!(!good && said.contains("a restore was interrupted"), "{said}");
        assert!(!site.data().join("pki").exists(), "a new authority");
        fs::rename(left, site.dir.path().join(left.file_name().unwrap().to_str().unwrap().replace("data", "kept")))
            .unwrap();
    }
    fs::rename(site.dir.path().join("kept.replaced-20260101T000000Z"), &old).unwrap();
    let (good, said) = restore(&site.config(), &file, &[]);
    assert!(good, "{said}");
    let _restored = Coordinator::start(&site.config());
    assert_eq!(names(&site), ["m1"]);
}
