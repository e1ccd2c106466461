//! Words of a document that travel as text.

use landfall_api::{
    BmcPrivilege, BootPolicy, ContainerCapability, FileSystem, FirmwareSpec, HealthTestKind, HttpMethod, NetworkFormat,
    PartitionRole, SizeSpec, TableSpec, WipeLevel,
};
use serde_json::Value;

use super::{ConvertError, error::MISSING};

/// A type that is one word on the wire.
pub(crate) trait Word: Sized {
    /// From a word that is not empty, unless a type has an empty one.
    fn read(field: &str, word: &str) -> Result<Self, ConvertError>;
    fn written(self) -> String;
}

codec! {
    word[T: Word]: String => T, |field, wire| T::read(field, &wire), |value| value.written();
    /// Empty: none.
    word_if_any[T: Word]: String => Option<T>,
        |field, wire| if wire.is_empty() { Ok(None) } else { T::read(field, &wire).map(Some) },
        |value| value.map(T::written).unwrap_or_default();
    words[T: Word]: Vec<String> => Vec<T>,
        |field, wire| wire.iter().map(|word| T::read(field, word)).collect(),
        |all| all.into_iter().map(T::written).collect();
}

/// Types that list their words: `Type, all of them, |word| what is wrong with any other;`
macro_rules! listed {
    ($($name:ident, $all:expr, |$word:tt| $what:expr;)+) => {$(
        impl Word for $name {
            fn read(field: &str, $word: &str) -> Result<Self, ConvertError> {
                let known = $all.into_iter().find(|known| known.as_str() == $word);
                known.ok_or_else(|| ConvertError::new(field, $what))
            }
            fn written(self) -> String { self.as_str().to_owned() }
        }
    )+};
}

listed! {
    BmcPrivilege, Self::ALL, |word| format!("\"{word}\" is no privilege at a BMC");
    BootPolicy, Self::ALL, |word| format!("\"{word}\" is no policy of a boot order");
    ContainerCapability, Self::ALL, |word| format!("\"{word}\" is no capability of a container");
    FirmwareSpec, [Self::Auto, Self::Bios, Self::Uefi, Self::Both], |word| "it is none that is known";
    HealthTestKind, Self::ALL, |word| format!("\"{word}\" is no health test");
    HttpMethod, Self::ALL, |word| MISSING;
    NetworkFormat, Self::ALL, |word| "it is none that is known";
    WipeLevel, Self::ALL, |word| format!("\"{word}\" is no level of wiping");
}

/// Types whose words serde reads: `Type, |value| the word;`
macro_rules! read_by_serde {
    ($($name:ident, |$value:ident| $word:expr;)+) => {$(
        impl Word for $name {
            fn read(field: &str, word: &str) -> Result<Self, ConvertError> {
                if word.is_empty() {
                    return Err(ConvertError::missing(field));
                }
                serde_json::from_value(Value::from(word)).map_err(|error| ConvertError::new(field, error))
            }
            fn written(self) -> String {
                let $value = self;
                $word.to_string()
            }
        }
    )+};
}

read_by_serde! {
    FileSystem, |it| it.name();
    PartitionRole, |it| it.as_str();
    SizeSpec, |it| it;
    TableSpec, |it| it.as_str();
}
