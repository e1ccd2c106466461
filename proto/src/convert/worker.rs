//! What the agent and the worker of the tools layer say to each other.

use landfall_api::DiskFacts;
use landfall_api::message::{
    Assignment, EventBody, HiddenPoint, LayoutMount, OpenedLayout, Purpose, WorkerJob, WorkerReady, WorkerReport,
};

use super::{ConvertError, Within as _, codec::*};
use crate::worker::report::Report as Wire;
use crate::{v1, worker};

impl TryFrom<worker::Job> for WorkerJob {
    type Error = ConvertError;

    fn try_from(wire: worker::Job) -> Result<Self, ConvertError> {
        let assignment: Assignment = one::from("assignment", wire.assignment)?;
        if assignment.actions.len() != (assignment.start_index as usize).saturating_add(1) {
            return Err(ConvertError::new("assignment.start_index", "it names another action than the last"));
        }
        let disks: Vec<DiskFacts> =
            serde_json::from_str(&wire.disks_json).map_err(|error| ConvertError::new("disks_json", error))?;
        let hidden = list::from("hidden", wire.hidden)?;
        let purpose = match (wire.open, wire.commit) {
            (true, _) => Purpose::Open,
            (_, true) => Purpose::Commit,
            _ => Purpose::Perform { system: wire.system },
        };
        let (silent, uefi, commits) = (wire.silent, wire.uefi, wire.commits);
        Ok(Self { assignment, disks, silent, uefi, hidden, commits, purpose })
    }
}

impl TryFrom<WorkerJob> for worker::Job {
    type Error = ConvertError;

    /// Fails only for facts that do not serialise.
    fn try_from(job: WorkerJob) -> Result<Self, ConvertError> {
        let disks_json = serde_json::to_string(&job.disks).map_err(|error| ConvertError::new("disks_json", error))?;
        let hidden = list::to(job.hidden);
        let (open, commit) = (job.purpose == Purpose::Open, job.purpose == Purpose::Commit);
        let system = match job.purpose {
            Purpose::Perform { system } => system,
            Purpose::Open | Purpose::Commit => Vec::new(),
        };
        let assignment = one::to(job.assignment);
        let (uefi, silent, commits) = (job.uefi, job.silent, job.commits);
        Ok(Self { assignment, disks_json, uefi, hidden, system, open, silent, commits, commit })
    }
}

impl TryFrom<worker::Report> for WorkerReport {
    type Error = ConvertError;

    fn try_from(wire: worker::Report) -> Result<Self, ConvertError> {
        Ok(match wire.report.ok_or_else(|| ConvertError::missing("report"))? {
            Wire::Ready(wire) => Self::Ready(wire.try_into().within("ready")?),
            Wire::Log(line) => Self::Log { level: parsed::from("log.level", line.level)?, message: line.message },
            Wire::Progress(wire) => Self::Progress(wire.try_into()?),
            Wire::ReceiptWritten(wire) => Self::ReceiptWritten(wire.try_into().within("receipt_written")?),
            Wire::Opened(wire) => Self::Opened(wire.try_into().within("opened")?),
            Wire::Finished(wire) => ended(v1::event::Event::Finished(wire))?,
            Wire::Failed(wire) => ended(v1::event::Event::Failed(wire))?,
        })
    }
}

wire! {
    HiddenPoint = worker::HiddenPoint { point, why }
    WorkerReady = worker::Ready { protocol, software: text }
    OpenedLayout = worker::Opened { mounts: mounts, disks }
    LayoutMount = worker::Mount { device: text, at: text, kind: text, uuid, options, read_only }
}

codec! {
    mounts: Vec<worker::Mount> => Vec<LayoutMount>,
        |field, wire| {
            let mounts: Vec<LayoutMount> = list::from(field, wire)?;
            // What follows is mounted below it.
            if mounts.first().is_none_or(|mount| mount.at != "/") {
                return Err(ConvertError::new(field, "the first is not the root"));
            }
            Ok(mounts)
        },
        |mounts| list::to(mounts);
}

