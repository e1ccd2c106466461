//! When a layout of disks is committed: what firmware starts of it is put in place only while nothing fills it.
//!
//! An action that needs the disks as they are to start finds the layout committed: [`commits_before`]. What makes or fills a layout
//! commits it at its own end only where no such action is sure to follow: [`commits_after`]. An `unpack` into a layout that was
//! committed takes that back before it begins.

use super::{ActionKind, AssignedAction};
use crate::{DiskSelector, stages};

/// What an action means to a layout before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It puts files there, of which half may be worse than none.
    Fills,
    /// It looks at the disks' tables, runs programs which do, or starts the system; or it makes another system.
    Needs,
    /// It finds the layout by its plan, or touches no disk of it.
    Neither,
}

fn part(kind: &ActionKind) -> Part {
    // What names a disk works on the system there, or makes one.
    let in_layout = |disk: &Option<DiskSelector>, part| if disk.is_none() { part } else { Part::Needs };
    match kind {
        ActionKind::BmcAccount(_) => Part::Neither,
        ActionKind::CloudInit(spec) => in_layout(&spec.disk, Part::Neither),
        ActionKind::EfiBoot(_) => Part::Needs,
        ActionKind::Exec(_) => Part::Needs,
        ActionKind::GrowRoot(_) => Part::Needs,
        ActionKind::HealthTest(_) => Part::Neither,
        ActionKind::Hold(_) => Part::Neither,
        ActionKind::Http(_) => Part::Neither,
        ActionKind::Identity(_) => Part::Needs,
        ActionKind::Ignition(spec) => in_layout(&spec.disk, Part::Neither),
        ActionKind::InstallBootloader(_) => Part::Needs,
        ActionKind::Kexec(_) => Part::Needs,
        ActionKind::PowerOff(_) => Part::Needs,
        ActionKind::Reboot(_) => Part::Needs,
        ActionKind::RunContainer(_) => Part::Needs,
        ActionKind::SecureBoot(_) => Part::Neither,
        ActionKind::Storage(data) if !data.layout.mounts_root() => Part::Neither,
        ActionKind::Storage(_) => Part::Needs,
        ActionKind::Unpack(spec) => in_layout(&spec.disk, Part::Fills),
        ActionKind::Wait(_) => Part::Neither,
        ActionKind::Wipe(_) => Part::Neither,
        ActionKind::WriteFile(spec) => in_layout(&spec.disk, Part::Neither),
        ActionKind::WriteImage(_) => Part::Needs,
    }
}

/// The `storage` whose layout is the system that the action at `index` finds; `None`: the system is an image, or there is none. Of
/// the actions before it those that were left out must be `hold`s already.
pub fn layout_before(actions: &[AssignedAction], index: usize) -> Option<usize> {
    let written = actions.iter().enumerate().take(index).rev().find_map(|(at, action)| match &action.kind {
        ActionKind::Storage(storage) => storage.layout.mounts_root().then_some((at, true)),
        ActionKind::WriteImage(_) => Some((at, false)),
        _ => None,
    });
    written.filter(|(_, is_layout)| *is_layout).map(|(at, _)| at)
}

/// The `storage` whose layout is to be committed before the action at `index` begins. None where another branch may fill it at the
/// same time.
pub fn commits_before(actions: &[AssignedAction], index: usize) -> Option<usize> {
    let needs = actions.get(index).is_some_and(|action| part(&action.kind) == Part::Needs);
    layout_before(actions, index).filter(|_| needs && !is_filled_beside(actions, index))
}

/// Whether the action at `index` commits the layout that it makes or fills once it has ended: no action is sure to come that has it
/// committed, or takes this on.
pub(super) fn commits_after(actions: &[AssignedAction], index: usize) -> bool {
    let Some(own) = actions.get(index) else { return false };
    match &own.kind {
        // Nothing fills it.
        ActionKind::Storage(storage) if !storage.layout.mounts_root() => return true,
        ActionKind::Storage(_) => {}
        kind if part(kind) == Part::Fills && layout_before(actions, index).is_some() => {}
        _ => return false,
    }
    !actions.iter().enumerate().skip(index + 1).any(|(at, later)| {
        let waits = own.branch.is_none() || later.branch.is_none() || later.branch == own.branch;
        let is_sure = waits && later.when.is_none();
        let takes_on = match part(&later.kind) {
            Part::Needs => !is_filled_beside(actions, at),
            Part::Fills => true,
            Part::Neither => false,
        };
        is_sure && takes_on
    })
}

