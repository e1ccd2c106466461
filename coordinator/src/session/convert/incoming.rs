//! From the agent.

use std::net::IpAddr;

use jiff::Timestamp;
use landfall_api::{Digest, DiskId, DiskReceipt, ErrorCode, MachineFacts, Problem, Progress, Receipt, ReceiptState};
use landfall_proto::v1;
use uuid::Uuid;

use super::ConvertError;
use crate::{
    engine::{EnrollRequest, Hello, Identity, LogRecord, Proof, RunningAction},
    tls::MachineCert,
    workflow::{ActionResult, EventBody, EventRecord},
};

/// The largest boot id taken: the kernel's is 36 characters.
const MAX_BOOT_ID: usize = 64;

/// The largest facts taken, bytes: a machine of a hundred disks has a third of it.
const MAX_FACTS: usize = 256 << 10;

/// The longest log line taken, bytes; the rest is cut.
const MAX_LOG_LINE: usize = 4096;

/// The longest of any other text taken, bytes; the rest is cut. Statuses hold it, and a document has a bound.
const MAX_TEXT: usize = 4096;
/// The longest word taken where one is expected: a level, a stage, a version, a name.
const MAX_WORD: usize = 256;
/// Causes of one failure.
const MAX_CAUSES: usize = 32;
/// Log lines with one failure; the newest count.
const MAX_LAST_LINES: usize = 50;
/// What a failure's parts may take as JSON, bytes; in all 32 KiB. It is kept in the log, and twice in its run's status.
const MESSAGE_ROOM: usize = 8 << 10;
const HINT_ROOM: usize = 2 << 10;
const CAUSES_ROOM: usize = 10 << 10;
const LINES_ROOM: usize = 10 << 10;
/// Disks and receipts of one machine; a status holds them all.
const MAX_DISKS: usize = 512;
/// Ports of one machine.
const MAX_MACS: usize = 256;

fn cut(mut text: String, most: usize) -> String {
    if let Some(end) = (0..=most.min(text.len())).rev().find(|n| text.is_char_boundary(*n)) {
        text.truncate(end);
    }
    text
}

