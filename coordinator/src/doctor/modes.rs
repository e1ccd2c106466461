//! Files that only the coordinator may access: keys, the store, the configuration. And the limit of open files.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};

use crate::{config::Config, finding::Finding};
use landfall_store::{DATABASE, KEY_FILE};

/// Ten thousand agents and what else is open.
const ENOUGH_FILES: u64 = 16_384;

pub(super) fn check(config_path: &Path, config: &Config) -> Vec<Finding> {
    vec![private(&config.data_dir), writable_by_others(config_path, config), open_files()]
}

/// Everything below the data directory that others may read.
pub(super) fn private(data_dir: &Path) -> Finding {
    const CHECK: &str = "file modes";
    let secret =
        ["", DATABASE, "landfall.db-wal", KEY_FILE, "pki", "pki/ca.key", "admin", "admin/admin.key", "api.sock"];
    let there = secret.iter().map(|name| if name.is_empty() { data_dir.to_owned() } else { data_dir.join(name) });
    let exposed: Vec<PathBuf> =
        there.filter(|path| fs::symlink_metadata(path).is_ok_and(|meta| meta.mode() & 0o077 != 0)).collect();
    if exposed.is_empty() {
        return Finding::ok(CHECK, "only the coordinator can read keys and store");
    }
    let names: Vec<_> = exposed.iter().map(|path| path.display().to_string()).collect();
    let hint = format!("run chmod go= {}; a key that others could read may have been copied", names.join(" "));
    Finding::fail(CHECK, format!("other users may read {}", names.join(", ")), hint)
}

fn writable_by_others(config_path: &Path, config: &Config) -> Finding {
    const CHECK: &str = "configuration's modes";
    let paths = [config_path].into_iter().chain(config.manifests.directory.as_deref());
    let open: Vec<_> = paths
        .filter(|path| fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o002 != 0))
        .map(|path| path.display().to_string())
        .collect();
    match open.is_empty() {
        true => Finding::ok(CHECK, "only its owner may write it"),
        false => {
            let hint = format!("chmod o-w {}", open.join(" "));
            Finding::fail(CHECK, format!("every user may write {}", open.join(", ")), hint)
        }
    }
}

fn open_files() -> Finding {
    const CHECK: &str = "open files";
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < ENOUGH_FILES => Finding::warn(
            CHECK,
            format!("at most {hard} open files, which limits the number of connections"),
            "increase LimitNOFILE= in the systemd unit; each agent needs one",
        ),
        Ok((_, hard)) => Finding::ok(CHECK, format!("up to {hard}")),
        Err(error) => Finding::warn(CHECK, format!("cannot read the limit: {error}"), ""),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_key_that_others_may_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(dir.path().join("pki")).unwrap();
        fs::set_permissions(dir.path().join("pki"), fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["pki/ca.key", "secrets.key"] {
            let key = dir.path().join(name);
            fs::write(&key, "key").unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(private(dir.path()).level, Level::Ok);
            fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
            let found = private(dir.path());
            assert!(found.level == Level::Fail && found.message.contains(name), "{found:?}");
            fs::remove_file(&key).unwrap();
        }
    }
}