/// Whether another branch of the same stage fills a layout.
fn is_filled_beside(actions: &[AssignedAction], index: usize) -> bool {
    let fills = |at: &usize| actions.get(*at).is_some_and(|action| part(&action.kind) == Part::Fills);
    let stages = stages(actions.iter().map(|action| action.branch.as_deref()));
    let stage = stages.iter().find(|stage| stage.span().contains(&index));
    let mut beside = stage.into_iter().flat_map(|stage| &stage.lanes).filter(|lane| !lane.contains(&index));
    beside.any(|lane| lane.iter().any(fills))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::message::Retry;
    use crate::{Digest, ExecSpec, HoldSpec, ImageAccess, RebootSpec, StorageSpec, Unpack, UnpackSource, When};

    fn storage(role: &str) -> ActionKind {
        let layout = json!({"disks": [{"partitions": [{"role": role}]}]});
        ActionKind::Storage(serde_json::from_value::<StorageSpec>(layout).unwrap().resolved())
    }

    fn unpack(disk: Option<&str>) -> ActionKind {
        let source = UnpackSource::Archive { url: "http://h/a".into(), digest: Digest::from_sha256([1; 32]) };
        let disk = disk.map(|name| serde_json::from_value(json!({"name": name})).unwrap());
        ActionKind::Unpack(Unpack { source, access: ImageAccess::default(), path: "/".into(), disk })
    }

    /// `a:unpack?`: in branch a, with a condition.
    fn action(word: &str) -> AssignedAction {
        let (branch, rest) = word.split_once(':').map_or((None, word), |(branch, rest)| (Some(branch), rest));
        let second = Duration::from_secs(1);
        let exec: ExecSpec = serde_json::from_value(json!({"command": ["true"]})).unwrap();
        let kind = match rest.trim_end_matches('?') {
            role @ ("root" | "data") => storage(role),
            "elsewhere" => unpack(Some("vdb")),
            "unpack" => unpack(None),
            "hold" => ActionKind::Hold(HoldSpec { message: String::new() }),
            "reboot" => ActionKind::Reboot(RebootSpec::default()),
            "exec" => ActionKind::Exec(exec.clone().resolved(&exec).unwrap()),
            other => panic!("{other}"),
        };
        AssignedAction {
            name: word.into(),
            timeout: second,
            retry: Retry { max_attempts: 1, initial_backoff: second, max_backoff: second },
            branch: branch.map(str::to_owned),
            when: rest.ends_with('?').then(|| When::parse("results.x.succeeded").unwrap()),
            kind,
        }
    }

    #[test]
    fn a_layout_is_committed_only_while_nothing_fills_it() {
        for (list, before, after) in [
            ("root", "", "0"),
            ("data reboot", "", "0"),
            ("root reboot", "1", ""),
            ("root unpack", "", "1"),
            ("root unpack reboot", "2", ""),
            ("root unpack hold unpack reboot", "4", ""),
            ("root unpack exec unpack reboot", "2 4", ""),
            ("root exec unpack", "1", "2"),
            ("root unpack elsewhere", "2", ""),
            // What is not sure to be done does not end a layout.
            ("root unpack? reboot", "2", ""),
            ("root unpack?", "", "0 1"),
            ("root unpack exec?", "2", "1"),
            // A branch does not wait for another's archive.
            ("root a:unpack b:exec reboot", "3", ""),
            ("root a:unpack a:exec b:hold reboot", "2 4", ""),
            ("root a:unpack b:exec", "", "1"),
            ("root a:unpack b:hold", "", "1"),
            ("root hold b:exec", "2", ""),
            // Each system is whole before the next is made.
            ("data root data unpack root unpack reboot", "4 6", "0 2"),
        ] {
            let actions: Vec<AssignedAction> = list.split(' ').map(action).collect();
            let which = |holds: &dyn Fn(usize) -> bool| {
                let found = (0..actions.len()).filter(|index| holds(*index)).map(|index| index.to_string());
                found.collect::<Vec<_>>().join(" ")
            };
            assert_eq!(which(&|index| commits_before(&actions, index).is_some()), before, "before: {list}");
            assert_eq!(which(&|index| commits_after(&actions, index)), after, "after: {list}");
        }
    }
}
