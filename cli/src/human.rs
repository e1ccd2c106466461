//! Numbers and times as people read them.

use jiff::Timestamp;
pub(crate) use landfall_api::readable_bytes as bytes;
use landfall_api::{ConditionStatus, ConditionType, Progress, WorkflowStatus};

/// `85s`, `12m`, `3h20m`, `5d`: as kubectl's tables have ages.
pub(crate) fn span(seconds: i64) -> String {
    let s = seconds.max(0);
    match s {
        0..120 => format!("{s}s"),
        120..600 if s % 60 != 0 => format!("{}m{}s", s / 60, s % 60),
        120..7200 => format!("{}m", s / 60),
        7200..36_000 if s % 3600 >= 60 => format!("{}h{}m", s / 3600, s % 3600 / 60),
        7200..172_800 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// Time between two moments, the later one `now` while it has not come.
pub(crate) fn between(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> Option<String> {
    let from = from?;
    Some(span(to.unwrap_or(now).as_second() - from.as_second()))
}

/// Age of a moment; `-` where there is none.
pub(crate) fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    between(at, None, now).unwrap_or_else(|| "-".into())
}

/// Whole percent of `done` in `total`; `None` while the total is unknown.
pub(crate) fn percent(done: u64, total: u64) -> Option<u64> {
    (total > 0).then(|| (u128::from(done) * 100 / u128::from(total)).min(100) as u64)
}

/// `ETA 12s`; `None` while it is unknown.
pub(crate) fn to_go(progress: &Progress) -> Option<String> {
    let seconds = progress.remaining_seconds()?;
    Some(format!("ETA {}", span(i64::try_from(seconds).unwrap_or(i64::MAX))))
}

/// `silent 2m5s`: for how long the agent has been silent, so that its rate says nothing; `None` while it is heard.
pub(crate) fn silence(status: &WorkflowStatus, now: Timestamp) -> Option<String> {
    let silent =
        status.conditions.iter().find(|c| c.kind == ConditionType::Silent && c.status == ConditionStatus::True)?;
    Some(format!("silent {}", age(Some(silent.since), now)))
}

/// `not seen 2h`: since when a machine that should have netbooted counts as missing.
pub(crate) fn not_seen(status: &WorkflowStatus, now: Timestamp) -> Option<String> {
    let missing =
        status.conditions.iter().find(|c| c.kind == ConditionType::NotSeen && c.status == ConditionStatus::True)?;
    Some(format!("not seen {}", age(Some(missing.since), now)))
}

/// `write-bound`: which stage the others wait for.
pub(crate) fn bound_by(progress: &Progress) -> Option<String> {
    (!progress.slowest.is_empty()).then(|| format!("{}-bound", progress.slowest))
}

/// A moment in tables of events: UTC, to the second.
pub(crate) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// The same for a time as text; text that is not a time stays unchanged.
pub(crate) fn moment_of(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        for (s, text) in
            [(-5, "0s"), (85, "85s"), (125, "2m5s"), (700, "11m"), (7260, "2h1m"), (7200, "2h"), (200_000, "2d")]
        {
            assert_eq!(span(s), text);
        }
        let progress = Progress { eta_seconds: 125, slowest: "write".into(), ..Progress::default() };
        assert_eq!(
            (to_go(&progress).as_deref(), bound_by(&progress).as_deref()),
            (Some("ETA 2m5s"), Some("write-bound"))
        );
        assert_eq!((to_go(&Progress::default()), bound_by(&Progress::default())), (None, None));
        assert_eq!(percent(1, 0), None);
        assert_eq!(percent(u64::MAX, u64::MAX), Some(100));
        assert_eq!(percent(5, 2), Some(100));
    }
}
