//! When a layout of disks is whole: what firmware starts is put in place last, after everything that fills the layout.

use super::{ActionKind, AssignedAction};

/// Whether a layout is whole once the action at `index` has ended. That action is the `storage` itself where nothing fills its
/// layout, else the last `unpack` of the root before anything needs the disks as they are to start.
pub(super) fn completes(actions: &[AssignedAction], index: usize) -> bool {
    match actions.get(index).map(|action| &action.kind) {
        Some(ActionKind::Storage(storage)) => !storage.layout.mounts_root() || last_fill(actions, index).is_none(),
        Some(ActionKind::Unpack(unpack)) if unpack.disk.is_none() => {
            let before = actions.iter().enumerate().take(index);
            let system = before.rev().find(|(_, action)| match &action.kind {
                ActionKind::Storage(storage) => storage.layout.mounts_root(),
                other => matches!(other, ActionKind::WriteImage(_)),
            });
            system.is_some_and(|(at, action)| {
                matches!(action.kind, ActionKind::Storage(_)) && last_fill(actions, at) == Some(index)
            })
        }
        _ => false,
    }
}

/// The last action that fills the layout of the `storage` action at `storage`, before one that looks at the disks' tables, runs
/// programs which do, or starts the system.
fn last_fill(actions: &[AssignedAction], storage: usize) -> Option<usize> {
    let mut last = None;
    for (index, action) in actions.iter().enumerate().skip(storage + 1) {
        match &action.kind {
            // One that may be left out, or that another branch outlives, is not known to be the last.
            ActionKind::Unpack(unpack) if unpack.disk.is_none() => {
                if action.when.is_none() && action.branch.is_none() {
                    last = Some(index);
                }
            }
            // They find the layout by its plan, or touch no disk of it.
            ActionKind::CloudInit(spec) if spec.disk.is_none() => {}
            ActionKind::Ignition(spec) if spec.disk.is_none() => {}
            ActionKind::WriteFile(spec) if spec.disk.is_none() => {}
            ActionKind::Storage(other) if !other.layout.mounts_root() => {}
            ActionKind::Hold(_) | ActionKind::Http(_) | ActionKind::Wait(_) | ActionKind::Wipe(_) => {}
            ActionKind::Unpack(_)
            | ActionKind::CloudInit(_)
            | ActionKind::Ignition(_)
            | ActionKind::WriteFile(_)
            | ActionKind::Storage(_)
            | ActionKind::WriteImage(_)
            | ActionKind::Exec(_)
            | ActionKind::RunContainer(_)
            | ActionKind::InstallBootloader(_)
            | ActionKind::EfiBoot(_)
            | ActionKind::Identity(_)
            | ActionKind::GrowRoot(_)
            | ActionKind::Kexec(_)
            | ActionKind::Reboot(_)
            | ActionKind::PowerOff(_) => break,
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{
        Digest, DiskSelector, HoldSpec, ImageAccess, RebootSpec, StorageSpec, Unpack, UnpackSource, message::Retry,
    };

    fn storage(role: &str) -> ActionKind {
        let layout = json!({"disks": [{"partitions": [{"role": role}]}]});
        ActionKind::Storage(serde_json::from_value::<StorageSpec>(layout).unwrap().resolved())
    }

    fn unpack(disk: Option<DiskSelector>) -> ActionKind {
        let source = UnpackSource::Archive { url: "http://h/a".into(), digest: Digest::from_sha256([1; 32]) };
        ActionKind::Unpack(Unpack { source, access: ImageAccess::default(), path: "/".into(), disk })
    }

    fn action(word: &str) -> AssignedAction {
        let second = Duration::from_secs(1);
        let kind = match word {
            "root" | "data" => storage(word),
            "elsewhere" => unpack(Some(serde_json::from_value(json!({"name": "vdb"})).unwrap())),
            "hold" => ActionKind::Hold(HoldSpec { message: String::new() }),
            "reboot" => ActionKind::Reboot(RebootSpec::default()),
            _ => unpack(None),
        };
        AssignedAction {
            name: word.into(),
            timeout: second,
            retry: Retry { max_attempts: 1, initial_backoff: second, max_backoff: second },
            branch: (word == "branch").then(|| "b".to_owned()),
            when: None,
            kind,
        }
    }

    #[test]
    fn exactly_one_action_completes_a_layout() {
        for (list, at) in [
            ("root", 0),
            ("data", 0),
            ("root reboot", 0),
            ("root unpack reboot", 1),
            ("root unpack hold unpack reboot", 3),
            ("root unpack reboot unpack", 1),
            ("root unpack elsewhere unpack", 1),
            ("root branch branch reboot", 0),
            ("root branch unpack reboot", 2),
            ("root elsewhere", 0),
        ] {
            let actions: Vec<AssignedAction> = list.split(' ').map(action).collect();
            let which: Vec<usize> = (0..actions.len()).filter(|index| completes(&actions, *index)).collect();
            assert_eq!(which, [at], "{list}");
        }
    }

    #[test]
    fn each_layout_is_completed_by_its_own_action() {
        let actions: Vec<AssignedAction> = "data root data unpack root unpack".split(' ').map(action).collect();
        let which: Vec<usize> = (0..actions.len()).filter(|index| completes(&actions, *index)).collect();
        assert_eq!(which, [0, 2, 3, 5]);
    }
}
