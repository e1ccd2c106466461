//! What a BMC says of a computer that did not come: how far its firmware got, and the newest entries of its event logs. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::field::{at, links, text};
use crate::log::{Entry, Span};

/// Links of a log that are looked at: more than a BMC keeps.
const MAX_LINKS: usize = 10_000;
/// Links of a log without entries that are followed, at each of its ends: as many as are shown.
const MAX_ENTRIES: usize = 3;
/// Characters of an entry that are shown.
const MAX_MESSAGE: usize = 160;
/// Entries of a long log that are read, the newest.
const LAST: u64 = 20;
/// Logs of logins and of changes to settings, by the last part of their paths (HPE, Dell, Lenovo): they say nothing of a start, and a name
/// in them may be a password that was typed into the wrong field.
const SECURITY: [&str; 6] = ["sl", "lclog", "audit", "security", "access", "login"];

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

/// Whether a log service is of the hardware; of a manager those that say so alone, since most of its logs are of logins.
pub(super) fn is_of_hardware(path: &str, service: &Value, of_manager: bool) -> bool {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let is_security = SECURITY.iter().any(|word| name == *word || word.len() > 2 && name.contains(word));
    !is_security && (!of_manager || text(service, &["LogEntryType"]).is_some_and(|kind| kind == "SEL"))
}

/// Where the end of a log is, if what was read is only its beginning.
pub(super) fn rest(path: &str, log: &Value) -> Option<String> {
    let count = at(log, &["Members@odata.count"]).and_then(Value::as_u64)?;
    at(log, &["Members@odata.nextLink"])?;
    Some(format!("{path}?$skip={}", count.saturating_sub(LAST)))
}

/// The entries of a log in that time, as our clock has it; those that report nothing wrong are left out.
pub(super) fn entries(log: &Value, span: Span) -> Vec<Entry> {
    let all = at(log, &["Members"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|one| entry(one, span)).collect()
}

/// An entry by itself, if it is one of those.
pub(super) fn entry(entry: &Value, span: Span) -> Option<Entry> {
    let severity = text(entry, &["Severity"]).filter(|severity| !severity.eq_ignore_ascii_case("OK"))?;
    let created: Timestamp = text(entry, &["Created"])?.parse().ok()?;
    let message: String = text(entry, &["Message"])?.chars().take(MAX_MESSAGE).collect();
    span.entry(created, format!("{severity}: {message}"))
}

/// The paths of a log's entries where it has links alone: those at both ends, since some begin with the newest.
pub(super) fn linked(log: &Value) -> Vec<String> {
    let all = links(log, &["Members"], MAX_LINKS);
    let has_entries = at(log, &["Members"])
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|one| one.get("Created").is_some()));
    if has_entries {
        return Vec::new();
    }
    let ends = all.iter().take(MAX_ENTRIES).chain(all.iter().skip(MAX_ENTRIES).rev().take(MAX_ENTRIES));
    ends.cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::log::newest;

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
            entry("1971-01-01T00:00:00Z", "Critical", "of a time to come"),
            entry("yesterday", "Critical", "undated"),
            {"Created": 7, "Severity": null}, null, "x",
        ]});
        let now = start + SignedDuration::from_secs(900);
        let span = Span { since: start, now, ahead: ahead(&json!({"DateTime": "1970-01-02T00:15:00+00:00"}), now) };
        assert_eq!(newest(entries(&log, span)), ["Warning: fan 3", "Critical: no memory"]);
        // A BMC that does not say what time it has, and entries of no time at all.
        let unknown = Span { ahead: ahead(&json!({}), now), ..span };
        assert_eq!(newest(entries(&log, unknown)), Vec::<String>::new());
        assert!(entries(&json!({"Members": 7}), unknown).is_empty());
        for far in ["9999-12-30T22:00:00Z", "-009999-01-02T01:59:59Z"] {
            assert_eq!(super::entry(&entry(far, "Critical", "far"), unknown), None, "{far}");
        }
    }

    #[test]
    fn the_newest_entries_are_few_and_short() {
        let start = Timestamp::UNIX_EPOCH;
        let long = "x".repeat(10_000);
        let members: Vec<_> = (1..=9)
            .map(|n| json!({"Created": format!("1970-01-01T00:00:0{n}Z"), "Severity": "Warning", "Message": format!("{n}{long}")}))
            .collect();
        let span = Span { since: start, now: start, ahead: SignedDuration::ZERO };
        let lines = newest(entries(&json!({"Members": members}), span));
        assert!(lines.iter().all(|line| line.chars().count() <= MAX_MESSAGE + "Warning: ".len()), "{lines:?}");
        assert_eq!(lines.iter().map(|line| &line[9..10]).collect::<Vec<_>>(), ["7", "8", "9"]);
    }

    #[test]
    fn logs_of_logins_are_left_out() {
        let sel = json!({"LogEntryType": "SEL"});
        for (path, service, of_manager, is_read) in [
            ("/redfish/v1/Systems/1/LogServices/IML/", json!({}), false, true),
            ("/redfish/v1/Systems/1/LogServices/SL/", json!({}), false, false),
            ("/redfish/v1/Systems/1/LogServices/SEL", sel.clone(), false, true),
            ("/redfish/v1/Systems/1/LogServices/AuditLog", sel.clone(), false, false),
            ("/redfish/v1/Managers/1/LogServices/Sel", sel, true, true),
            ("/redfish/v1/Managers/1/LogServices/IEL", json!({"LogEntryType": "Oem"}), true, false),
            ("/redfish/v1/Managers/1/LogServices/Lclog", json!({"LogEntryType": "SEL"}), true, false),
        ] {
            assert_eq!(is_of_hardware(path, &service, of_manager), is_read, "{path}");
        }
    }

    #[test]
    fn the_newest_of_a_long_log_are_at_an_end() {
        let link = |n: u32| json!({"@odata.id": format!("/e/{n}")});
        let log = json!({"Members": (1..=9).map(link).collect::<Vec<_>>()});
        assert_eq!(linked(&log), ["/e/1", "/e/2", "/e/3", "/e/9", "/e/8", "/e/7"]);
        assert!(linked(&json!({"Members": [{"Created": "x", "@odata.id": "/e/1"}]})).is_empty());
        assert_eq!(rest("/e", &log), None);
        let more = json!({"Members": [], "Members@odata.count": 500, "Members@odata.nextLink": "/e?$skip=50"});
        assert_eq!(rest("/e", &more).as_deref(), Some("/e?$skip=480"));
    }
}
