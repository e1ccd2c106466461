//! Codecs: how one field becomes another's on the other side. `from` takes the field's name and what the wire has; `to` never
//! fails. `wire!` names them, and conversions by hand call them.

use std::{collections::HashMap, fmt::Display, str::FromStr, time::Duration};

use jiff::Timestamp;
use landfall_api::{Digest, DiskSelector, SecretText};
use serde_json::Value;

use super::{ConvertError, Within as _};
use crate::v1;

/// `name[type parameters]: wire type => api type, |field, wire| from the wire, |value| to it;`. An `enum` without cases, since
/// a codec is no value.
macro_rules! codec {
    ($($(#[$doc:meta])* $name:ident $([$($generic:tt)*])?: $wire:ty => $api:ty,
        |$field:tt, $w:tt| $from:expr, |$value:tt| $to:expr;)+) => {$(
        $(#[$doc])*
        #[allow(non_camel_case_types, reason = "it stands among the fields' names")]
        pub(crate) enum $name {}

        impl $name {
            pub(crate) fn from $(<$($generic)*>)? ($field: &str, $w: $wire) -> Result<$api, $crate::ConvertError> {
                $from
            }
            pub(crate) fn to $(<$($generic)*>)? ($value: $api) -> $wire {
                $to
            }
        }
    )+};
}

codec! {
    /// As it is.
    same[T]: T => T, |_, wire| Ok(wire), |value| value;
    /// A number, for which 0 says none.
    number_if_any[N: Default + PartialEq]: N => Option<N>,
        |_, wire| Ok(stated(wire)), |number| number.unwrap_or_default();
    /// A list that is not empty.
    filled[T]: Vec<T> => Vec<T>,
        |field, wire| if wire.is_empty() { Err(ConvertError::missing(field)) } else { Ok(wire) }, |list| list;

    /// Text that is not empty.
    text: String => String,
        |field, wire| if wire.is_empty() { Err(ConvertError::missing(field)) } else { Ok(wire) }, |text| text;
    /// Empty: none.
    text_if_any: String => Option<String>, |_, wire| Ok(stated(wire)), |text| text.unwrap_or_default();
    secret: String => SecretText, |_, wire| Ok(SecretText::new(wire)), |secret| secret.into_exposed();
    /// Empty: none.
    secret_if_any: String => Option<SecretText>,
        |_, wire| Ok(stated(wire).map(SecretText::new)), |secret| secret.map(secret::to).unwrap_or_default();

    /// Text that the type itself reads and writes: uids, addresses, pins.
    parsed[T: FromStr<Err: Display> + Display]: String => T,
        |field, wire| wire.parse().map_err(|error| ConvertError::new(field, error)), |value| value.to_string();
    /// Empty: none.
    parsed_if_any[T: FromStr<Err: Display> + Display]: String => Option<T>,
        |field, wire| stated(wire).map(|text| parsed::from(field, text)).transpose(),
        |value| value.map(parsed::to).unwrap_or_default();
    all_parsed[T: FromStr<Err: Display> + Display]: Vec<String> => Vec<T>,
        |field, wire| wire.into_iter().map(|text| parsed::from(field, text)).collect(),
        |all| all.into_iter().map(parsed::to).collect();
    digest: String => Digest, |field, wire| parsed::from(field, text::from(field, wire)?), |digest| digest.to_string();

    moment: Option<prost_types::Timestamp> => Timestamp,
        |field, wire| {
            let wire = wire.ok_or_else(|| ConvertError::missing(field))?;
            Timestamp::new(wire.seconds, wire.nanos).map_err(|error| ConvertError::new(field, error))
        },
        |at| {
            // The wire counts nanoseconds forward from the second, jiff towards zero.
            let nanos = at.as_nanosecond();
            let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(0);
            Some(prost_types::Timestamp { seconds, nanos: i32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0) })
        };
    /// A positive span; absent or zero is an error, never "now" or "for ever".
    span: Option<prost_types::Duration> => Duration,
        |field, wire| {
            let wire = wire.ok_or_else(|| ConvertError::missing(field))?;
            let span = Duration::try_from(wire).map_err(|error| ConvertError::new(field, error))?;
            if span.is_zero() { Err(ConvertError::new(field, "it is zero")) } else { Ok(span) }
        },
        // A `Duration` too long for the wire is longer than any machine lives.
        |span| Some(span.try_into().unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 }));
    /// Absent: none. Zero is an error.
    span_if_any: Option<prost_types::Duration> => Option<Duration>,
        |field, wire| wire.map(|span| span::from(field, Some(span))).transpose(), |span| span.and_then(span::to);
    /// Whole milliseconds.
    millis: u64 => Duration,
        |_, wire| Ok(Duration::from_millis(wire)), |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    /// 0: none.
    millis_if_any: u64 => Option<Duration>,
        |_, wire| Ok(stated(wire).map(Duration::from_millis)), |span| span.map(millis::to).unwrap_or_default();

    /// Every expression travels as text: the wire's map holds strings, and a selector reads `4096` and `"4096"` alike.
    selector: HashMap<String, String> => DiskSelector,
        |_, wire| Ok(DiskSelector(wire.into_iter().map(|(field, text)| (field, Value::String(text))).collect())),
        |selector| {
            let text = |value: Value| match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            selector.0.into_iter().map(|(field, value)| (field, text(value))).collect()
        };
    /// Empty: none, and the choice is the agent's.
    selector_if_any: HashMap<String, String> => Option<DiskSelector>,
        |field, wire| stated(wire).map(|wire| selector::from(field, wire)).transpose(),
        |chosen| chosen.map(selector::to).unwrap_or_default();
    selectors: Vec<v1::Selector> => Vec<DiskSelector>,
        |field, wire| wire.into_iter().map(|one| selector::from(field, one.fields)).collect(),
        |all| all.into_iter().map(|one| v1::Selector { fields: selector::to(one) }).collect();

    /// A message that must be there.
    one[W: From<T>, T: TryFrom<W, Error: Into<ConvertError>>]: Option<W> => T,
        |field, wire| one_if_any::from(field, wire)?.ok_or_else(|| ConvertError::missing(field)),
        |value| Some(value.into());
    one_if_any[W: From<T>, T: TryFrom<W, Error: Into<ConvertError>>]: Option<W> => Option<T>,
        |field, wire| wire.map(T::try_from).transpose().map_err(Into::<ConvertError>::into).within(field),
        |value| value.map(Into::into);
    /// Absent: it is as it is by default.
    unless_default[W: From<T>, T: TryFrom<W, Error: Into<ConvertError>> + Default + PartialEq]: Option<W> => T,
        |field, wire| Ok(one_if_any::from(field, wire)?.unwrap_or_default()), |value| stated(value).map(Into::into);
    /// One of several, which must be there; its cases have names of their own in errors.
    oneof[W: From<T>, T: TryFrom<W, Error = ConvertError>]: Option<W> => T,
        |field, wire| wire.ok_or_else(|| ConvertError::missing(field))?.try_into(), |value| Some(value.into());
    list[W: From<T>, T: TryFrom<W, Error: Into<ConvertError>>]: Vec<W> => Vec<T>,
        |field, wire| {
            let all: Result<_, T::Error> = wire.into_iter().map(T::try_from).collect();
            all.map_err(Into::into).within(field)
        },
        |list| list.into_iter().map(Into::into).collect();
}

