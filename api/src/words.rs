//! Enums of which each value is one word.

/// Makes an enum whose values have one word each, the same in documents, in messages and for people:
///
/// ```ignore
/// words! {
///     /// What a person may do.
///     #[derive(Serialize, …)]
///     Role {
///         /// Reads.
///         Viewer = "viewer",
///     } else UnknownRole "\"{0}\" is not a role" // Optional: with it there is `FromStr`, which says so of another word.
/// }
/// ```
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $value,)+ }

        impl $name {
            /// Every one, in the order of their declaration.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// Its word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }

            /// The one that has this word.
            pub fn named(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$value),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
    ($(#[$about:meta])* $name:ident { $($values:tt)+ } else $unknown:ident $says:literal) => {
        words! { $(#[$about])* $name { $($values)+ } }

        #[doc = concat!("A word that no [`", stringify!($name), "`] has.")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error($says)]
        pub struct $unknown(pub String);

        impl std::str::FromStr for $name {
            type Err = $unknown;
            fn from_str(text: &str) -> Result<Self, $unknown> {
                Self::named(text).ok_or_else(|| $unknown(text.to_owned()))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Display};

    use serde::Serialize;

    use crate::message::LogLevel;
    use crate::{
        BootPolicy, ContainerCapability, FileSystem, FirmwareSpec, HealthTestKind, HttpMethod, ImageFormat, LoaderSpec,
        NetworkFormat, PartitionRole, Role, TableSpec, WipeLevel,
    };

    fn one_name<T: Copy + PartialEq + Debug + Display + Serialize>(all: &[T], named: fn(&str) -> Option<T>) {
        for one in all {
            let word = one.to_string();
            assert_eq!((named(&word), serde_json::to_value(one).unwrap()), (Some(*one), word.as_str().into()));
            let [upper, lower] = [word.to_uppercase(), word.to_lowercase()];
            assert_eq!(named(if word == upper { &lower } else { &upper }), None, "{word}");
        }
        assert_eq!(named(""), None);
    }

    #[test]
    fn each_word_is_one_name_everywhere() {
        one_name(&BootPolicy::ALL, BootPolicy::named);
        one_name(&ContainerCapability::ALL, ContainerCapability::named);
        one_name(&FileSystem::ALL, FileSystem::named);
        one_name(&FirmwareSpec::ALL, FirmwareSpec::named);
        one_name(&HealthTestKind::ALL, HealthTestKind::named);
        one_name(&HttpMethod::ALL, HttpMethod::named);
        one_name(&ImageFormat::ALL, |word| word.parse().ok());
        one_name(&LoaderSpec::ALL, LoaderSpec::named);
        one_name(&LogLevel::ALL, |word| word.parse().ok());
        one_name(&NetworkFormat::ALL, NetworkFormat::named);
        one_name(&PartitionRole::ALL, PartitionRole::named);
        one_name(&Role::ALL, |word| word.parse().ok());
        one_name(&TableSpec::ALL, TableSpec::named);
        one_name(&WipeLevel::ALL, WipeLevel::named);
    }
}
