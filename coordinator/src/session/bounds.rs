//! What an agent may say is bounded here, in a pass over each message after it was converted: one function a message. Texts
//! are cut, since statuses hold them and a document has a bound; lists that are longer than any machine's are refused.

use landfall_api::message::{
    ActionResult, DiskReport, EnrollRequest, EventBody, EventRecord, Hello, Identity, LogLine, Part, Telemetry,
    ToCoordinator, UnreadableDisk,
};
use landfall_api::{
    DiskContents, DiskId, DiskReceipt, HealthReport, MAX_PARTITIONS, MAX_VOLUMES, MachineFacts, PartitionFacts,
    Problem, VolumeFacts, WipeReport, smbios_text, smbios_uuid,
};
use landfall_proto::{ConvertError, convert::MAX_FACTS_JSON};

use crate::workflow::without_placeholders;

/// The largest boot id taken: the kernel's is 36 characters.
const MAX_BOOT_ID: usize = 64;
/// The longest log line taken, bytes; the rest is cut.
const MAX_LOG_LINE: usize = 4096;
/// The longest of any other text taken, bytes; the rest is cut.
const MAX_TEXT: usize = 4096;
/// The longest word taken where one is expected: a stage, a version, a name.
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
/// Reasons in the report of a wiped disk. It is kept in its run's status and in the machine's.
const MAX_LIMITS: usize = 4;
/// Why a part failed its health test: a few places, and what else was counted.
const MAX_FAULTS: usize = 8;
/// Ports of one machine.
const MAX_MACS: usize = 256;

/// Any message of a session.
///
/// # Errors
/// [`ConvertError`] naming the field that is longer than any machine's.
pub(super) fn to_coordinator(message: ToCoordinator) -> Result<ToCoordinator, ConvertError> {
    Ok(match message {
        ToCoordinator::Hello(said) => ToCoordinator::Hello(hello(said)?),
        ToCoordinator::Disks(said) => ToCoordinator::Disks(disks(said)?),
        ToCoordinator::Facts(said) => ToCoordinator::Facts(facts("facts", said)?),
        ToCoordinator::Event(said) => ToCoordinator::Event(event(said)?),
        ToCoordinator::Checked { list_uid, problem: said } => {
            ToCoordinator::Checked { list_uid, problem: said.map(|said| Box::new(problem(*said))) }
        }
        numbers @ (ToCoordinator::Heartbeat(_) | ToCoordinator::FenceAck { .. }) => numbers,
    })
}

/// An Enroll request.
///
/// # Errors
/// [`ConvertError`], as [`to_coordinator`].
pub(super) fn enroll(said: EnrollRequest) -> Result<EnrollRequest, ConvertError> {
    Ok(EnrollRequest {
        software: cut(said.software, MAX_WORD),
        identity: identity(said.identity)?,
        boot_id: boot_id(said.boot_id)?,
        facts: said.facts.map(|said| facts("enroll.facts_json", said)).transpose()?,
        ..said
    })
}

/// One message of the telemetry stream. A log line of more than 4096 bytes is cut.
pub(super) fn telemetry(said: Telemetry) -> Telemetry {
    match said {
        Telemetry::Progress { action, mut progress } => {
            progress.stage = cut(progress.stage, MAX_WORD);
            progress.slowest = cut(progress.slowest, MAX_WORD);
            Telemetry::Progress { action, progress }
        }
        Telemetry::Log { workflow_uid, line } => {
            let message = cut(line.message, MAX_LOG_LINE);
            Telemetry::Log { workflow_uid, line: LogLine { message, ..line } }
        }
    }
}

fn hello(said: Hello) -> Result<Hello, ConvertError> {
    at_most("hello.disks", &said.disks, MAX_DISKS)?;
    at_most("hello.receipts", &said.receipts, MAX_DISKS)?;
    Ok(Hello {
        software: cut(said.software, MAX_WORD),
        identity: identity(said.identity)?,
        boot_id: boot_id(said.boot_id)?,
        disks: said.disks.into_iter().map(disk_id).collect(),
        receipts: said.receipts.into_iter().map(disk_receipt).collect(),
        unreadable: unreadable("hello.unreadable", said.unreadable)?,
        ..said
    })
}

fn disks(said: DiskReport) -> Result<DiskReport, ConvertError> {
    at_most("disk_report.disks", &said.disks, MAX_DISKS)?;
    at_most("disk_report.receipts", &said.receipts, MAX_DISKS)?;
    Ok(DiskReport {
        generation: said.generation,
        disks: said.disks.into_iter().map(disk_id).collect(),
        receipts: said.receipts.into_iter().map(disk_receipt).collect(),
        unreadable: unreadable("disk_report.unreadable", said.unreadable)?,
    })
}

