//! What a BMC says of a computer that did not come: how far its firmware got, and the newest entries of its event logs. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::field::{at, text};

/// Entries that are shown.
const MAX_ENTRIES: usize = 3;
/// Characters of an entry that are shown.
const MAX_MESSAGE: usize = 160;
/// A BMC notes what led to a start a moment before it, and its clock is not exact.
const BEFORE: Duration = Duration::from_secs(60);

/// How far the firmware got: by the standard (`BootProgress`, ComputerSystem 1.13), or as HPE's say.
pub(super) fn progress(system: &Value) -> Option<String> {
    let standard = text(system, &["BootProgress", "LastState"]).filter(|state| state != "None");
    let of = |vendor: &str| text(system, &["Oem", vendor, "PostState"]).filter(|state| state != "Unknown");
    let reached = standard.or_else(|| of("Hpe")).or_else(|| of("Hp"))?;
    Some(format!("the firmware reached {reached}"))
}

/// How far the BMC's clock is ahead of ours; nothing where it does not say.
pub(super) fn ahead(manager: &Value, now: Timestamp) -> SignedDuration {
    let shows = text(manager, &["DateTime"]).and_then(|written| written.parse::<Timestamp>().ok());
    shows.map_or(SignedDuration::ZERO, |shows| shows.duration_since(now))
}

/// An entry that says more than that all is well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    created: Timestamp,
    line: String,
}

/// The entries of a log from then on, as our clock has it; those that report nothing wrong are left out.
pub(super) fn entries(log: &Value, since: Timestamp, ahead: SignedDuration) -> Vec<Entry> {
    let all = at(log, &["Members"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|entry| read(entry, ahead)).filter(|entry| entry.created + BEFORE >= since).collect()
}

fn read(entry: &Value, ahead: SignedDuration) -> Option<Entry> {
    let severity = text(entry, &["Severity"]).filter(|severity| !severity.eq_ignore_ascii_case("OK"))?;
    let created: Timestamp = text(entry, &["Created"])?.parse().ok()?;
    let created = created.checked_sub(ahead).ok()?;
    let message: String = text(entry, &["Message"])?.chars().take(MAX_MESSAGE).collect();
    Some(Entry { created, line: format!("{severity}: {message}") })
}

/// The newest of them, oldest first, each once.
pub(super) fn newest(mut entries: Vec<Entry>) -> Vec<String> {
    entries.sort();
    let mut lines: Vec<String> = Vec::new();
    for entry in entries.into_iter().rev() {
        if lines.len() < MAX_ENTRIES && !lines.contains(&entry.line) {
            lines.push(entry.line);
        }
    }
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_progress_is_shown_where_it_says_something() {
        for (system, shown) in [
            (
                json!({"BootProgress": {"LastState": "MemoryInitializationStarted"}}),
                Some("MemoryInitializationStarted"),
            ),
            (json!({"BootProgress": {"LastState": "None"}, "Oem": {"Hpe": {"PostState": "InPost"}}}), Some("InPost")),
            (json!({"Oem": {"Hp": {"PostState": "FinishedPost"}}}), Some("FinishedPost")),
            (json!({"Oem": {"Hpe": {"PostState": "Unknown"}}, "BootProgress": "x"}), None),
            (json!({}), None),
        ] {
            assert_eq!(progress(&system), shown.map(|shown| format!("the firmware reached {shown}")), "{system}");
        }
    }

    #[test]
    fn new_entries_are_shown_by_whatever_clock() {
        let start: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
        let entry = |created: &str, severity: &str, message: &str| json!({"Created": created, "Severity": severity, "Message": message});
        let log = json!({"Members": [
            entry("1970-01-02T00:10:00Z", "Critical", "no memory"),
            entry("1970-01-02T00:10:00+00:00", "Critical", "no memory"),
            entry("1970-01-02T00:09:00Z", "OK", "power on"),
            entry("1970-01-01T23:00:00Z", "Critical", "of an earlier start"),
            entry("1970-01-02T00:08:00Z", "Warning", "fan 3"),
            entry("yesterday", "Critical", "undated"),
            {"Created": 7, "Severity": null}, null, "x",
        ]});
        let ahead = ahead(&json!({"DateTime": "1970-01-02T00:15:00+00:00"}), start + Duration::from_secs(900));
        assert_eq!(newest(entries(&log, start, ahead)), ["Warning: fan 3", "Critical: no memory"]);
        // A BMC that does not say what time it has.
        let unknown = super::ahead(&json!({}), start);
        assert_eq!(newest(entries(&log, start, unknown)), Vec::<String>::new());
        assert!(entries(&json!({"Members": 7}), start, unknown).is_empty());
    }

    #[test]
    fn the_newest_entries_are_few_and_short() {
        let start = Timestamp::UNIX_EPOCH;
        let long = "x".repeat(10_000);
        let members: Vec<_> = (1..=9)
            .map(|n| json!({"Created": format!("1970-01-01T00:00:0{n}Z"), "Severity": "Warning", "Message": format!("{n}{long}")}))
            .collect();
        let lines = newest(entries(&json!({"Members": members}), start, SignedDuration::ZERO));
        assert!(lines.iter().all(|line| line.chars().count() <= MAX_MESSAGE + "Warning: ".len()), "{lines:?}");
        assert_eq!(lines.iter().map(|line| &line[9..10]).collect::<Vec<_>>(), ["7", "8", "9"]);
    }
}
