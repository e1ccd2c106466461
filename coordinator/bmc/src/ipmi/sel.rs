//! The System Event Log (IPMI 2.0, 31 and 32): what a BMC noted of a computer that did not come.

use jiff::{SignedDuration, Timestamp};

use super::event::describe;
use super::inventory::optional;
use super::message::Command;
use super::sign_in::Host;
use crate::error::BmcError;
use crate::log::{Entry, Span, newest};

/// Entries that are read, from the newest back.
const LAST: usize = 20;
/// Requests for them: entries that were removed leave gaps in the numbers.
const TRIES: usize = 60;
/// The newest entry, whatever its number (31.5).
const NEWEST: u16 = 0xffff;
/// No time is known (37.1).
const UNSPECIFIED: u32 = 0xffff_ffff;

/// Reads the newest entries since then that report a fault. Nothing of a BMC that has no log.
///
/// # Errors
/// [`BmcError`], if it does not answer.
pub(super) async fn read(host: &mut Host, since: Timestamp, now: Timestamp) -> Result<Vec<String>, BmcError> {
    let Some(info) = optional(host.ask(Command::SEL_INFO, &[]).await)? else { return Ok(Vec::new()) };
    // The version, then how many entries there are (31.2).
    let Some([_, low, high]) = info.first_chunk() else { return Ok(Vec::new()) };
    let count = usize::from(u16::from_le_bytes([*low, *high])).min(LAST);
    let shows = optional(host.ask(Command::SEL_TIME, &[]).await)?.and_then(|time| seconds(&time));
    let span = Span { since, now, ahead: shows.map_or(SignedDuration::ZERO, |shows| shows.duration_since(now)) };
    let (mut entries, mut id, mut found) = (Vec::new(), NEWEST, 0);
    for _ in 0..TRIES {
        if found == count {
            break;
        }
        let [low, high] = id.to_le_bytes();
        // Without a reservation, the whole of it. Numbers of entries that were removed are missing.
        let answer = optional(host.ask(Command::SEL_ENTRY, &[0, 0, low, high, 0, 0xff]).await)?;
        let record = answer.as_ref().and_then(|answer| answer.get(2..)).and_then(<[u8]>::first_chunk::<16>);
        if let Some(record) = record {
            found += 1;
            entries.extend(entry(record, span));
            id = u16::from_le_bytes([record[0], record[1]]);
        } else if id == NEWEST {
            break;
        }
        match id {
            0 | 1 => break,
            known => id = known - 1,
        }
    }
    Ok(newest(entries))
}

fn seconds(bytes: &[u8]) -> Option<Timestamp> {
    let seconds = u32::from_le_bytes(*bytes.first_chunk()?);
    (seconds != UNSPECIFIED).then(|| Timestamp::from_second(seconds.into()).ok()).flatten()
}

/// A "system event record" (32.1) of that time which reports a fault.
fn entry(record: &[u8; 16], span: Span) -> Option<Entry> {
    let [_, _, kind, rest @ ..] = record;
    let [time @ .., _, _, _, sensor, number, event, data1, data2, _] = rest;
    // Other types are the maker's own.
    let line = (*kind == 0x02).then(|| describe(*sensor, *number, *event, [*data1, *data2])).flatten()?;
    span.entry(seconds(time)?, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_dated_by_the_clock_of_the_bmc() {
        let now: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
        let since = now - SignedDuration::from_secs(600);
        let record = |at: u32| {
            let mut record = [0x01, 0, 0x02, 0, 0, 0, 0, 0x20, 0, 0x04, 0x0c, 0x53, 0x6f, 0xa1, 0x01, 0xff];
            record[3..7].copy_from_slice(&at.to_le_bytes());
            record
        };
        // A BMC without a clock counts from its own start.
        let span = Span { since, now, ahead: Timestamp::from_second(1000).unwrap().duration_since(now) };
        let line = "Memory, sensor 0x53: uncorrectable ECC error".to_owned();
        for (at, is_one) in [(900, true), (340, true), (330, false), (1061, false), (UNSPECIFIED, false)] {
            let found = newest(entry(&record(at), span).into_iter().collect());
            assert_eq!(found, if is_one { vec![line.clone()] } else { vec![] }, "{at}");
        }
        let mut of_the_maker = record(900);
        of_the_maker[2] = 0xc0;
        assert_eq!(entry(&of_the_maker, span), None);
    }
}