/// A condition names them all, so that their reasons are cut to words.
fn unreadable(field: &'static str, said: Vec<UnreadableDisk>) -> Result<Vec<UnreadableDisk>, ConvertError> {
    at_most(field, &said, MAX_DISKS)?;
    let bounded = |one: UnreadableDisk| UnreadableDisk { disk: disk_id(one.disk), reason: cut(one.reason, MAX_WORD) };
    Ok(said.into_iter().map(bounded).collect())
}

/// What is left out of the JSON costs nothing on the wire, and has its place in the status. Characters that a template
/// could not be rendered with are removed from every text: an earlier owner of a disk chose its names and labels.
fn facts(field: &'static str, mut said: Box<MachineFacts>) -> Result<Box<MachineFacts>, ConvertError> {
    for disk in &mut said.disks {
        disk.contents = disk.contents.take().map(contents);
    }
    let kept = serde_json::to_string(&said).map_err(|error| ConvertError::new(field, error))?;
    if kept.len() > MAX_FACTS_JSON {
        let what = format!("they take {} bytes, and facts are smaller than {MAX_FACTS_JSON}", kept.len());
        return Err(ConvertError::new(field, what));
    }
    let clean = without_placeholders(kept.clone());
    if clean == kept {
        return Ok(said);
    }
    // None of them is part of JSON itself, so what is left is the same facts with shorter texts.
    serde_json::from_str(&clean).map_err(|error| ConvertError::new(field, error))
}

fn contents(said: DiskContents) -> DiskContents {
    let volumes = |said: Vec<VolumeFacts>| {
        let bounded = |one: VolumeFacts| VolumeFacts { kind: cut(one.kind, MAX_WORD), label: cut(one.label, MAX_WORD) };
        said.into_iter().take(MAX_VOLUMES).map(bounded).collect()
    };
    let partition =
        |one: PartitionFacts| PartitionFacts { name: cut(one.name, MAX_WORD), volumes: volumes(one.volumes), ..one };
    DiskContents {
        table: cut(said.table, MAX_WORD),
        volumes: volumes(said.volumes),
        partitions: said.partitions.into_iter().take(MAX_PARTITIONS).map(partition).collect(),
        ..said
    }
}

fn event(said: EventRecord) -> Result<EventRecord, ConvertError> {
    let body = match said.body {
        EventBody::Started => EventBody::Started,
        EventBody::Skipped => EventBody::Skipped,
        EventBody::Finished { result: yielded } => EventBody::Finished { result: result(yielded)? },
        EventBody::Failed { problem: why, retryable } => EventBody::Failed { problem: problem(why), retryable },
        EventBody::ReceiptWritten { receipt } => EventBody::ReceiptWritten { receipt: disk_receipt(receipt) },
        EventBody::DiskWiped { report } => EventBody::DiskWiped { report: wipe_report(report) },
        EventBody::HealthTested { report } => EventBody::HealthTested { report: health_report(report) },
    };
    Ok(EventRecord { body, ..said })
}

fn result(mut said: ActionResult) -> Result<ActionResult, ConvertError> {
    for part in said.parts() {
        match part {
            Part::Word(word) => *word = cut(std::mem::take(word), MAX_WORD),
            Part::Text(text) => *text = cut(std::mem::take(text), MAX_TEXT),
            Part::Disks(disks) => {
                at_most("event.finished.disks", disks, MAX_DISKS)?;
                *disks = std::mem::take(disks).into_iter().map(disk_id).collect();
            }
            Part::Receipt(receipt) => *receipt = disk_receipt(receipt.clone()),
        }
    }
    Ok(said)
}

fn wipe_report(said: WipeReport) -> WipeReport {
    // Which workflow it was is not the agent's to say.
    WipeReport {
        disk: disk_id(said.disk),
        method: cut(said.method, MAX_WORD),
        limits: said.limits.into_iter().take(MAX_LIMITS).map(|limit| cut(limit, MAX_WORD)).collect(),
        workflow: String::new(),
        ..said
    }
}

fn health_report(said: HealthReport) -> HealthReport {
    HealthReport {
        part: cut(said.part, MAX_WORD),
        disk: said.disk.map(disk_id),
        faults: said.faults.into_iter().take(MAX_FAULTS).map(|fault| cut(fault, MAX_WORD)).collect(),
        workflow: String::new(),
        ..said
    }
}

/// Fillers are no identity, whatever the agent takes them for.
fn identity(said: Identity) -> Result<Identity, ConvertError> {
    at_most("identity.macs", &said.macs, MAX_MACS)?;
    if said.serial.len() > MAX_WORD {
        return Err(ConvertError::new("identity.serial", "it is longer than any machine's"));
    }
    Ok(Identity {
        smbios_uuid: said.smbios_uuid.and_then(|uuid| smbios_uuid(&uuid.to_string())),
        serial: smbios_text(&said.serial),
        macs: said.macs,
    })
}

