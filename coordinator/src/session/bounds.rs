//! What an agent may say is bounded here, in a pass over each message after it was converted: one function a message. Texts
//! are cut, since statuses hold them and a document has a bound; lists that are longer than any machine's are refused.

use landfall_api::message::{
    ActionResult, DiskReport, EnrollRequest, EventBody, EventRecord, Hello, Identity, Part, Telemetry, ToCoordinator,
    UnreadableDisk,
};
use landfall_api::{
    DiskContents, DiskId, DiskReceipt, HealthReport, MAX_PARTITIONS, MAX_VOLUMES, MachineFacts, Problem, VolumeFacts,
    WipeReport, smbios_text, smbios_uuid,
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
pub(super) fn to_coordinator(mut message: ToCoordinator) -> Result<ToCoordinator, ConvertError> {
    match &mut message {
        ToCoordinator::Hello(said) => hello(said)?,
        ToCoordinator::Disks(said) => disks(said)?,
        ToCoordinator::Facts(said) => facts("facts", said)?,
        ToCoordinator::Event(said) => event(said)?,
        ToCoordinator::Checked { list_uid: _, problem: Some(said) } => problem(said),
        ToCoordinator::Checked { .. } | ToCoordinator::Heartbeat(_) | ToCoordinator::FenceAck { .. } => {}
    }
    Ok(message)
}

/// An Enroll request.
///
/// # Errors
/// [`ConvertError`], as [`to_coordinator`].
pub(super) fn enroll(mut said: EnrollRequest) -> Result<EnrollRequest, ConvertError> {
    cut(&mut said.software, MAX_WORD);
    identity(&mut said.identity)?;
    boot_id(&said.boot_id)?;
    said.facts.as_mut().map_or(Ok(()), |said| facts("enroll.facts_json", said))?;
    Ok(said)
}

/// One message of the telemetry stream. A log line of more than 4096 bytes is cut.
pub(super) fn telemetry(mut said: Telemetry) -> Telemetry {
    match &mut said {
        Telemetry::Progress { action: _, progress } => {
            cut(&mut progress.stage, MAX_WORD);
            cut(&mut progress.slowest, MAX_WORD);
        }
        Telemetry::Log { workflow_uid: _, line } => cut(&mut line.message, MAX_LOG_LINE),
    }
    said
}

fn hello(said: &mut Hello) -> Result<(), ConvertError> {
    at_most("hello.disks", &said.disks, MAX_DISKS)?;
    at_most("hello.receipts", &said.receipts, MAX_DISKS)?;
    cut(&mut said.software, MAX_WORD);
    identity(&mut said.identity)?;
    boot_id(&said.boot_id)?;
    said.disks.iter_mut().for_each(disk_id);
    said.receipts.iter_mut().for_each(disk_receipt);
    unreadable("hello.unreadable", &mut said.unreadable)
}

fn disks(
    DiskReport { generation: _, disks, receipts, unreadable: silent }: &mut DiskReport,
) -> Result<(), ConvertError> {
    at_most("disk_report.disks", disks, MAX_DISKS)?;
    at_most("disk_report.receipts", receipts, MAX_DISKS)?;
    disks.iter_mut().for_each(disk_id);
    receipts.iter_mut().for_each(disk_receipt);
    unreadable("disk_report.unreadable", silent)
}

/// A condition names them all, so that their reasons are cut to words.
fn unreadable(field: &'static str, said: &mut [UnreadableDisk]) -> Result<(), ConvertError> {
    at_most(field, said, MAX_DISKS)?;
    for UnreadableDisk { disk, reason } in said {
        disk_id(disk);
        cut(reason, MAX_WORD);
    }
    Ok(())
}

/// What is left out of the JSON costs nothing on the wire, and has its place in the status. Characters that a template
/// could not be rendered with are removed from every text: an earlier owner of a disk chose its names and labels.
fn facts(field: &'static str, said: &mut Box<MachineFacts>) -> Result<(), ConvertError> {
    said.disks.iter_mut().filter_map(|disk| disk.contents.as_mut()).for_each(contents);
    let kept = serde_json::to_string(said).map_err(|error| ConvertError::new(field, error))?;
    if kept.len() > MAX_FACTS_JSON {
        let what = format!("they take {} bytes, and facts are smaller than {MAX_FACTS_JSON}", kept.len());
        return Err(ConvertError::new(field, what));
    }
    let clean = without_placeholders(kept.clone());
    if clean != kept {
        // None of them is part of JSON itself, so what is left is the same facts with shorter texts.
        *said = serde_json::from_str(&clean).map_err(|error| ConvertError::new(field, error))?;
    }
    Ok(())
}

fn contents(said: &mut DiskContents) {
    let volumes = |said: &mut Vec<VolumeFacts>| {
        said.truncate(MAX_VOLUMES);
        for VolumeFacts { kind, label } in said {
            cut(kind, MAX_WORD);
            cut(label, MAX_WORD);
        }
    };
    cut(&mut said.table, MAX_WORD);
    volumes(&mut said.volumes);
    said.partitions.truncate(MAX_PARTITIONS);
    for one in &mut said.partitions {
        cut(&mut one.name, MAX_WORD);
        volumes(&mut one.volumes);
    }
}

fn event(said: &mut EventRecord) -> Result<(), ConvertError> {
    match &mut said.body {
        EventBody::Started | EventBody::Skipped => {}
        EventBody::Finished { result: yielded } => result(yielded)?,
        EventBody::Failed { problem: why, retryable: _ } => problem(why),
        EventBody::ReceiptWritten { receipt } => disk_receipt(receipt),
        EventBody::DiskWiped { report } => wipe_report(report),
        EventBody::HealthTested { report } => health_report(report),
    }
    Ok(())
}

fn result(said: &mut ActionResult) -> Result<(), ConvertError> {
    for part in said.parts() {
        match part {
            Part::Word(word) => cut(word, MAX_WORD),
            Part::Text(text) => cut(text, MAX_TEXT),
            Part::Disks(disks) => {
                at_most("event.finished.disks", disks, MAX_DISKS)?;
                disks.iter_mut().for_each(disk_id);
            }
            Part::Receipt(receipt) => disk_receipt(receipt),
        }
    }
    Ok(())
}

fn wipe_report(said: &mut WipeReport) {
    disk_id(&mut said.disk);
    cut(&mut said.method, MAX_WORD);
    words(&mut said.limits, MAX_LIMITS);
    // Which workflow it was is not the agent's to say.
    said.workflow.clear();
}

fn health_report(said: &mut HealthReport) {
    cut(&mut said.part, MAX_WORD);
    said.disk.iter_mut().for_each(disk_id);
    words(&mut said.faults, MAX_FAULTS);
    said.workflow.clear();
}

/// Fillers are no identity, whatever the agent takes them for.
fn identity(Identity { smbios_uuid: uuid, serial, macs }: &mut Identity) -> Result<(), ConvertError> {
    at_most("identity.macs", macs, MAX_MACS)?;
    if serial.len() > MAX_WORD {
        return Err(ConvertError::new("identity.serial", "it is longer than any machine's"));
    }
    *uuid = uuid.and_then(|uuid| smbios_uuid(&uuid.to_string()));
    *serial = smbios_text(serial);
    Ok(())
}

fn boot_id(said: &str) -> Result<(), ConvertError> {
    if said.len() <= MAX_BOOT_ID {
        return Ok(());
    }
    Err(ConvertError::new("boot_id", format!("it has {} bytes, and at most {MAX_BOOT_ID} are taken", said.len())))
}

fn disk_receipt(DiskReceipt { disk, receipt }: &mut DiskReceipt) {
    cut(&mut receipt.workflow_name, MAX_WORD);
    disk_id(disk);
}

fn disk_id(DiskId { wwn, serial, path, name, model, size_bytes: _ }: &mut DiskId) {
    for text in [wwn, serial, path, name, model] {
        cut(text, MAX_WORD);
    }
}

/// Within 32 KiB as it is kept; of the log's lines as many of the newest as fit.
fn problem(Problem { code: _, message, causes, hint, subject, last_log_lines }: &mut Problem) {
    for (text, mut room) in [(message, MESSAGE_ROOM), (hint, HINT_ROOM), (subject, HINT_ROOM)] {
        part(text, MAX_TEXT, &mut room);
    }
    let (mut for_causes, mut for_lines) = (CAUSES_ROOM, LINES_ROOM);
    causes.truncate(MAX_CAUSES);
    causes.iter_mut().for_each(|cause| part(cause, MAX_TEXT, &mut for_causes));
    causes.retain(|cause| !cause.is_empty());
    last_log_lines.drain(..last_log_lines.len().saturating_sub(MAX_LAST_LINES));
    last_log_lines.iter_mut().rev().for_each(|line| part(line, MAX_LOG_LINE, &mut for_lines));
    last_log_lines.retain(|line| !line.is_empty());
}

fn words(said: &mut Vec<String>, most: usize) {
    said.truncate(most);
    said.iter_mut().for_each(|word| cut(word, MAX_WORD));
}

fn cut(text: &mut String, most: usize) {
    if let Some(end) = (0..=most.min(text.len())).rev().find(|n| text.is_char_boundary(*n)) {
        text.truncate(end);
    }
}

/// Bytes that a character takes in JSON.
const fn encoded(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

/// Cuts a text to `most` bytes, and as JSON to what is `left` of a larger whole, which it takes its part of.
fn part(text: &mut String, most: usize, left: &mut usize) {
    cut(text, most);
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
    use landfall_api::message::{ActionRef, KexecResult, LogLevel, LogLine};
    use landfall_api::{DiskFacts, ErrorCode, PartitionFacts};
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
            let mut record = EventRecord::of(action, 1, Timestamp::UNIX_EPOCH, body);
            event(&mut record).unwrap();
            match record.body {
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
        let mut said = Problem {
            causes: vec!["c".repeat(MAX_TEXT + 1); 1000],
            last_log_lines: (0..1000).map(|n| n.to_string()).collect(),
            ..Problem::new(ErrorCode::Internal, "é".repeat(1 << 18))
        };
        problem(&mut said);
        assert_eq!((said.message.len(), said.causes.len()), (MAX_TEXT, 3));
        assert!(said.causes.iter().all(|cause| cause.len() <= MAX_TEXT));
        assert_eq!(said.last_log_lines.len(), MAX_LAST_LINES);
        assert_eq!(said.last_log_lines.last().map(String::as_str), Some("999"));
    }

    #[test]
    fn every_kept_failure_has_a_bound() {
        for c in ['x', 'é', '"', '\n', '\0', '\u{1b}', '\u{7f}', '\u{2028}', '𝄞'] {
            let long = c.to_string().repeat(MAX_TEXT);
            assert_eq!(serde_json::to_string(&c.to_string()).unwrap().len() - 2, encoded(c), "{c:?}");
            let mut said = Problem {
                code: ErrorCode::DeviceIo,
                message: long.clone(),
                causes: vec![long.clone(); MAX_CAUSES],
                hint: long.clone(),
                subject: long.clone(),
                last_log_lines: vec![long; MAX_LAST_LINES],
            };
            problem(&mut said);
            let bytes = serde_json::to_string(&said).unwrap().len();
            assert!(bytes <= (32 << 10) + 256, "{bytes} bytes of {c:?}");
            assert!(!said.message.is_empty() && !said.causes.is_empty(), "{c:?}");
        }
    }

    #[test]
    fn facts_have_a_bound_as_they_are_kept() {
        let mut long = Box::<MachineFacts>::default();
        assert!(facts("facts", &mut long).is_ok());
        long.smbios.serial = "x".repeat(MAX_FACTS_JSON);
        assert!(facts("facts", &mut long).unwrap_err().to_string().contains("smaller"));
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
        let mut kept = Box::new(MachineFacts { disks: vec![of_one], ..MachineFacts::default() });
        kept.smbios.serial = "\u{fdd0}\\u{fdd1}S".into();
        facts("facts", &mut kept).unwrap();
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
        let mut kept = Box::new(MachineFacts { disks: vec![of_one], ..MachineFacts::default() });
        facts("facts", &mut kept).unwrap();
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
        let mut said = Hello { boot_id: "b".into(), disks: vec![DiskId::default(); MAX_DISKS + 1], ..Hello::default() };
        assert!(hello(&mut said).unwrap_err().field().contains("disks"));
        said.disks.pop();
        hello(&mut said).unwrap();
        assert_eq!(said.disks.len(), MAX_DISKS);
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
