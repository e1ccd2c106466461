//! Which part of a file a request is for (RFC 9110, 13 and 14). Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, header};

/// What identifies one state of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Length in bytes.
    pub length: u64,
    /// A strong entity tag, quotes included.
    pub etag: String,
    /// Time of the last change.
    pub modified: SystemTime,
}

/// What to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// 200: all of it.
    Whole,
    /// 206: from `start` to `end`, both included.
    Part {
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
    },
    /// 416: nothing of the file is in the range.
    Unsatisfiable,
    /// 304: the client has it already.
    NotModified,
}

/// What the request's headers select.
pub fn select(headers: &HeaderMap, version: &Version) -> Selection {
    if let Some(tags) = text(headers, header::IF_NONE_MATCH)
        && tags.split(',').map(|t| t.trim().trim_start_matches("W/")).any(|t| t == "*" || t == version.etag)
    {
        return Selection::NotModified;
    }
    let Some(range) = text(headers, header::RANGE) else { return Selection::Whole };
    // A part of another version would be glued onto what the client has: then it gets all of this one.
    if let Some(condition) = text(headers, header::IF_RANGE)
        && condition != version.etag
        && condition != http_date(version.modified)
    {
        return Selection::Whole;
    }
    parse(range, version.length)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// One range of bytes. What does not parse, and several ranges, are answered with the whole file, as the RFC allows.
fn parse(range: &str, length: u64) -> Selection {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|r| r.trim().split_once('-')) else {
        return Selection::Whole;
    };
    let (start, end) = match (first, last) {
        ("", suffix) => match number(suffix) {
            Some(0) => return Selection::Unsatisfiable,
            Some(n) => (length.saturating_sub(n), length.saturating_sub(1)),
            None => return Selection::Whole,
        },
        (first, "") => match number(first) {
            Some(start) => (start, length.saturating_sub(1)),
            None => return Selection::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(start), Some(end)) if start <= end => (start, end.min(length.saturating_sub(1))),
            _ => return Selection::Whole,
        },
    };
    if start >= length { Selection::Unsatisfiable } else { Selection::Part { start, end } }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`; times before 1970 count as 1970.
pub fn http_date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let stamp = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok()).unwrap_or_default();
    stamp.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version() -> Version {
        Version { length: 1000, etag: "\"v1\"".into(), modified: UNIX_EPOCH + Duration::from_secs(784_111_777) }
    }

    fn with(pairs: &[(HeaderName, &str)]) -> Selection {
        select(&pairs.iter().map(|(n, v)| (n.clone(), v.parse().unwrap())).collect(), &version())
    }

    #[test]
    fn ranges_select_what_the_rfc_says() {
        use Selection::{Part, Unsatisfiable, Whole};
        for (range, selected) in [
            ("bytes=0-99", Part { start: 0, end: 99 }),
            ("bytes=500-", Part { start: 500, end: 999 }),
            ("bytes=-1", Part { start: 999, end: 999 }),
            ("bytes=-5000", Part { start: 0, end: 999 }),
            ("bytes=999-5000", Part { start: 999, end: 999 }),
            ("bytes=1000-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=0-1,5-6", Whole),
            ("bytes=9-5", Whole),
            ("bytes=+1-5", Whole),
            ("lines=1-2", Whole),
            ("bytes=", Whole),
            ("bytes=-", Whole),
            ("bytes=18446744073709551616-", Whole),
        ] {
            assert_eq!(with(&[(header::RANGE, range)]), selected, "{range}");
        }
    }

    #[test]
    fn a_range_is_served_only_of_the_clients_version() {
        let part = Selection::Part { start: 500, end: 999 };
        for (condition, selected) in [
            ("\"v1\"", part),
            ("\"v2\"", Selection::Whole),
            ("W/\"v1\"", Selection::Whole),
            ("Sun, 06 Nov 1994 08:49:37 GMT", part),
            ("Sun, 06 Nov 1994 08:49:38 GMT", Selection::Whole),
        ] {
            assert_eq!(with(&[(header::RANGE, "bytes=500-"), (header::IF_RANGE, condition)]), selected, "{condition}");
        }
    }

    #[test]
    fn what_the_client_has_already_is_not_sent() {
        assert_eq!(with(&[(header::IF_NONE_MATCH, "\"v0\", W/\"v1\"")]), Selection::NotModified);
        assert_eq!(with(&[(header::IF_NONE_MATCH, "\"v0\"")]), Selection::Whole);
    }

    #[test]
    fn an_empty_file_has_no_parts() {
        let empty = Version { length: 0, ..version() };
        for range in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            let headers = HeaderMap::from_iter([(header::RANGE, range.parse().unwrap())]);
            assert_eq!(select(&headers, &empty), Selection::Unsatisfiable, "{range}");
        }
    }

    proptest! {
        #[test]
        fn a_part_is_never_outside_the_file(range in "(bytes=)?[0-9, -]{0,24}", length in 0u64..2000) {
            if let Selection::Part { start, end } = parse(&range, length) {
                prop_assert!(start <= end && end < length);
            }
        }
    }
}