/// An action's end has one form for the coordinator and for the agent.
fn ended(wire: v1::event::Event) -> Result<WorkerReport, ConvertError> {
    match wire.try_into()? {
        EventBody::Finished { result } => Ok(WorkerReport::Finished(result)),
        EventBody::Failed { problem, retryable } => Ok(WorkerReport::Failed { problem, retryable }),
        EventBody::Started
        | EventBody::Skipped
        | EventBody::ReceiptWritten { .. }
        | EventBody::DiskWiped { .. }
        | EventBody::HealthTested { .. } => Err(ConvertError::missing("report")),
    }
}

impl From<WorkerReport> for worker::Report {
    fn from(report: WorkerReport) -> Self {
        let report = match report {
            WorkerReport::Ready(ready) => Wire::Ready(ready.into()),
            WorkerReport::Log { level, message } => Wire::Log(worker::LogLine { level: parsed::to(level), message }),
            WorkerReport::Progress(progress) => Wire::Progress(progress.into()),
            WorkerReport::ReceiptWritten(receipt) => Wire::ReceiptWritten(receipt.into()),
            WorkerReport::Opened(layout) => Wire::Opened(layout.into()),
            WorkerReport::Finished(result) => Wire::Finished(v1::ActionFinished { result: Some(result.into()) }),
            WorkerReport::Failed { problem, retryable } => {
                Wire::Failed(v1::ActionFailed { problem: Some(problem.into()), retryable })
            }
        };
        Self { report: Some(report) }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::message::{ActionResult, CloudInitResult, LogLevel};
    use landfall_api::{DiskId, ErrorCode, Problem, Progress};

    use super::*;
    use crate::convert::assignment::tests::wire as assignment;
    use crate::convert::testing::{refused, survives};

    fn job() -> WorkerJob {
        let mut run = assignment();
        run.actions = vec![run.actions[0].clone(), run.actions[0].clone(), run.actions[0].clone()];
        run.actions[2].name = "third".into();
        let disks = vec![DiskFacts {
            id: DiskId { name: "vda".into(), ..DiskId::default() },
            transport: "virtio".into(),
            ..DiskFacts::default()
        }];
        let hidden = vec![HiddenPoint { point: "/tmp".into(), why: "it is in memory".into() }];
        WorkerJob {
            hidden,
            silent: vec!["sdz".into()],
            commits: true,
            ..WorkerJob::new(&run.try_into().unwrap(), 1, 4, disks, true).unwrap()
        }
    }

    #[test]
    fn a_job_survives_the_wire_and_ends_with_its_action() {
        let job = job();
        assert_eq!((job.assignment.actions.len(), job.earlier().len()), (2, 1));
        assert_eq!((job.assignment.start_index, job.assignment.start_attempt), (1, 4));
        survives::<worker::Job, _>(job.clone());
        assert!(WorkerJob::new(&job.assignment, 2, 1, Vec::new(), false).is_none(), "there is no third");
    }

    #[test]
    fn a_job_keeps_no_secrets_of_other_actions() {
        use landfall_api::message::ActionKind;
        use landfall_api::{Digest, ImageAccess, ImageAuthorization, SecretText, StorageSpec, Unpack, UnpackSource};
        let unpack = |token: &str| {
            let access = ImageAccess {
                authorization: Some(ImageAuthorization::Bearer(SecretText::new(token))),
                ..ImageAccess::default()
            };
            let source = UnpackSource::Archive { url: "http://h/a".into(), digest: Digest::from_sha256([1; 32]) };
            ActionKind::Unpack(Unpack { source, access, path: "/".into(), disk: None })
        };
        let mut storage = StorageSpec::default();
        storage.keys.insert("disk".into(), "passphrase".into());
        let mut run = Assignment::try_from(assignment()).unwrap();
        let kinds =
            [unpack("of another"), ActionKind::Storage(storage.resolved()), unpack("own"), unpack("of a later")];
        run.actions = kinds.map(|kind| landfall_api::message::AssignedAction { kind, ..run.actions[0].clone() }).into();
        let job = WorkerJob::new(&run, 2, 1, Vec::new(), true).unwrap();
        assert_eq!(job.secrets(), ["passphrase", "own"]);
        let bytes = prost::Message::encode_to_vec(&worker::Job::try_from(job.clone()).unwrap());
        let sent = String::from_utf8_lossy(&bytes);
        assert!(sent.contains("passphrase") && sent.contains("own") && !sent.contains("of a"), "{sent}");
        // The layout of action 1 is derived from that index.
        assert_eq!(job.earlier().iter().position(|action| matches!(action.kind, ActionKind::Storage(_))), Some(1));
    }

    #[test]
    fn a_containers_job_names_its_secret_variables() {
        use landfall_api::{RunContainerSpec, message::ActionKind};
        let spec = |token: &str| RunContainerSpec {
            env: [("MODE".into(), "fast".into()), ("TOKEN".into(), token.into())].into(),
            ..RunContainerSpec::default()
        };
        let mut run = Assignment::try_from(assignment()).unwrap();
        let sent = spec("geheim").resolved(&spec("{{ secrets.a.b }}")).unwrap();
        run.actions[0].kind = ActionKind::RunContainer(sent);
        assert_eq!(WorkerJob::new(&run, 0, 1, Vec::new(), true).unwrap().secrets(), ["geheim"]);
    }

    #[test]
    fn what_a_worker_is_started_for_survives_the_wire() {
        let perform = Purpose::Perform { system: vec!["vda".into(), "vdb".into()] };
        for purpose in [Purpose::Open, Purpose::Commit, perform] {
            survives::<worker::Job, _>(WorkerJob { purpose, ..job() });
        }
    }

    fn root() -> LayoutMount {
        LayoutMount {
            device: "/dev/vda2".into(),
            at: "/".into(),
            kind: "btrfs".into(),
            uuid: "1234".into(),
            options: "subvol=/@".into(),
            read_only: true,
        }
    }

    #[test]
    fn a_layout_without_a_root_is_refused() {
        let below = LayoutMount { at: "/srv".into(), ..root() };
        for mounts in [vec![], vec![below, root()]] {
            let report = Some(Wire::Opened(OpenedLayout { mounts, disks: Vec::new() }.into()));
            assert_eq!(WorkerReport::try_from(worker::Report { report }).unwrap_err().field(), "opened.mounts");
        }
    }

    #[test]
    fn a_job_in_parts_is_refused_by_its_field() {
        refused::<worker::Job, _>(
            job(),
            &[
                ("assignment", |job| job.assignment = None),
                ("assignment.lease", |job| job.assignment.as_mut().unwrap().lease = None),
                ("assignment.start_index", |job| job.assignment.as_mut().unwrap().start_index = 0),
                ("disks_json", |job| job.disks_json.clear()),
            ],
        );
    }

    #[test]
    fn every_report_survives_the_wire() {
        let problem = Problem::new(ErrorCode::DeviceIo, "m").at("/dev/vda").hint("h");
        for report in [
            WorkerReport::Ready(WorkerReady { protocol: 7, software: "1.2.3".into() }),
            WorkerReport::Log { level: LogLevel::Warn, message: "line".into() },
            WorkerReport::Progress(Progress { raw_bytes: 5, ..Progress::default() }),
            WorkerReport::ReceiptWritten(crate::convert::disk::tests::receipt()),
            WorkerReport::Opened(OpenedLayout { mounts: vec![root()], disks: vec!["vda".into()] }),
            WorkerReport::Finished(ActionResult::CloudInit(CloudInitResult { root_device: "vda1".into() })),
            WorkerReport::Failed { problem, retryable: true },
        ] {
            survives::<worker::Report, _>(report);
        }
    }

    #[test]
    fn a_report_of_an_unknown_kind_is_refused() {
        refused::<worker::Report, _>(
            WorkerReport::Progress(Progress::default()),
            &[
                ("report", |w| w.report = None),
                ("finished.result", |w| w.report = Some(Wire::Finished(v1::ActionFinished { result: None }))),
                ("failed.problem", |w| w.report = Some(Wire::Failed(v1::ActionFailed::default()))),
                ("log.level", |w| {
                    w.report = Some(Wire::Log(worker::LogLine { level: "loud".into(), ..Default::default() }))
                }),
            ],
        );
    }
}
