//! What an answer's head says, read strictly: ranges, validators, lengths, types, and when to come back.

use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderValue};

use crate::Format;

/// What Content-Types claim. Anything else, `application/octet-stream` above all, claims nothing.
const TYPES: [(&str, Format); 19] = [
    ("application/zstd", Format::Zstd),
    ("application/x-zstd", Format::Zstd),
    ("application/zst", Format::Zstd),
    ("application/gzip", Format::Gzip),
    ("application/x-gzip", Format::Gzip),
    ("application/x-gunzip", Format::Gzip),
    ("application/xz", Format::Xz),
    ("application/x-xz", Format::Xz),
    ("application/bzip2", Format::Bzip2),
    ("application/x-bzip2", Format::Bzip2),
    ("application/x-bzip", Format::Bzip2),
    ("application/x-lz4", Format::Lz4),
    ("application/lz4", Format::Lz4),
    ("application/x-qemu-disk", Format::Qcow2),
    ("application/x-qcow2", Format::Qcow2),
    ("application/x-vmdk-disk", Format::Vmdk),
    ("application/x-virtualbox-vmdk", Format::Vmdk),
    ("application/x-vmdk", Format::Vmdk),
    ("application/x-raw-disk-image", Format::Raw),
];

/// The format that a media type claims.
pub(in crate::source) fn format_of_type(text: &str) -> Option<Format> {
    let essence = text.split(';').next().unwrap_or_default().trim();
    TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(essence)).map(|(_, format)| *format)
}

pub(crate) fn claimed_format(headers: &HeaderMap) -> Option<Format> {
    format_of_type(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)
}

/// How the server encoded the response although the request forbids it.
pub(crate) fn encoding(headers: &HeaderMap) -> Option<String> {
    let names = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut names = names.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase());
    names.find(|name| !matches!(name.as_str(), "" | "identity"))
}

/// What If-Range may carry: a strong ETag, else a date.
pub(super) fn validator(headers: &HeaderMap) -> Option<HeaderValue> {
    let etag = headers.get(header::ETAG).filter(|etag| !etag.as_bytes().starts_with(b"W/"));
    etag.or_else(|| headers.get(header::LAST_MODIFIED)).cloned()
}

pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A `Content-Range`, RFC 9110 section 14.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// The first byte's place.
    pub(crate) first: u64,
    /// One past the last byte's.
    pub(crate) end: u64,
    /// How long the whole is, if said.
    pub(crate) total: Option<u64>,
}

impl ContentRange {
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(header::CONTENT_RANGE)?.to_str().ok()?)
    }

    /// `bytes 5-9/10`; the total may be `*`.
    fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, end) = (first.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?);
        let total = if total == "*" { None } else { Some(total.parse().ok()?) };
        (first < end && total.is_none_or(|total| end <= total)).then_some(Self { first, end, total })
    }
}

/// When the server wants to be asked again: seconds or a date, RFC 9110 section 10.2.3.
pub(crate) fn retry_after(headers: &HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let then = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    // A date that has passed asks for no wait at all.
    Some(Duration::try_from(then.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn content_ranges_are_read_whole_or_not_at_all() {
        let good = |first, end, total| Some(ContentRange { first, end, total });
        assert_eq!(ContentRange::parse("bytes 5-9/10"), good(5, 10, Some(10)));
        assert_eq!(ContentRange::parse("bytes 5-9/*"), good(5, 10, None));
        let far = format!("bytes 0-{}/*", u64::MAX);
        for bad in ["", "bytes */10", "items 5-9/10", "bytes x-9/10", "bytes 5", "bytes 9-5/10", "bytes 5-9/9", &far] {
            assert_eq!(ContentRange::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let at = |text: &str| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap())]);
            retry_after(&headers, "1994-11-06T08:49:30Z".parse().unwrap())
        };
        assert_eq!(at("120"), Some(Duration::from_secs(120)));
        assert_eq!(at("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(at("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO));
        assert_eq!(at("soon"), None);
    }

    #[test]
    fn only_types_that_name_a_format_claim_one() {
        assert_eq!(format_of_type("Application/ZSTD; charset=binary"), Some(Format::Zstd));
        for nothing in ["application/octet-stream", "text/html", "", "application/x-tar"] {
            assert_eq!(format_of_type(nothing), None);
        }
    }

    proptest! {
        #[test]
        fn no_head_makes_it_panic(text in "(bytes )?[ -~]{0,40}") {
            let Ok(value) = HeaderValue::from_str(&text) else { return Ok(()) };
            let names = [header::RETRY_AFTER, header::CONTENT_RANGE, header::CONTENT_TYPE, header::CONTENT_ENCODING];
            let headers = HeaderMap::from_iter(names.map(|name| (name, value.clone())));
            retry_after(&headers, jiff::Timestamp::UNIX_EPOCH);
            ContentRange::of(&headers);
            claimed_format(&headers);
            encoding(&headers);
        }
    }
}