/// Bytes that a character takes in JSON.
const fn encoded(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

/// A text within `most` bytes, and as JSON within what is `left` of a larger whole, which it takes its part of.
fn part(text: String, most: usize, left: &mut usize) -> String {
    let mut text = cut(text, most);
    let mut end = text.len();
    for (at, c) in text.char_indices() {
        let Some(rest) = left.checked_sub(encoded(c)) else {
            end = at;
            break;
        };
        *left = rest;
    }
    text.truncate(end);
    // The quotes and the comma around it.
    *left = left.saturating_sub(3);
    text
}

fn at_most<T>(field: &'static str, list: &[T], most: usize) -> Result<(), ConvertError> {
    if list.len() > most {
        return Err(ConvertError::new(field, format!("there are {} of them; the limit is {most}", list.len())));
    }
    Ok(())
}

fn uuid(field: &'static str, text: &str) -> Result<Uuid, ConvertError> {
    text.parse().map_err(|error| ConvertError::new(field, error))
}

fn timestamp(field: &'static str, wire: Option<prost_types::Timestamp>) -> Result<Timestamp, ConvertError> {
    let wire = wire.ok_or_else(|| ConvertError::missing(field))?;
    Timestamp::new(wire.seconds, wire.nanos).map_err(|error| ConvertError::new(field, error))
}

fn boot_id(text: String) -> Result<String, ConvertError> {
    if (1..=MAX_BOOT_ID).contains(&text.len()) { Ok(text) } else { Err(ConvertError::missing("boot_id")) }
}

fn identity(wire: Option<v1::Identity>) -> Result<Identity, ConvertError> {
    let wire = wire.ok_or_else(|| ConvertError::missing("identity"))?;
    at_most("identity.macs", &wire.macs, MAX_MACS)?;
    if wire.serial.len() > MAX_WORD {
        return Err(ConvertError::new("identity.serial", "it is too long"));
    }
    Ok(Identity {
        smbios_uuid: match wire.smbios_uuid.as_str() {
            "" => None,
            // Fillers are no identity, whatever the agent takes them for.
            text => uuid("identity.smbios_uuid", text).map(|_| landfall_api::smbios_uuid(text))?,
        },
        serial: landfall_api::smbios_text(&wire.serial),
        macs: wire
            .macs
            .iter()
            .map(|text| text.parse().map_err(|error| ConvertError::new("identity.macs", error)))
            .collect::<Result<_, _>>()?,
    })
}

/// What the connection says of who asks.
#[derive(Debug, Default)]
pub(crate) struct Asker {
    /// Where it asks from.
    pub(crate) address: Option<IpAddr>,
    /// The machine's certificate that it showed.
    pub(crate) shown: Option<MachineCert>,
}

/// An Enroll request.
///
/// # Errors
/// [`ConvertError`] naming the field; a proof of a kind that is not taken here is one.
pub(crate) fn enroll(wire: v1::EnrollRequest, peer: Asker) -> Result<EnrollRequest, ConvertError> {
    use v1::enroll_request::Proof as Wire;
    let proof = match wire.proof {
        Some(Wire::BootToken(token)) => Proof::BootToken(token.token),
        Some(Wire::Approval(approval)) => Proof::Approval(approval.fingerprint),
        Some(Wire::Renewal(v1::Renewal {})) => Proof::Renewal,
        Some(Wire::Tpm(_)) => {
            return Err(ConvertError::new(
                "proof",
                "this coordinator accepts only boot tokens, approvals and renewals",
            ));
        }
        None => return Err(ConvertError::missing("proof")),
    };
    if wire.csr_der.is_empty() {
        return Err(ConvertError::missing("csr_der"));
    }
    Ok(EnrollRequest {
        identity: identity(wire.identity)?,
        boot_id: boot_id(wire.boot_id)?,
        csr_der: wire.csr_der,
        proof,
        facts: match wire.facts_json.as_str() {
            "" => None,
            json => Some(Box::new(bounded_facts("facts_json", json)?)),
        },
        address: peer.address,
        shown: peer.shown,
    })
}

fn disk_id(wire: v1::DiskId) -> DiskId {
    DiskId {
        wwn: cut(wire.wwn, MAX_WORD),
        serial: cut(wire.serial, MAX_WORD),
        path: cut(wire.path, MAX_WORD),
        name: cut(wire.name, MAX_WORD),
        model: cut(wire.model, MAX_WORD),
        size_bytes: wire.size_bytes,
    }
}

fn disk_receipt(wire: v1::DiskReceipt) -> Result<DiskReceipt, ConvertError> {
    let disk = wire.disk.ok_or_else(|| ConvertError::missing("receipt.disk"))?;
    let wire = wire.receipt.ok_or_else(|| ConvertError::missing("receipt"))?;
    let state = match wire.state() {
        v1::ReceiptState::Intent => ReceiptState::Intent,
        v1::ReceiptState::Done => ReceiptState::Done,
        v1::ReceiptState::Unspecified => return Err(ConvertError::missing("receipt.state")),
    };
    let image_digest = match wire.image_digest.as_str() {
        "" => None,
        text => Some(text.parse::<Digest>().map_err(|error| ConvertError::new("receipt.image_digest", error))?),
    };
    Ok(DiskReceipt {
        disk: disk_id(disk),
        receipt: Receipt {
            machine_uid: uuid("receipt.machine_uid", &wire.machine_uid)?,
            workflow_uid: uuid("receipt.workflow_uid", &wire.workflow_uid)?,
            workflow_name: cut(wire.workflow_name, MAX_WORD),
            generation: wire.generation,
            action_index: wire.action_index,
            image_digest,
            state,
            written_at: timestamp("receipt.written_at", wire.written_at)?,
        },
    })
}

/// The first message of a session; `address` is where it came from.
///
/// # Errors
/// [`ConvertError`] naming the field.
pub(crate) fn hello(wire: v1::Hello, address: String) -> Result<Hello, ConvertError> {
    at_most("disks", &wire.disks, MAX_DISKS)?;
    at_most("receipts", &wire.receipts, MAX_DISKS)?;
    let running = wire
        .running
        .map(|wire| {
            Ok::<_, ConvertError>(RunningAction {
                workflow_uid: uuid("running.workflow_uid", &wire.workflow_uid)?,
                action_index: wire.action_index,
                attempt: wire.attempt,
            })
        })
        .transpose()?;
    let holds = match wire.holds.as_str() {
        "" => None,
        text => Some(uuid("holds", text)?),
    };
    let versions = wire.versions.unwrap_or_default();
    Ok(Hello {
        software: cut(versions.software, MAX_WORD),
        protocol: versions.protocol,
        holds,
        address,
        identity: identity(wire.identity)?,
        boot_id: boot_id(wire.boot_id)?,
        disks: wire.disks.into_iter().map(disk_id).collect(),
        receipts: wire.receipts.into_iter().map(disk_receipt).collect::<Result<_, _>>()?,
        last_epoch: wire.last_epoch,
        running,
        enrolled_boottime_ms: wire.enrolled_boottime_ms,
    })
}

/// Facts, as the agent's JSON.
///
/// # Errors
/// [`ConvertError`] if they are not landfall-api's `MachineFacts`.
pub(crate) fn facts(wire: &v1::Facts) -> Result<MachineFacts, ConvertError> {
    bounded_facts("facts", &wire.json)
}

fn bounded_facts(field: &'static str, json: &str) -> Result<MachineFacts, ConvertError> {
    let too_large = || ConvertError::new(field, "facts must be smaller");
    if json.len() > MAX_FACTS {
        return Err(too_large());
    }
    let facts: MachineFacts = serde_json::from_str(json).map_err(|error| ConvertError::new(field, error))?;
    // What is left out costs nothing on the wire, and has its place in the status.
    let kept = serde_json::to_string(&facts).map_err(|error| ConvertError::new(field, error))?;
    if kept.len() > MAX_FACTS { Err(too_large()) } else { Ok(facts) }
}

/// Within 32 KiB as it is kept; of the log's lines as many of the newest as fit.
fn problem(wire: v1::Problem) -> Problem {
    let within = |text, mut room| part(text, MAX_TEXT, &mut room);
    let (mut for_causes, mut for_lines) = (CAUSES_ROOM, LINES_ROOM);
    let causes = wire.causes.into_iter().take(MAX_CAUSES).map(|cause| part(cause, MAX_TEXT, &mut for_causes));
    let causes = causes.filter(|cause| !cause.is_empty()).collect();
    let newest = wire.last_log_lines.into_iter().rev().take(MAX_LAST_LINES);
    let newest = newest.map(|line| part(line, MAX_LOG_LINE, &mut for_lines));
    let mut last_log_lines: Vec<_> = newest.filter(|line| !line.is_empty()).collect();
    last_log_lines.reverse();
    Problem {
        code: ErrorCode::from_wire(&wire.code),
        message: within(wire.message, MESSAGE_ROOM),
        causes,
        hint: within(wire.hint, HINT_ROOM),
        subject: within(wire.subject, HINT_ROOM),
        last_log_lines,
    }
}

/// One numbered event.
///
/// # Errors
/// [`ConvertError`] naming the field; numbers that count from 1 and are 0 are one.
pub(crate) fn event(wire: v1::Event) -> Result<EventRecord, ConvertError> {
    use v1::event::Event as Wire;
    if wire.attempt == 0 {
        return Err(ConvertError::new("event.attempt", "attempts count from 1"));
    }
    if wire.seq == 0 {
        return Err(ConvertError::new("event.seq", "events count from 1"));
    }
    let body = match wire.event.ok_or_else(|| ConvertError::missing("event.event"))? {
        Wire::Started(v1::ActionStarted {}) => EventBody::Started,
        Wire::Finished(finished) => EventBody::Finished { result: result(finished)? },
        Wire::Failed(failed) => EventBody::Failed {
            problem: problem(failed.problem.ok_or_else(|| ConvertError::missing("event.failed.problem"))?),
            retryable: failed.retryable,
        },
        Wire::ReceiptWritten(receipt) => EventBody::ReceiptWritten { receipt: disk_receipt(receipt)? },
    };
    Ok(EventRecord {
        workflow_uid: uuid("event.workflow_uid", &wire.workflow_uid)?,
        action_index: wire.action_index,
        attempt: wire.attempt,
        seq: wire.seq,
        time: timestamp("event.time", wire.time)?,
        body,
    })
}

fn result(wire: v1::ActionFinished) -> Result<ActionResult, ConvertError> {
    use v1::action_finished::Result as Wire;
    Ok(match wire.result.ok_or_else(|| ConvertError::missing("event.finished.result"))? {
        Wire::WriteImage(wire) => ActionResult::WriteImage {
            receipt: wire.receipt.map(disk_receipt).transpose()?,
            written: wire.written,
            stored_bytes: wire.stored_bytes,
            raw_bytes: wire.raw_bytes,
            written_bytes: wire.written_bytes,
            elapsed_ms: wire.elapsed.map_or(0, |elapsed| {
                let ms = elapsed.seconds.saturating_mul(1000).saturating_add(i64::from(elapsed.nanos / 1_000_000));
                u64::try_from(ms).unwrap_or(0)
            }),
        },
        Wire::ClearDisks(wire) => {
            at_most("event.finished.disks", &wire.disks, MAX_DISKS)?;
            ActionResult::ClearDisks { disks: wire.disks.into_iter().map(disk_id).collect() }
        }
        Wire::CloudInit(wire) => ActionResult::CloudInit { root_device: cut(wire.root_device, MAX_WORD) },
        Wire::Reboot(v1::RebootResult {}) => ActionResult::Reboot,
        Wire::Hold(v1::HoldResult {}) => ActionResult::Hold,
        Wire::PowerOff(v1::PowerOffResult {}) => ActionResult::PowerOff,
        Wire::Kexec(wire) => ActionResult::Kexec {
            root_device: cut(wire.root_device, MAX_WORD),
            kernel: cut(wire.kernel, MAX_TEXT),
            initramfs: cut(wire.initramfs, MAX_TEXT),
            cmdline: cut(wire.cmdline, MAX_TEXT),
        },
    })
}

/// One message of the telemetry stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Telemetry {
    /// How far the attempt got.
    Progress {
        /// The run.
        workflow_uid: Uuid,
        /// The action.
        action_index: u32,
        /// The attempt.
        attempt: u32,
        /// The counters.
        progress: Progress,
    },
    /// A log line.
    Log {
        /// The run.
        workflow_uid: Uuid,
        /// The line.
        record: LogRecord,
    },
}

