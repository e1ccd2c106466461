//! Which documents of a kind a list or a watch is about.

use landfall_api::{Kind, LabelSelector};

/// Documents of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    /// The kind.
    pub kind: Kind,
    /// Only the document of that name.
    pub name: Option<String>,
    /// Only documents with these labels.
    pub labels: Option<LabelSelector>,
}

impl Scope {
    /// One document.
    pub fn one(kind: Kind, name: &str) -> Self {
        Self { kind, name: Some(name.to_owned()), labels: None }
    }

    /// Every document of a kind, or those with these labels.
    pub fn of(kind: Kind, labels: Option<&LabelSelector>) -> Self {
        Self { kind, name: None, labels: labels.cloned() }
    }

    /// Whether a document of that kind and name may be in it.
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        self.kind == kind && self.name.as_ref().is_none_or(|only| only == name)
    }

    /// The part of a query that says so, to stand behind another.
    pub(crate) fn query(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("&name={}", escaped(name)));
        let labels = self.labels.as_ref().map(|labels| format!("&labelSelector={}", escaped(&labels.to_string())));
        name.into_iter().chain(labels).collect()
    }
}

/// A value as part of a query: RFC 3986, section 2.3, for what stays as it is.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
