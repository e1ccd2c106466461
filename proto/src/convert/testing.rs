//! What the tests of all messages ask.

use std::fmt::Debug;

use landfall_api::DiskSelector;

use super::ConvertError;

/// The message arrives as it was sent, and does not show `geheim`: that stands for every secret here.
#[track_caller]
pub(crate) fn survives<W, T>(message: T)
where
    W: TryFrom<T, Error: Debug>,
    T: Clone + Debug + PartialEq + TryFrom<W, Error: Debug>,
{
    assert!(!format!("{message:?}").contains("geheim"), "{message:?}");
    assert_eq!(T::try_from(W::try_from(message.clone()).unwrap()).unwrap(), message);
}

/// A field, and what makes it wrong.
type Case<W> = (&'static str, fn(&mut W));

/// Each change makes the message one that is refused, by the field that stands before it.
#[track_caller]
pub(crate) fn refused<W, T>(whole: T, cases: &[Case<W>])
where
    W: TryFrom<T, Error: Debug>,
    T: Clone + Debug + TryFrom<W, Error = ConvertError>,
{
    for (field, spoil) in cases {
        let mut wire = W::try_from(whole.clone()).unwrap();
        spoil(&mut wire);
        assert_eq!(T::try_from(wire).unwrap_err().field(), *field);
    }
}

/// The disk of that serial number.
pub(crate) fn disk(serial: &str) -> DiskSelector {
    DiskSelector([("serial".to_owned(), serial.into())].into())
}
