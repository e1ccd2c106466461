//! What the agent and the worker of the tools layer say to each other.

use super::{ActionKind, ActionResult, AssignedAction, Assignment, LogLevel, layout_commit::commits_after};
use crate::{DiskFacts, DiskReceipt, HoldSpec, ImageAccess, ImageAuthorization, Problem, Progress, SecretText};

/// One attempt at one action, as a worker gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerJob {
    /// The workflow. Its list ends with the action to be done. Of those before it only `storage` is as it was: it says where that
    /// action's file systems are, and with which keys they open. Every other one is a `hold` with its name: it keeps the indexes
    /// as they were, and its secrets are none of the worker's.
    pub assignment: Assignment,
    /// Every disk of the machine.
    pub disks: Vec<DiskFacts>,
    /// Those that do not answer, by kernel name: no program may look at them.
    pub silent: Vec<String>,
    /// Whether the machine was started by UEFI.
    pub uefi: bool,
    /// Places of the mounted system that are not as the running system will have them.
    pub hidden: Vec<HiddenPoint>,
    /// Once the action has ended it commits the layout that it makes or fills: nothing is sure to do so later.
    pub commits: bool,
    /// What the worker is to do.
    pub purpose: Purpose,
}

/// What a worker is started for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// It performs the action.
    Perform {
        /// The disks of the system that it finds mounted, by kernel name; the first has the root. None: nothing is mounted.
        system: Vec<String>,
    },
    /// The action works on a layout: the worker opens what the `storage` action before it made, and says what is to be mounted.
    Open,
    /// The action needs a layout's disks as they are to start: the worker opens it and puts in place what firmware starts.
    Commit,
}

/// A layout of which every device is open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenedLayout {
    /// What is mounted, in order; the first is the root.
    pub mounts: Vec<LayoutMount>,
    /// Its disks by kernel name, in the order of its selectors.
    pub disks: Vec<String>,
}

/// One file system of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutMount {
    /// Its device's path.
    pub device: String,
    /// Where, in the new system; absolute.
    pub at: String,
    /// Its kind, as mount(2) takes it.
    pub kind: String,
    /// Its identity, as fstab writes it; empty: it is what was there before the layout, and not known.
    pub uuid: String,
    /// The file system's own options, as mount(2) takes them.
    pub options: String,
    /// It was there before the layout, and its owner says `ro`: nothing is written to it, not even by the installation.
    pub read_only: bool,
}

/// A place of an installed system that the running system mounts something over, and Landfall does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenPoint {
    /// Its absolute path, without a slash at the end.
    pub point: String,
    /// What is mounted there and why not now; a sentence.
    pub why: String,
}

impl WorkerJob {
    /// The attempt `attempt` at the action at `index` of that workflow; `None` if it has no such action. `purpose`: to perform it
    /// on no mounted system.
    pub fn new(run: &Assignment, index: u32, attempt: u32, disks: Vec<DiskFacts>, uefi: bool) -> Option<Self> {
        let mut assignment = run.clone();
        assignment.actions.truncate((index as usize).saturating_add(1));
        for earlier in assignment.actions.iter_mut().take(index as usize) {
            if !matches!(earlier.kind, ActionKind::Storage(_)) {
                earlier.kind = ActionKind::Hold(HoldSpec { message: String::new() });
            }
        }
        assignment.start_index = index;
        assignment.start_attempt = attempt;
        assignment.starts = vec![super::Start { index, attempt }];
        let purpose = Purpose::Perform { system: Vec::new() };
        // The whole list says it, of which the worker gets only a part.
        let commits = commits_after(&run.actions, index as usize);
        let job = Self { assignment, disks, silent: Vec::new(), uefi, hidden: Vec::new(), commits, purpose };
        job.action().is_some().then_some(job)
    }

    /// The action to be done; `None`: the job has none.
    pub fn action(&self) -> Option<&AssignedAction> {
        self.assignment.actions.get(self.assignment.start_index as usize)
    }

    /// The actions that were done before, in order.
    pub fn earlier(&self) -> &[AssignedAction] {
        self.assignment.actions.get(..self.assignment.start_index as usize).unwrap_or_default()
    }

    /// Texts in it that no log may show.
    pub fn secrets(&self) -> Vec<&str> {
        let mut secrets = Vec::new();
        for action in &self.assignment.actions {
            match &action.kind {
                ActionKind::Storage(spec) => secrets.extend(spec.keys.values().map(SecretText::expose)),
                ActionKind::Unpack(spec) => secrets.extend(credential(&spec.access)),
                ActionKind::RunContainer(spec) => {
                    secrets.extend(credential(&spec.access));
                    secrets.extend(spec.variables.iter().filter(|one| one.secret).map(|one| one.value.expose()));
                }
                ActionKind::Identity(spec) => {
                    secrets.extend(
                        spec.users.iter().filter_map(|user| user.password_hash.as_ref()).map(SecretText::expose),
                    );
                }
                _ => {}
            }
        }
        secrets
    }
}

fn credential(access: &ImageAccess) -> Option<&str> {
    match &access.authorization {
        Some(ImageAuthorization::Basic { password, .. }) => Some(password.expose()),
        Some(ImageAuthorization::Bearer(token)) => Some(token.expose()),
        None => None,
    }
}

/// One message of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerReport {
    /// The first: it waits for its job.
    Ready(WorkerReady),
    /// A line for the workflow's log.
    Log {
        /// How serious it is.
        level: LogLevel,
        /// The line.
        message: String,
    },
    /// How far it is.
    Progress(Progress),
    /// The receipt on a disk changed.
    ReceiptWritten(DiskReceipt),
    /// The last, of a layout that is open.
    Opened(OpenedLayout),
    /// The last, of an action that succeeded.
    Finished(ActionResult),
    /// The last, of an action that failed and has stopped everything it did.
    Failed {
        /// Why.
        problem: Problem,
        /// Whether another attempt may succeed and cannot destroy anything.
        retryable: bool,
    },
}

/// Which worker it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerReady {
    /// Its protocol revision.
    pub protocol: u32,
    /// Its version.
    pub software: String,
}
