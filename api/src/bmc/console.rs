//! A machine's serial console: what its reader sends and gets.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::Problem;

/// Bytes of one request with characters for a console at most.
pub const MAX_CONSOLE_INPUT: usize = 1024;

/// Characters of a serial console: any bytes, in base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Characters(pub Vec<u8>);

impl Serialize for Characters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Characters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Characters;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes in base64")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Characters, E> {
                BASE64_STANDARD.decode(text).map(Characters).map_err(|error| E::custom(format!("not base64: {error}")))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl JsonSchema for Characters {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Characters".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "contentEncoding": "base64",
            "description": "Characters of a serial console: any bytes, in base64." })
    }
}

/// A person's request to open a machine's console.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConsoleRequest {
    /// Also where another person, or another program at the BMC, has it: theirs ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub take_over: bool,
    /// The id of a console that this person had, whose connection was lost: the coordinator may not know that yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Uuid>,
}

/// A line of an open console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ConsoleLine {
    /// The first line: the console's id, which its input names.
    Opened(Uuid),
    /// What the computer wrote.
    Output(Characters),
    /// What happened to the console, for a person to read.
    Notice(String),
    /// The last line of a console that the reader has not ended: why.
    Ended(Problem),
}

/// What is typed at an open console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsoleInput {
    /// The id of the console's first line.
    pub console: Uuid,
    /// 1, 2, 3 …: one that is sent again counts once.
    pub number: u64,
    /// The characters; at most 1024.
    #[serde(default)]
    pub characters: Characters,
    /// Send a break, behind the characters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub send_break: bool,
}

/// The input has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleTaken {
    /// The number of the newest input that was taken.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_stand_in_a_line() {
        let line = ConsoleLine::Output(Characters(vec![0, 0xff, b'\n', 0x1b]));
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(text, r#"{"output":"AP8KGw=="}"#);
        assert_eq!(serde_json::from_str::<ConsoleLine>(&text).unwrap(), line);
        let bad = r#"{"console":"00000000-0000-4000-8000-000000000000","number":1,"characters":"%"}"#;
        assert!(serde_json::from_str::<ConsoleInput>(bad).unwrap_err().to_string().contains("not base64"));
    }
}
