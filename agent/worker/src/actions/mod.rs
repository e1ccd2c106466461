//! The actions that the worker performs. The match is exhaustive: a new kind of action does not compile until this says whether
//! it is the worker's.

mod bootloader;
pub(crate) mod files;
mod grow;
mod identity;
mod inside;
pub(crate) mod place;
pub(crate) mod spool;
pub(crate) mod unpack;

pub use self::unpack::perform as unpack;

use landfall_api::message::{ActionKind, ActionResult, AssignedAction};
use landfall_api::{ErrorCode, Problem, Unpack};

use crate::{Context, Failure, Layout, container, storage};

/// Performs the action of the job.
///
/// # Errors
/// The action's; `Internal` for one that the agent performs itself.
pub(crate) fn perform(context: &Context<'_>, action: &AssignedAction) -> Result<ActionResult, Failure> {
    match &action.kind {
        ActionKind::GrowRoot(spec) => grow::perform(context, spec),
        ActionKind::Identity(spec) => identity::perform(context, spec),
        ActionKind::InstallBootloader(spec) => bootloader::perform(context, spec),
        ActionKind::RunContainer(spec) => container::perform(context, spec),
        ActionKind::Storage(spec) => storage::perform(context, spec),
        ActionKind::Unpack(spec) => {
            let filled = storage::Filled::of(context, spec)?;
            let unpacked = unpacked(context, spec)?;
            if let Some(filled) = filled.filter(|_| context.job.commits) {
                filled.commit(context.target, context.report)?;
            }
            Ok(unpacked)
        }
        ActionKind::BmcAccount(_)
        | ActionKind::CloudInit(_)
        | ActionKind::EfiBoot(_)
        | ActionKind::Exec(_)
        | ActionKind::HealthTest(_)
        | ActionKind::Hold(_)
        | ActionKind::Http(_)
        | ActionKind::Ignition(_)
        | ActionKind::Kexec(_)
        | ActionKind::PowerOff(_)
        | ActionKind::Reboot(_)
        | ActionKind::SecureBoot(_)
        | ActionKind::Wait(_)
        | ActionKind::Wipe(_)
        | ActionKind::WriteFile(_)
        | ActionKind::WriteImage(_) => {
            let message = format!("action {} is one that the agent performs itself", action.name);
            let hint = "report this with the workflow's log";
            Err(Failure::last(Problem::new(ErrorCode::Internal, message).hint(hint)))
        }
    }
}

/// Unpacks an archive, and writes what the new system needs of its layout.
fn unpacked(context: &Context<'_>, spec: &Unpack) -> Result<ActionResult, Failure> {
    let unpacked = unpack::perform(context.target, &context.job.hidden, spec, context.report)?;
    if let Some(layout) = layout_below(context, spec)? {
        layout.write_texts(context.target)?;
        context.report.info("/etc/fstab of the new system says what the layout has");
    }
    Ok(unpacked)
}

/// The layout whose root an archive was unpacked to.
fn layout_below<'a>(context: &Context<'a>, spec: &Unpack) -> Result<Option<Layout<'a>>, Failure> {
    let is_root = spec.path.split('/').all(|part| matches!(part, "" | "."));
    if spec.disk.is_some() || !is_root {
        return Ok(None);
    }
    Ok(Layout::of_earlier(context)?.filter(Layout::has_root))
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path};

    use landfall_api::message::{OpenedLayout, WorkerJob};
    use landfall_api::{Digest, DiskFacts, DiskId, ImageAccess, StorageSpec, UnpackSource};
    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::{Reporter, testing};

    /// A job of this action behind a layout of one disk.
    fn behind_a_layout(kind: ActionKind) -> WorkerJob {
        let layout =
            json!({"disks": [{"partitions": [{"role": "esp"}, {"role": "root", "options": "noatime,data=ordered"}]}]});
        let layout: StorageSpec = serde_json::from_value(layout).unwrap();
        let mut job = testing::job(ActionKind::Storage(layout.resolved()));
        let mut second = job.assignment.actions[0].clone();
        second.kind = kind;
        job.assignment.actions.push(second);
        let id = DiskId { name: "none".into(), size_bytes: 8 << 30, ..DiskId::default() };
        let disks = vec![DiskFacts { id, logical_sector_bytes: 512, ..DiskFacts::default() }];
        WorkerJob::new(&job.assignment, 1, 1, disks, false).unwrap()
    }

    fn unpacked(path: &str) -> Option<String> {
        let (root, file) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let stored = tar::Builder::new(Vec::new()).into_inner().unwrap();
        fs::write(file.path(), &stored).unwrap();
        let source = UnpackSource::Archive {
            url: format!("file://{}", file.path().display()),
            digest: Digest::from_sha256(Sha256::digest(&stored).into()),
        };
        let spec = Unpack { source, access: ImageAccess::default(), path: path.into(), disk: None };
        let job = behind_a_layout(ActionKind::Unpack(spec.clone()));
        let report = Reporter::new(io::sink());
        super::unpacked(&Context { job: &job, report: &report, target: root.path() }, &spec).unwrap();
        fs::read_to_string(root.path().join("etc/fstab")).ok()
    }

    #[test]
    fn a_root_on_a_layout_gets_its_fstab() {
        let fstab = unpacked("/").unwrap();
        assert!(fstab.contains(" / ext4 noatime,data=ordered 0 1\n") && fstab.contains(" /boot/efi vfat "), "{fstab}");
        assert_eq!(unpacked("/./").as_ref(), Some(&fstab));
        assert_eq!(unpacked("/opt"), None);
    }

    #[test]
    fn an_opened_layout_says_what_is_mounted_where() {
        let job = behind_a_layout(ActionKind::Hold(landfall_api::HoldSpec { message: String::new() }));
        let report = Reporter::new(io::sink());
        let context = Context { job: &job, report: &report, target: Path::new("/nowhere") };
        let OpenedLayout { mounts, disks } = storage::open(&context).unwrap();
        let said: Vec<_> = mounts.iter().map(|m| [&m.device, &m.at, &m.kind, &m.options].map(String::as_str)).collect();
        assert_eq!(
            said,
            [["/dev/none2", "/", "ext4", "data=ordered"], ["/dev/none1", "/boot/efi", "vfat", "umask=0077"]]
        );
        assert_eq!(disks, ["none"]);
        assert_eq!((mounts[0].uuid.len(), mounts[1].uuid.len()), (36, 9), "{mounts:?}");
    }
}