fn boot_id(said: String) -> Result<String, ConvertError> {
    if said.len() <= MAX_BOOT_ID {
        return Ok(said);
    }
    Err(ConvertError::new("boot_id", format!("it has {} bytes, and at most {MAX_BOOT_ID} are taken", said.len())))
}

fn disk_receipt(mut said: DiskReceipt) -> DiskReceipt {
    said.receipt.workflow_name = cut(said.receipt.workflow_name, MAX_WORD);
    DiskReceipt { disk: disk_id(said.disk), receipt: said.receipt }
}

fn disk_id(said: DiskId) -> DiskId {
    DiskId {
        wwn: cut(said.wwn, MAX_WORD),
        serial: cut(said.serial, MAX_WORD),
        path: cut(said.path, MAX_WORD),
        name: cut(said.name, MAX_WORD),
        model: cut(said.model, MAX_WORD),
        size_bytes: said.size_bytes,
    }
}

/// Within 32 KiB as it is kept; of the log's lines as many of the newest as fit.
fn problem(said: Problem) -> Problem {
    let within = |text, mut room| part(text, MAX_TEXT, &mut room);
    let (mut for_causes, mut for_lines) = (CAUSES_ROOM, LINES_ROOM);
    let causes = said.causes.into_iter().take(MAX_CAUSES).map(|cause| part(cause, MAX_TEXT, &mut for_causes));
    let causes = causes.filter(|cause| !cause.is_empty()).collect();
    let newest = said.last_log_lines.into_iter().rev().take(MAX_LAST_LINES);
    let newest = newest.map(|line| part(line, MAX_LOG_LINE, &mut for_lines));
    let mut last_log_lines: Vec<_> = newest.filter(|line| !line.is_empty()).collect();
    last_log_lines.reverse();
    Problem {
        code: said.code,
        message: within(said.message, MESSAGE_ROOM),
        causes,
        hint: within(said.hint, HINT_ROOM),
        subject: within(said.subject, HINT_ROOM),
        last_log_lines,
    }
}

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
    if list.len() <= most {
        return Ok(());
    }
    Err(ConvertError::new(field, format!("there are {} of them, and at most {most} are taken", list.len())))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use landfall_api::message::{ActionRef, KexecResult, LogLevel};
    use landfall_api::{DiskFacts, ErrorCode};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_was_loaded_arrives_within_bounds() {
        let kept = |cmdline: String| {
            let loaded = KexecResult {
                root_device: "/dev/vda3".into(),
                kernel: "/boot/vmlinuz".into(),
                initramfs: "/boot/initrd.img".into(),
                cmdline,
            };
            let action = ActionRef { workflow_uid: Uuid::from_u128(1), action_index: 0, attempt: 1 };
            let body = EventBody::Finished { result: ActionResult::Kexec(loaded) };
            match event(EventRecord::of(action, 1, Timestamp::UNIX_EPOCH, body)).unwrap().body {
                EventBody::Finished { result: ActionResult::Kexec(loaded) } => {
                    let KexecResult { root_device, kernel, initramfs, cmdline } = loaded;
                    assert_eq!([root_device, kernel, initramfs], ["/dev/vda3", "/boot/vmlinuz", "/boot/initrd.img"]);
                    cmdline
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(kept("root=/dev/vda3 ro".into()), "root=/dev/vda3 ro");
        assert_eq!(kept("x".repeat(1 << 18)).len(), MAX_TEXT);
    }

    #[test]
    fn a_failure_is_cut_to_bounds_but_keeps_newest_lines() {
        let said = Problem {
            causes: vec!["c".repeat(MAX_TEXT + 1); 1000],
            last_log_lines: (0..1000).map(|n| n.to_string()).collect(),
            ..Problem::new(ErrorCode::Internal, "é".repeat(1 << 18))
        };
        let problem = problem(said);
        assert_eq!((problem.message.len(), problem.causes.len()), (MAX_TEXT, 3));
        assert!(problem.causes.iter().all(|cause| cause.len() <= MAX_TEXT));
        assert_eq!(problem.last_log_lines.len(), MAX_LAST_LINES);
        assert_eq!(problem.last_log_lines.last().map(String::as_str), Some("999"));
    }

    #[test]
    fn every_kept_failure_has_a_bound() {
        for c in ['x', 'é', '"', '\n', '\0', '\u{1b}', '\u{7f}', '\u{2028}', '𝄞'] {
            let long = c.to_string().repeat(MAX_TEXT);
            assert_eq!(serde_json::to_string(&c.to_string()).unwrap().len() - 2, encoded(c), "{c:?}");
            let said = Problem {
                code: ErrorCode::DeviceIo,
                message: long.clone(),
                causes: vec![long.clone(); MAX_CAUSES],
                hint: long.clone(),
                subject: long.clone(),
                last_log_lines: vec![long; MAX_LAST_LINES],
            };
            let problem = problem(said);
            let bytes = serde_json::to_string(&problem).unwrap().len();
            assert!(bytes <= (32 << 10) + 256, "{bytes} bytes of {c:?}");
            assert!(!problem.message.is_empty() && !problem.causes.is_empty(), "{c:?}");
        }
    }

    #[test]
    fn facts_have_a_bound_as_they_are_kept() {
        let mut long = MachineFacts::default();
        assert!(facts("facts", Box::new(long.clone())).is_ok());
        long.smbios.serial = "x".repeat(MAX_FACTS_JSON);
        assert!(facts("facts", Box::new(long)).unwrap_err().to_string().contains("smaller"));
    }

    #[test]
    fn facts_lose_characters_that_no_template_takes() {
        let label = |label: &str| VolumeFacts { kind: "swap space".into(), label: label.into() };
        let contents = DiskContents {
            seen_at: Timestamp::UNIX_EPOCH,
            table: String::new(),
            volumes: vec![label("a\u{fdd0}b\u{fdd1}c\u{fdd2}\u{fdd3}")],
            partitions: vec![],
            more_partitions: 0,
            unknown_data: false,
        };
        let of_one = DiskFacts { contents: Some(contents), ..DiskFacts::default() };
        let mut said = MachineFacts { disks: vec![of_one], ..MachineFacts::default() };
        said.smbios.serial = "\u{fdd0}\\u{fdd1}S".into();
        let kept = facts("facts", Box::new(said)).unwrap();
        assert_eq!(kept.disks[0].contents.as_ref().unwrap().volumes, [label("abc\u{fdd3}")]);
        assert_eq!(kept.smbios.serial, "\\u{fdd1}S", "text that only looks like one stays");
    }

    #[test]
    fn what_a_disk_carries_is_cut_to_bounds() {
        let volume = VolumeFacts { kind: "k".repeat(1000), label: "l".repeat(1000) };
        let volumes = vec![volume; MAX_VOLUMES + 1];
        let partition = PartitionFacts { name: "n".repeat(1000), ..PartitionFacts::default() };
        let mut partitions = vec![partition; MAX_PARTITIONS + 1];
        partitions[0].volumes.clone_from(&volumes);
        let said = DiskContents {
            seen_at: Timestamp::UNIX_EPOCH,
            table: "t".repeat(1000),
            volumes,
            partitions,
            more_partitions: 0,
            unknown_data: false,
        };
        let of_one = DiskFacts { contents: Some(said), ..DiskFacts::default() };
        let mut kept =
            facts("facts", Box::new(MachineFacts { disks: vec![of_one], ..MachineFacts::default() })).unwrap();
        let kept = kept.disks.remove(0).contents.unwrap();
        assert_eq!(
            (kept.table.len(), kept.volumes.len(), kept.partitions.len()),
            (MAX_WORD, MAX_VOLUMES, MAX_PARTITIONS)
        );
        let first = &kept.partitions[0];
        assert_eq!(
            (first.name.len(), first.volumes.len(), first.volumes[0].label.len()),
            (MAX_WORD, MAX_VOLUMES, MAX_WORD)
        );
        assert_eq!((kept.volumes[0].label.len(), kept.volumes[0].kind.len()), (MAX_WORD, MAX_WORD));
        assert_eq!(first.volumes[0].kind.len(), MAX_WORD);
    }

    #[test]
    fn too_many_disks_are_refused_by_the_field() {
        let said = Hello { boot_id: "b".into(), disks: vec![DiskId::default(); MAX_DISKS + 1], ..Hello::default() };
        assert!(hello(said.clone()).unwrap_err().field().contains("disks"));
        let fewer = Hello { disks: vec![DiskId::default(); MAX_DISKS], ..said };
        assert_eq!(hello(fewer).unwrap().disks.len(), MAX_DISKS);
    }

    #[test]
    fn a_long_log_line_is_cut_at_a_character() {
        let said = Telemetry::Log {
            workflow_uid: Uuid::from_u128(1),
            line: LogLine {
                time: Timestamp::UNIX_EPOCH,
                level: LogLevel::Info,
                action_index: 0,
                attempt: 1,
                message: "é".repeat(MAX_LOG_LINE),
            },
        };
        let Telemetry::Log { line, .. } = telemetry(said) else { panic!() };
        assert_eq!(line.message.len(), MAX_LOG_LINE);
    }
}
