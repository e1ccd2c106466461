//! To the coordinator.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{DiskId, DiskReceipt, Problem, ReceiptState};
use landfall_proto::{PROTOCOL, v1};

use crate::{ActionRef, ActionResult, Event, EventKind, Identity, Vitals, telemetry};

pub(crate) fn versions(software: &str) -> v1::Versions {
    v1::Versions { software: software.to_owned(), protocol: PROTOCOL }
}

pub(crate) fn identity(identity: &Identity) -> v1::Identity {
    v1::Identity {
        smbios_uuid: identity.smbios_uuid.map(|u| u.to_string()).unwrap_or_default(),
        serial: identity.serial.clone(),
        macs: identity.macs.iter().map(ToString::to_string).collect(),
    }
}

pub(crate) fn disk_id(id: &DiskId) -> v1::DiskId {
    v1::DiskId {
        wwn: id.wwn.clone(),
        serial: id.serial.clone(),
        path: id.path.clone(),
        name: id.name.clone(),
        model: id.model.clone(),
        size_bytes: id.size_bytes,
    }
}

pub(crate) fn receipt_to_wire(receipt: &DiskReceipt) -> v1::DiskReceipt {
    let mark = &receipt.receipt;
    v1::DiskReceipt {
        disk: Some(disk_id(&receipt.disk)),
        receipt: Some(v1::Receipt {
            machine_uid: mark.machine_uid.to_string(),
            workflow_uid: mark.workflow_uid.to_string(),
            workflow_name: mark.workflow_name.clone(),
            generation: mark.generation,
            action_index: mark.action_index,
            image_digest: mark.image_digest.map(|d| d.to_string()).unwrap_or_default(),
            state: match mark.state {
                ReceiptState::Intent => v1::ReceiptState::Intent,
                ReceiptState::Done => v1::ReceiptState::Done,
            }
            .into(),
            written_at: Some(timestamp(mark.written_at)),
        }),
    }
}

fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    // The wire counts nanoseconds forward from the second, jiff towards zero.
    let nanos = at.as_nanosecond();
    let seconds = nanos.div_euclid(1_000_000_000);
    let rest = nanos.rem_euclid(1_000_000_000);
    prost_types::Timestamp { seconds: i64::try_from(seconds).unwrap_or(0), nanos: i32::try_from(rest).unwrap_or(0) }
}

fn duration(span: Duration) -> prost_types::Duration {
    // A `Duration` too long for the wire is longer than any machine lives.
    prost_types::Duration::try_from(span).unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 })
}

pub(crate) fn problem_to_wire(problem: Problem) -> v1::Problem {
    v1::Problem {
        code: problem.code.as_str().to_owned(),
        message: problem.message,
        causes: problem.causes,
        hint: problem.hint,
        subject: problem.subject,
        last_log_lines: problem.last_log_lines,
    }
}

pub(crate) fn event_to_wire(event: Event) -> v1::Event {
    use v1::{action_finished::Result as Yield, event::Event as Wire};
    let wire = match event.kind {
        EventKind::Started => Wire::Started(v1::ActionStarted {}),
        EventKind::Failed { problem, retryable } => {
            Wire::Failed(v1::ActionFailed { problem: Some(problem_to_wire(problem)), retryable })
        }
        EventKind::ReceiptWritten(receipt) => Wire::ReceiptWritten(receipt_to_wire(&receipt)),
        EventKind::Finished(result) => Wire::Finished(v1::ActionFinished {
            result: Some(match result {
                ActionResult::WriteImage(result) => Yield::WriteImage(v1::WriteImageResult {
                    receipt: result.receipt.as_ref().map(receipt_to_wire),
                    written: result.written,
                    stored_bytes: result.stored_bytes,
                    raw_bytes: result.raw_bytes,
                    written_bytes: result.written_bytes,
                    elapsed: Some(duration(result.elapsed)),
                }),
                ActionResult::CloudInit { root_device } => Yield::CloudInit(v1::CloudInitResult { root_device }),
                ActionResult::Hold => Yield::Hold(v1::HoldResult {}),
                ActionResult::Reboot => Yield::Reboot(v1::RebootResult {}),
                ActionResult::PowerOff => Yield::PowerOff(v1::PowerOffResult {}),
                ActionResult::ClearDisks { disks } => {
                    Yield::ClearDisks(v1::ClearDisksResult { disks: disks.iter().map(disk_id).collect() })
                }
                ActionResult::Kexec(loaded) => Yield::Kexec(v1::KexecResult {
                    root_device: loaded.root_device,
                    kernel: loaded.kernel,
                    initramfs: loaded.initramfs,
                    cmdline: loaded.cmdline,
                }),
            }),
        }),
    };
    v1::Event {
        workflow_uid: event.action.workflow_uid.to_string(),
        action_index: event.action.action_index,
        attempt: event.action.attempt,
        seq: event.seq,
        time: Some(timestamp(event.time)),
        event: Some(wire),
    }
}

pub(crate) fn heartbeat(vitals: Vitals) -> v1::Heartbeat {
    v1::Heartbeat {
        uptime_ms: u64::try_from(vitals.uptime.as_millis()).unwrap_or(u64::MAX),
        peak_rss_bytes: vitals.peak_rss_bytes,
    }
}

pub(crate) fn telemetry_to_wire(item: telemetry::Item) -> v1::TelemetryRequest {
    use v1::telemetry_request::Item as Wire;
    let envelope = |action: ActionRef, item| v1::TelemetryRequest {
        workflow_uid: action.workflow_uid.to_string(),
        action_index: action.action_index,
        attempt: action.attempt,
        item: Some(item),
    };
    match item {
        telemetry::Item::Progress(action, p) => envelope(
            action,
            Wire::Progress(v1::Progress {
                stored_bytes: p.stored_bytes,
                stored_total: p.stored_total,
                raw_bytes: p.raw_bytes,
                raw_total: p.raw_total,
                bytes_per_second: p.bytes_per_second,
                stage: p.stage,
                written_bytes: p.written_bytes,
                eta_seconds: p.eta_seconds,
                slowest: p.slowest,
            }),
        ),
        telemetry::Item::Log(action, time, level, message) => envelope(
            action,
            Wire::Log(v1::LogLine { time: Some(timestamp(time)), level: level.as_str().to_owned(), message }),
        ),
    }
}
