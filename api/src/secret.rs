//! Secret: values that templates refer to by name, stored apart from all other documents.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Object;

/// A secret document.
pub type Secret = Object<SecretSpec, SecretStatus>;

/// Values, and the machines that may have them. A secret without machines and labels belongs to no machine.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretSpec {
    /// The values by key. Write-only: they are stored encrypted, apart from the document, and no response contains
    /// them. Applied without `data`, a secret keeps its values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Machines that may have the values, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// Machines that may have the values, by labels, all of which must match. In addition to `machines`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// BMCs to which the coordinator may show the values, as the account of a machine's `spec.bmc`: networks, addresses, names of
    /// hosts, `*.` and a domain; with `http://` before it for BMCs without TLS, and with `webhook+https://` or `webhook+http://` for web
    /// servers in their place, which are sent what the machine's document says. No machine gets the values through this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bmcs: Vec<String>,
}

/// Keys only: what prints a document must not print its values.
impl std::fmt::Debug for SecretSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretSpec")
            .field("data", &self.data.keys())
            .field("machines", &self.machines)
            .field("match_labels", &self.match_labels)
            .field("bmcs", &self.bmcs)
            .finish()
    }
}

/// Public data about the values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretStatus {
    /// The keys.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Rises with every change of a value, from 1.
    #[serde(default)]
    pub version: u64,
}

/// A text of a template with `secrets.my-db.pw` written as `secrets["my-db"].pw`: names of documents have dashes, by which
/// expressions subtract.
pub fn with_secret_names(expression: &str) -> String {
    let mut out = String::with_capacity(expression.len());
    let mut rest = expression;
    while let Some(at) = rest.find("secrets.") {
        let (before, after) = rest.split_at(at);
        let tail = after.get("secrets.".len()..).unwrap_or_default();
        let inner = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let name = tail.split('.').next().unwrap_or_default();
        let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        out.push_str(before);
        if !inner && is_name && name.contains('-') && tail.len() > name.len() {
            out.push_str(&format!("secrets[\"{name}\"]"));
            rest = tail.get(name.len()..).unwrap_or_default();
        } else {
            out.push_str("secrets.");
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::with_secret_names;
    use crate::Document;

    fn read(data: serde_json::Value) -> Result<Document, crate::Problem> {
        Document::from_value(json!({"apiVersion": crate::API_VERSION, "kind": "Secret", "metadata": {"name": "db"},
            "spec": {"data": data}}))
    }

    #[test]
    fn no_secret_value_appears_in_debug_or_errors() {
        let document = read(json!({"pw": "hunter2"})).unwrap();
        assert!(!format!("{document:?}").contains("hunter2"), "{document:?}");
        for data in
            [json!({"pw": 4711}), json!({"pw": ["4711"]}), json!({"pw": {"4711": 1}}), json!("4711"), json!(4711)]
        {
            let refused = read(data).unwrap_err();
            assert!(!refused.to_string().contains("4711"), "{refused}");
            assert!(refused.to_string().contains("spec.data"), "{refused}");
        }
        let refused = read(json!({"not a key": "hunter2"})).unwrap().validate().unwrap_err();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }

    #[test]
    fn a_name_with_dashes_is_no_subtraction() {
        for (written, read) in [
            ("secrets.my-db.pw", "secrets[\"my-db\"].pw"),
            ("secrets.db.pw ~ secrets.a-b-c.d", "secrets.db.pw ~ secrets[\"a-b-c\"].d"),
            ("params.secrets.a-b.c", "params.secrets.a-b.c"),
            ("mysecrets.a-b.c", "mysecrets.a-b.c"),
            ("secrets.", "secrets."),
            ("secrets.a-b", "secrets.a-b"),
        ] {
            assert_eq!(with_secret_names(written), read);
        }
    }
}
