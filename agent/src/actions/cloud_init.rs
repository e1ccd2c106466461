//! `cloudInit`: a NoCloud seed on the installed disk, and the phone-home unit. Existing files are replaced, so the
//! action has the same result when it runs twice.

use std::{fs::File, io::Read, path::Path};

use landfall_api::message::{ActionResult, CloudInit, CloudInitResult, PhoneHomeUnit};

use super::Machine;
use super::installed_root::{InstalledRoot, io, may_act};
use crate::rootfs::Tree;
use crate::runner::{Failure, Job};
use crate::{installed, phone_home, proxy};

/// A path in every directory that is written to.
const PATHS: [&str; 5] = [SEED_MARK, installed::CONFIG, installed::BINARY, installed::UNIT, installed::WANTS];
const SEED_MARK: &str = "/var/lib/cloud/seed/nocloud/meta-data";

/// Writes the seed.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &CloudInit) -> Result<ActionResult, Failure> {
    let root = InstalledRoot::open(machine, job, spec.disk.as_ref(), &PATHS)?;
    let installed = Installed { tree: root.tree(), device: &root.device, may_act: &|| may_act(job) };
    installed.write_seed(spec)?;
    match &spec.phone_home {
        Some(phone_home) => installed.install_phone_home(phone_home, Path::new("/proc/self/exe"))?,
        None => installed.remove_phone_home()?,
    }
    Ok(ActionResult::CloudInit(CloudInitResult { root_device: root.close()? }))
}

/// The installed system's files. Each is written only if that is allowed just then.
struct Installed<'a> {
    tree: &'a Tree,
    /// For failures.
    device: &'a str,
    may_act: &'a dyn Fn() -> Result<(), Failure>,
}

impl Installed<'_> {
    fn write(&self, path: &str, mode: u32, content: impl Read) -> Result<(), Failure> {
        (self.may_act)()?;
        self.tree.write(path, mode, content).map_err(|e| io(&e, self.device))
    }

    fn link(&self, path: &str, target: &str) -> Result<(), Failure> {
        (self.may_act)()?;
        self.tree.link(path, target).map_err(|e| io(&e, self.device))
    }

    fn remove(&self, path: &str) -> Result<(), Failure> {
        (self.may_act)()?;
        self.tree.remove(path).map_err(|e| io(&e, self.device))
    }

    fn write_seed(&self, spec: &CloudInit) -> Result<(), Failure> {
        let seed = |name: &str| format!("{}/{name}", installed::SEED);
        // meta-data last: cloud-init recognises a seed directory by this file.
        self.write(&seed("user-data"), 0o600, spec.user_data.expose().as_bytes())?;
        for (name, text) in [("vendor-data", &spec.vendor_data), ("network-config", &spec.network_config)] {
            match text.expose() {
                "" => self.remove(&seed(name))?,
                text => self.write(&seed(name), 0o600, text.as_bytes())?,
            }
        }
        self.write(&seed("meta-data"), 0o600, spec.meta_data.as_bytes())
    }

    fn install_phone_home(&self, spec: &PhoneHomeUnit, own_binary: &Path) -> Result<(), Failure> {
        let config = phone_home::Config {
            url: spec.url.clone(),
            other_urls: spec.other_urls.clone(),
            bearer_token: spec.bearer_token.expose().to_owned(),
            ca_pins: spec.ca_pins.iter().map(ToString::to_string).collect(),
            proxy: proxy::get().map(ToString::to_string),
        };
        let own = |source: std::io::Error| io(&OwnBinary(source), self.device);
        let config = serde_json::to_vec_pretty(&config).map_err(|e| own(e.into()))?;
        self.write(installed::CONFIG, 0o600, config.as_slice())?;
        self.write(installed::BINARY, 0o755, File::open(own_binary).map_err(own)?)?;
        self.write(installed::UNIT, 0o644, installed::unit().as_bytes())?;
        // Last, because it starts the rest.
        self.link(installed::WANTS, installed::UNIT)
    }

    /// Files left by an earlier workflow's cloudInit must not phone home for that workflow.
    fn remove_phone_home(&self) -> Result<(), Failure> {
        let paths = [installed::WANTS, installed::CONFIG, installed::UNIT, installed::BINARY];
        paths.into_iter().try_for_each(|path| self.remove(path))
    }
}

