//! Scalars: uids, digests, moments, spans.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::Digest;
use uuid::Uuid;

use super::ConvertError;

pub(super) fn uuid(field: &str, text: &str) -> Result<Uuid, ConvertError> {
    text.parse().map_err(|error| ConvertError::new(field, error))
}

/// Empty: none.
pub(super) fn uuid_if_any(field: &str, text: &str) -> Result<Option<Uuid>, ConvertError> {
    if text.is_empty() { Ok(None) } else { uuid(field, text).map(Some) }
}

/// Empty: none.
pub(super) fn digest_if_any(field: &str, text: &str) -> Result<Option<Digest>, ConvertError> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|error| ConvertError::new(field, error)) }
}

pub(super) fn digest(field: &str, text: &str) -> Result<Digest, ConvertError> {
    digest_if_any(field, text)?.ok_or_else(|| ConvertError::missing(field))
}

/// Not empty.
pub(super) fn text(field: &str, text: String) -> Result<String, ConvertError> {
    if text.is_empty() { Err(ConvertError::missing(field)) } else { Ok(text) }
}

/// Empty: none.
pub(super) fn text_if_any(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A positive span; absent or zero is an error, never "now" or "for ever".
pub(super) fn duration(field: &str, wire: Option<prost_types::Duration>) -> Result<Duration, ConvertError> {
    let wire = wire.ok_or_else(|| ConvertError::missing(field))?;
    let span = Duration::try_from(wire).map_err(|error| ConvertError::new(field, error))?;
    if span.is_zero() { Err(ConvertError::new(field, "it is zero")) } else { Ok(span) }
}

pub(super) fn duration_to_wire(span: Duration) -> prost_types::Duration {
    // A `Duration` too long for the wire is longer than any machine lives.
    prost_types::Duration::try_from(span).unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 })
}

pub(super) fn timestamp(field: &str, wire: Option<prost_types::Timestamp>) -> Result<Timestamp, ConvertError> {
    let wire = wire.ok_or_else(|| ConvertError::missing(field))?;
    Timestamp::new(wire.seconds, wire.nanos).map_err(|error| ConvertError::new(field, error))
}

pub(super) fn timestamp_to_wire(at: Timestamp) -> prost_types::Timestamp {
    // The wire counts nanoseconds forward from the second, jiff towards zero.
    let nanos = at.as_nanosecond();
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
    prost_types::Timestamp { seconds, nanos: i32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0) }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The duration of so many milliseconds; 0 says none.
pub(super) fn millis_if_any(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis)).filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_before_1970_keeps_its_nanoseconds_positive() {
        let wire = timestamp_to_wire(Timestamp::from_nanosecond(-1).unwrap());
        assert_eq!((wire.seconds, wire.nanos), (-1, 999_999_999));
        assert_eq!(timestamp("t", Some(wire)), Ok(Timestamp::from_nanosecond(-1).unwrap()));
    }

    #[test]
    fn a_span_that_is_absent_zero_or_negative_is_refused() {
        let negative = prost_types::Duration { seconds: -1, nanos: 0 };
        for wire in [None, Some(prost_types::Duration::default()), Some(negative)] {
            assert_eq!(duration("lease", wire).unwrap_err().field(), "lease");
        }
        let span = Duration::from_millis(1500);
        assert_eq!(duration("lease", Some(duration_to_wire(span))), Ok(span));
    }
}