/// One message of the telemetry stream. A log line of more than 4096 bytes is cut.
///
/// # Errors
/// [`ConvertError`] naming the field.
pub(crate) fn telemetry(wire: v1::TelemetryRequest) -> Result<Telemetry, ConvertError> {
    use v1::telemetry_request::Item;
    let workflow_uid = uuid("telemetry.workflow_uid", &wire.workflow_uid)?;
    let (action_index, attempt) = (wire.action_index, wire.attempt);
    Ok(match wire.item.ok_or_else(|| ConvertError::missing("telemetry.item"))? {
        Item::Progress(wire) => Telemetry::Progress {
            workflow_uid,
            action_index,
            attempt,
            progress: Progress {
                stored_bytes: wire.stored_bytes,
                stored_total: wire.stored_total,
                raw_bytes: wire.raw_bytes,
                raw_total: wire.raw_total,
                written_bytes: wire.written_bytes,
                bytes_per_second: wire.bytes_per_second,
                stage: cut(wire.stage, MAX_WORD),
                eta_seconds: wire.eta_seconds,
                slowest: cut(wire.slowest, MAX_WORD),
            },
        },
        Item::Log(wire) => {
            let message = cut(wire.message, MAX_LOG_LINE);
            let time = timestamp("telemetry.log.time", wire.time)?;
            Telemetry::Log {
                workflow_uid,
                record: LogRecord { time, level: cut(wire.level, MAX_WORD), action_index, attempt, message },
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire_event() -> v1::Event {
        v1::Event {
            workflow_uid: Uuid::from_u128(1).to_string(),
            action_index: 0,
            attempt: 1,
            seq: 1,
            time: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
            event: Some(v1::event::Event::Started(v1::ActionStarted {})),
        }
    }

    #[test]
    fn an_invalid_event_is_refused_by_its_field() {
        assert_eq!(event(wire_event()).unwrap().body, EventBody::Started);
        type Spoil = fn(&mut v1::Event);
        let cases: [(&str, Spoil); 6] = [
            ("event.attempt", |e| e.attempt = 0),
            ("event.seq", |e| e.seq = 0),
            ("event.time", |e| e.time = None),
            ("event.workflow_uid", |e| e.workflow_uid = "x".into()),
            ("event.event", |e| e.event = None),
            ("event.finished.result", |e| {
                e.event = Some(v1::event::Event::Finished(v1::ActionFinished { result: None }))
            }),
        ];
        for (field, spoil) in cases {
            let mut wire = wire_event();
            spoil(&mut wire);
            let problem = Problem::from(event(wire).unwrap_err());
            assert_eq!((problem.subject.as_str(), problem.code), (field, ErrorCode::VersionSkew));
        }
    }

    #[test]
    fn what_was_loaded_arrives_within_bounds() {
        let told = |cmdline: String| {
            let loaded = v1::KexecResult {
                root_device: "/dev/vda3".into(),
                kernel: "/boot/vmlinuz".into(),
                initramfs: "/boot/initrd.img".into(),
                cmdline,
            };
            let result = v1::ActionFinished { result: Some(v1::action_finished::Result::Kexec(loaded)) };
            let wire = v1::Event { event: Some(v1::event::Event::Finished(result)), ..wire_event() };
            match event(wire).unwrap().body {
                EventBody::Finished { result: ActionResult::Kexec { root_device, kernel, initramfs, cmdline } } => {
                    assert_eq!([root_device, kernel, initramfs], ["/dev/vda3", "/boot/vmlinuz", "/boot/initrd.img"]);
                    cmdline
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(told("root=/dev/vda3 ro".into()), "root=/dev/vda3 ro");
        assert_eq!(told("x".repeat(1 << 18)).len(), MAX_TEXT);
    }

    #[test]
    fn a_failure_is_bounded_and_keeps_its_newest_lines() {
        let wire = v1::Problem {
            message: "é".repeat(1 << 18),
            causes: vec!["c".repeat(MAX_TEXT + 1); 1000],
            last_log_lines: (0..1000).map(|n| n.to_string()).collect(),
            ..v1::Problem::default()
        };
        let problem = problem(wire);
        assert_eq!((problem.message.len(), problem.causes.len()), (MAX_TEXT, 3));
        assert!(problem.causes.iter().all(|cause| cause.len() <= MAX_TEXT));
        assert_eq!(problem.last_log_lines.len(), MAX_LAST_LINES);
        assert_eq!(problem.last_log_lines.last().map(String::as_str), Some("999"));
    }

    #[test]
    fn a_stored_failure_is_bounded_for_any_content() {
        for c in ['x', 'é', '"', '\n', '\0', '\u{1b}', '\u{7f}', '\u{2028}', '𝄞'] {
            let long = c.to_string().repeat(MAX_TEXT);
            assert_eq!(serde_json::to_string(&c.to_string()).unwrap().len() - 2, encoded(c), "{c:?}");
            let wire = v1::Problem {
                code: "DeviceIo".into(),
                message: long.clone(),
                causes: vec![long.clone(); MAX_CAUSES],
                hint: long.clone(),
                subject: long.clone(),
                last_log_lines: vec![long; MAX_LAST_LINES],
            };
            let problem = problem(wire);
            let bytes = serde_json::to_string(&problem).unwrap().len();
            assert!(bytes <= (32 << 10) + 256, "{bytes} bytes of {c:?}");
            assert!(!problem.message.is_empty() && !problem.causes.is_empty(), "{c:?}");
        }
    }

    #[test]
    fn received_and_stored_facts_are_bounded() {
        let json = serde_json::to_string(&MachineFacts::default()).unwrap();
        assert!(facts(&v1::Facts { json: json.clone() }).is_ok());
        let long = v1::Facts { json: format!("{json}{}", " ".repeat(MAX_FACTS)) };
        assert!(facts(&long).unwrap_err().to_string().contains("smaller"));
    }

    #[test]
    fn a_machine_with_too_many_disks_is_refused_by_field() {
        let wire = v1::Hello {
            identity: Some(v1::Identity::default()),
            boot_id: "b".into(),
            disks: vec![v1::DiskId::default(); MAX_DISKS + 1],
            ..v1::Hello::default()
        };
        assert!(hello(wire.clone(), String::new()).unwrap_err().to_string().contains("disks"));
        let fewer = v1::Hello { disks: vec![v1::DiskId::default(); MAX_DISKS], ..wire };
        assert_eq!(hello(fewer, String::new()).unwrap().disks.len(), MAX_DISKS);
    }

    #[test]
    fn a_long_log_line_is_cut_at_a_character() {
        let wire = v1::TelemetryRequest {
            workflow_uid: Uuid::from_u128(1).to_string(),
            action_index: 0,
            attempt: 1,
            item: Some(v1::telemetry_request::Item::Log(v1::LogLine {
                time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
                level: "info".into(),
                message: "é".repeat(MAX_LOG_LINE),
            })),
        };
        let Telemetry::Log { record, .. } = telemetry(wire).unwrap() else { panic!() };
        assert_eq!(record.message.len(), MAX_LOG_LINE);
    }

    #[test]
    fn an_unsupported_proof_is_refused_by_name() {
        let wire = v1::EnrollRequest {
            identity: Some(v1::Identity::default()),
            boot_id: "b".into(),
            csr_der: vec![1],
            proof: Some(v1::enroll_request::Proof::Tpm(v1::TpmQuote::default())),
            ..v1::EnrollRequest::default()
        };
        assert!(enroll(wire, Asker::default()).unwrap_err().to_string().contains("proof"));
    }
}