/// The agent's own side of the phone-home unit.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the agent's own binary")]
struct OwnBinary(#[source] std::io::Error);

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs, os::unix::fs::MetadataExt};

    use landfall_api::{ErrorCode, Problem, SecretText};

    use super::{super::final_failure, *};

    fn spec(phone_home: bool) -> CloudInit {
        let pin = format!("sha256:{}", "ab".repeat(32)).parse().unwrap();
        CloudInit {
            user_data: SecretText::new("#cloud-config\n"),
            vendor_data: SecretText::default(),
            meta_data: "instance-id: x\n".into(),
            network_config: SecretText::default(),
            phone_home: phone_home.then(|| PhoneHomeUnit {
                url: "https://10.77.0.1:7443/phone-home".into(),
                other_urls: Vec::new(),
                bearer_token: SecretText::new("t0ken"),
                ca_pins: vec![pin],
            }),
            disk: None,
        }
    }

    fn installed<'a>(tree: &'a Tree, may_act: &'a dyn Fn() -> Result<(), Failure>) -> Installed<'a> {
        Installed { tree, device: "/dev/vda2", may_act }
    }

    #[test]
    fn every_directory_that_is_written_to_is_reached_first() {
        assert!(SEED_MARK.starts_with(&format!("{}/", installed::SEED)));
        let root = tempfile::tempdir().unwrap();
        let files_of = Tree::open(root.path()).unwrap();
        let tree = installed(&files_of, &|| Ok(()));
        tree.write_seed(&spec(true)).unwrap();
        tree.install_phone_home(spec(true).phone_home.as_ref().unwrap(), Path::new("/proc/self/exe")).unwrap();
        for path in PATHS {
            let below = root.path().join(path.trim_start_matches('/'));
            fs::remove_dir_all(below.parent().unwrap()).unwrap_or_default();
        }
        assert_eq!(files(root.path()), 0);
    }

    /// Every file and link below a directory.
    fn files(root: &Path) -> usize {
        let entries = fs::read_dir(root).unwrap().map(|e| e.unwrap());
        entries.map(|e| if e.file_type().unwrap().is_dir() { files(&e.path()) } else { 1 }).sum()
    }

    #[test]
    fn nothing_more_is_written_once_it_may_not_be() {
        let lease = |n: usize| {
            let left = Cell::new(n);
            move || match left.replace(left.get().saturating_sub(1)) {
                0 => Err(final_failure(Problem::new(ErrorCode::LeaseExpired, "over"))),
                _ => Ok(()),
            }
        };
        let whole = CloudInit {
            network_config: SecretText::new("version: 2\n"),
            vendor_data: SecretText::new("#!/bin/sh\n"),
            ..spec(true)
        };
        // Four files of the seed, then three and a link of the unit.
        for steps in 0..8 {
            let root = tempfile::tempdir().unwrap();
            let may_act = lease(steps);
            let files_of = Tree::open(root.path()).unwrap();
            let tree = installed(&files_of, &may_act);
            let done = tree.write_seed(&whole).and_then(|()| {
                tree.install_phone_home(whole.phone_home.as_ref().unwrap(), Path::new("/proc/self/exe"))
            });
            assert_eq!(done.unwrap_err().problem.code, ErrorCode::LeaseExpired, "{steps}");
            assert_eq!(files(root.path()), steps);
        }
        let root = tempfile::tempdir().unwrap();
        let files_of = Tree::open(root.path()).unwrap();
        installed(&files_of, &|| Ok(())).write_seed(&whole).unwrap();
        let may_act = lease(0);
        installed(&files_of, &may_act).remove(&format!("{}/user-data", installed::SEED)).unwrap_err();
        assert_eq!(files(root.path()), 4);
    }

    #[test]
    fn writing_the_seed_twice_is_idempotent_and_secrets_stay_private() {
        let root = tempfile::tempdir().unwrap();
        let files_of = Tree::open(root.path()).unwrap();
        let tree = installed(&files_of, &|| Ok(()));
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        let binary = root.path().join("agent");
        fs::write(&binary, "ELF").unwrap();
        // What an earlier seed had and this one has not.
        let earlier =
            CloudInit { vendor_data: SecretText::new("old"), network_config: SecretText::new("old"), ..spec(true) };
        tree.write_seed(&earlier).unwrap();
        assert_eq!(fs::read_to_string(at("/var/lib/cloud/seed/nocloud/vendor-data")).unwrap(), "old");
        for _ in 0..2 {
            tree.write_seed(&spec(true)).unwrap();
            tree.install_phone_home(spec(true).phone_home.as_ref().unwrap(), &binary).unwrap();
        }
        for secret in [installed::CONFIG, "/var/lib/cloud/seed/nocloud/user-data"] {
            assert_eq!(fs::metadata(at(secret)).unwrap().mode() & 0o777, 0o600, "{secret}");
        }
        assert_eq!(fs::metadata(at(installed::BINARY)).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::read_link(at(installed::WANTS)).unwrap(), Path::new(installed::UNIT));
        let config: phone_home::Config = serde_json::from_slice(&fs::read(at(installed::CONFIG)).unwrap()).unwrap();
        assert_eq!((config.bearer_token.as_str(), config.ca_pins.len()), ("t0ken", 1));
        for gone in ["network-config", "vendor-data"] {
            assert!(!at("/var/lib/cloud/seed/nocloud").join(gone).exists(), "{gone}");
        }

        tree.remove_phone_home().unwrap();
        assert!(!at(installed::CONFIG).exists() && fs::symlink_metadata(at(installed::WANTS)).is_err());
    }
}
