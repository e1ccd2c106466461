//! `cloudInit`: a NoCloud seed on the installed disk, and the phone-home unit. Whatever is there already is replaced, so
//! doing it twice leaves what doing it once does.

use std::{fs::File, path::Path};

use landfall_api::{ErrorCode, Problem};
use landfall_session::{ActionResult, CloudInit, PhoneHome};

use super::{Machine, installed_disk, no_root};
use crate::{
    installed, phone_home,
    rootfs::{self, Access, Tree},
    runner::{Failure, Job},
};

/// Where the installed root is mounted meanwhile, with the action's index: branches do this at once.
const MOUNT_POINT: &str = "/run/landfall/root";

/// Writes the seed.
pub(super) fn perform(machine: &Machine, job: &Job, spec: &CloudInit) -> Result<ActionResult, Failure> {
    let disk = installed_disk(machine, job, spec.disk.as_ref())?;
    if !job.lease.is_valid() {
        let text = "the lease ran out before the installed system was touched";
        return Err(Failure { problem: Problem::new(ErrorCode::LeaseExpired, text), retryable: true });
    }
    let cancelled = || job.cancel.is_cancelled();
    let mount_point = format!("{MOUNT_POINT}-{}", job.action.action_index);
    let root = rootfs::find(&disk.id.name, Path::new(&mount_point), Access::Write, &cancelled)
        .map_err(|e| no_root(&e, &disk.id.name))?;
    let device = root.device.display().to_string();
    tracing::info!("the installed root file system is {device}");
    let io = |e: &dyn std::error::Error| {
        let hint = "is the installed root file system full, or read-only?";
        Failure {
            problem: Problem::new(ErrorCode::DeviceIo, e.to_string()).caused_by(e).hint(hint).at(&device),
            retryable: true,
        }
    };
    let tree = Tree::open(&root.at).map_err(|e| io(&e))?;
    write_seed(&tree, spec).map_err(|e| io(&e))?;
    match &spec.phone_home {
        Some(phone_home) => install_phone_home(&tree, phone_home, Path::new("/proc/self/exe")).map_err(|e| io(&e))?,
        None => remove_phone_home(&tree).map_err(|e| io(&e))?,
    }
    // The tree holds the mount busy.
    drop(tree);
    root.close().map_err(|e| io(&e))?;
    Ok(ActionResult::CloudInit { root_device: device })
}

fn write_seed(tree: &Tree, spec: &CloudInit) -> Result<(), crate::rootfs::TreeError> {
    let seed = |name: &str| format!("{}/{name}", installed::SEED);
    // meta-data last: it is what makes cloud-init take the directory for a seed.
    tree.write(&seed("user-data"), 0o600, spec.user_data.expose().as_bytes())?;
    if spec.network_config.is_empty() {
        tree.remove(&seed("network-config"))?;
    } else {
        tree.write(&seed("network-config"), 0o600, spec.network_config.as_bytes())?;
    }
    tree.write(&seed("meta-data"), 0o600, spec.meta_data.as_bytes())
}

fn install_phone_home(tree: &Tree, spec: &PhoneHome, own_binary: &Path) -> Result<(), InstallError> {
    let config = phone_home::Config {
        url: spec.url.clone(),
        bearer_token: spec.bearer_token.expose().to_owned(),
        ca_pins: spec.ca_pins.iter().map(ToString::to_string).collect(),
    };
    let config = serde_json::to_vec_pretty(&config).map_err(|e| InstallError::Own(e.into()))?;
    tree.write(installed::CONFIG, 0o600, config.as_slice())?;
    tree.write(installed::BINARY, 0o755, File::open(own_binary).map_err(InstallError::Own)?)?;
    tree.write(installed::UNIT, 0o644, installed::unit().as_bytes())?;
    // Last, because it is what makes the rest run.
    Ok(tree.link(installed::WANTS, installed::UNIT)?)
}

/// Whatever an earlier run's cloudInit left must not phone home for it.
fn remove_phone_home(tree: &Tree) -> Result<(), crate::rootfs::TreeError> {
    for path in [installed::WANTS, installed::CONFIG, installed::UNIT, installed::BINARY] {
        tree.remove(path)?;
    }
    Ok(())
}

/// The phone-home unit could not be put in place.
#[derive(Debug, thiserror::Error)]
enum InstallError {
    /// The agent's own side of it.
    #[error("cannot read the agent's own binary")]
    Own(#[source] std::io::Error),
    /// The installed system's side.
    #[error(transparent)]
    Tree(#[from] crate::rootfs::TreeError),
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use landfall_session::Secret;

    use super::*;

    fn spec(phone_home: bool) -> CloudInit {
        let pin = format!("sha256:{}", "ab".repeat(32)).parse().unwrap();
        CloudInit {
            user_data: Secret::new("#cloud-config\n"),
            meta_data: "instance-id: x\n".into(),
            network_config: String::new(),
            phone_home: phone_home.then(|| PhoneHome {
                url: "https://10.77.0.1:7443/phone-home".into(),
                bearer_token: Secret::new("t0ken"),
                ca_pins: vec![pin],
            }),
            disk: None,
        }
    }

    #[test]
    fn the_seed_and_the_unit_are_written_once_or_twice_alike_and_secrets_are_roots_alone() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::open(root.path()).unwrap();
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        let binary = root.path().join("agent");
        fs::write(&binary, "ELF").unwrap();
        for _ in 0..2 {
            write_seed(&tree, &spec(true)).unwrap();
            install_phone_home(&tree, spec(true).phone_home.as_ref().unwrap(), &binary).unwrap();
        }
        for secret in [installed::CONFIG, "/var/lib/cloud/seed/nocloud/user-data"] {
            assert_eq!(fs::metadata(at(secret)).unwrap().mode() & 0o777, 0o600, "{secret}");
        }
        assert_eq!(fs::metadata(at(installed::BINARY)).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::read_link(at(installed::WANTS)).unwrap(), Path::new(installed::UNIT));
        let config: phone_home::Config = serde_json::from_slice(&fs::read(at(installed::CONFIG)).unwrap()).unwrap();
        assert_eq!((config.bearer_token.as_str(), config.ca_pins.len()), ("t0ken", 1));
        assert!(!at("/var/lib/cloud/seed/nocloud/network-config").exists());

        remove_phone_home(&tree).unwrap();
        assert!(!at(installed::CONFIG).exists() && fs::symlink_metadata(at(installed::WANTS)).is_err());
    }
}