/// The default stands for nothing.
fn stated<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|value| *value != T::default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_moment_before_1970_keeps_its_nanoseconds_positive() {
        let wire = moment::to(Timestamp::from_nanosecond(-1).unwrap());
        assert_eq!(wire, Some(prost_types::Timestamp { seconds: -1, nanos: 999_999_999 }));
        assert_eq!(moment::from("t", wire), Ok(Timestamp::from_nanosecond(-1).unwrap()));
    }

    #[test]
    fn a_span_that_is_absent_zero_or_negative_is_refused() {
        let negative = prost_types::Duration { seconds: -1, nanos: 0 };
        for wire in [None, Some(prost_types::Duration::default()), Some(negative)] {
            assert_eq!(span::from("lease", wire).unwrap_err().field(), "lease");
        }
        let lease = Duration::from_millis(1500);
        assert_eq!(span::from("lease", span::to(lease)), Ok(lease));
    }

    #[test]
    fn every_expression_travels_as_text() {
        let given = DiskSelector([("rotational".into(), json!(false)), ("size".into(), json!(">= 1GiB"))].into());
        let wire = selector::to(given);
        assert_eq!((wire["rotational"].as_str(), wire["size"].as_str()), ("false", ">= 1GiB"));
        assert_eq!(selector::from("disk", wire).unwrap().0["rotational"], json!("false"));
        assert_eq!(selector_if_any::from("disk", HashMap::new()), Ok(None));
    }
}
