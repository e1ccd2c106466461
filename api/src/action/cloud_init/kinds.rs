//! What a text of user-data is, by how it begins: cloud-init's own rule (`INCLUSION_TYPES_MAP` of its handlers, and the header
//! by which it knows a MIME message).

use std::collections::BTreeMap;

/// A kind of user-data that cloud-init knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserDataKind {
    /// A mapping in YAML.
    CloudConfig,
    /// A list of parts in YAML.
    Archive,
    /// A JSON patch of the cloud-config before it.
    JsonPatch,
    /// A program that runs late in the first boot.
    Script,
    /// A program that runs early in every boot.
    Boothook,
    /// URLs of more user-data, one a line.
    Include,
    /// The same, fetched once.
    IncludeOnce,
    /// Python that handles parts of further kinds.
    PartHandler,
    /// A template of jinja that gives a cloud-config, a script or a boothook.
    Jinja,
    /// Several parts, or one, with headers.
    Mime,
}

/// How each begins, the longer before what it begins with; and its content type as a part of a MIME message.
const BEGINNINGS: [(&str, UserDataKind, &str); 9] = [
    ("#cloud-config-archive", UserDataKind::Archive, "text/cloud-config-archive"),
    ("#cloud-config-jsonp", UserDataKind::JsonPatch, "text/cloud-config-jsonp"),
    ("## template: jinja", UserDataKind::Jinja, "text/jinja2"),
    ("#cloud-boothook", UserDataKind::Boothook, "text/cloud-boothook"),
    ("#cloud-config", UserDataKind::CloudConfig, "text/cloud-config"),
    ("#include-once", UserDataKind::IncludeOnce, "text/x-include-once-url"),
    ("#part-handler", UserDataKind::PartHandler, "text/part-handler"),
    ("#include", UserDataKind::Include, "text/x-include-url"),
    ("#!", UserDataKind::Script, "text/x-shellscript"),
];

impl UserDataKind {
    /// What a text is; `None`: nothing that cloud-init knows.
    pub fn of(text: &str) -> Option<Self> {
        let start: String = text.trim_start().chars().take(32).collect::<String>().to_ascii_lowercase();
        let known = BEGINNINGS.iter().find(|(beginning, ..)| start.starts_with(beginning)).map(|(_, kind, _)| *kind);
        known.or_else(|| Headers::of(text).is_some_and(|headers| headers.has("mime-version")).then_some(Self::Mime))
    }

    /// What it is called as a part of a MIME message. Of a message in a message its own headers say it.
    pub fn content_type(self) -> Option<&'static str> {
        BEGINNINGS.iter().find(|(_, kind, _)| *kind == self).map(|(.., content_type)| *content_type)
    }

    /// How each kind begins.
    pub(super) fn beginnings() -> [&'static str; BEGINNINGS.len()] {
        BEGINNINGS.map(|(beginning, ..)| beginning)
    }
}

/// The headers of a MIME message.
pub(super) struct Headers<'t> {
    /// By name in small letters.
    fields: BTreeMap<String, String>,
    /// What follows them.
    pub(super) body: &'t str,
}

impl<'t> Headers<'t> {
    /// Of a text that begins with headers.
    pub(super) fn of(text: &'t str) -> Option<Self> {
        let mut fields: BTreeMap<String, String> = BTreeMap::new();
        let (mut last, mut rest) = (None, text);
        loop {
            let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                return (!fields.is_empty()).then_some(Self { fields, body: below });
            }
            if line.starts_with([' ', '\t']) {
                // A header goes on in the next line if that begins with a blank.
                let value = fields.get_mut(last.as_ref()?)?;
                value.push(' ');
                value.push_str(line.trim());
            } else {
                let (name, value) = line.split_once(':')?;
                if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                    return None;
                }
                let name = name.to_ascii_lowercase();
                fields.insert(name.clone(), value.trim().to_owned());
                last = Some(name);
            }
            if below.is_empty() {
                return Some(Self { fields, body: "" });
            }
            rest = below;
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// The type of the content in small letters, and its boundary.
    pub(super) fn content_type(&self) -> Option<(String, Option<String>)> {
        let mut parts = self.fields.get("content-type")?.split(';');
        let kind = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let boundary = parts.find_map(|part| {
            let (name, value) = part.trim().split_once('=')?;
            name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
        });
        Some((kind, boundary.filter(|boundary| !boundary.is_empty())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_by_its_beginning() {
        for (text, kind) in [
            ("#cloud-config\na: 1\n", Some(UserDataKind::CloudConfig)),
            ("\n#Cloud-Config\n", Some(UserDataKind::CloudConfig)),
            ("#cloud-config-archive\n- a\n", Some(UserDataKind::Archive)),
            ("#cloud-config-jsonp\n[]", Some(UserDataKind::JsonPatch)),
            ("#!/bin/sh\n", Some(UserDataKind::Script)),
            ("#cloud-boothook\n", Some(UserDataKind::Boothook)),
            ("#include\nhttp://h/x", Some(UserDataKind::Include)),
            ("#include-once\nhttp://h/x", Some(UserDataKind::IncludeOnce)),
            ("#part-handler\n", Some(UserDataKind::PartHandler)),
            ("## template: jinja\n#cloud-config\n", Some(UserDataKind::Jinja)),
            ("Content-Type: multipart/mixed;\n boundary=\"b\"\nMIME-Version: 1.0\n\n--b--\n", Some(UserDataKind::Mime)),
            ("#cloud-config\nmime-version: 1\n", Some(UserDataKind::CloudConfig)),
            ("packages: [vim]\n", None),
            ("a text\nMIME-Version: 1.0\n\n", None),
            ("", None),
        ] {
            assert_eq!(UserDataKind::of(text), kind, "{text}");
        }
    }

    #[test]
    fn a_boundary_is_read_across_folded_headers() {
        let text =
            "MIME-Version: 1.0\r\nContent-Type: Multipart/Mixed; charset=us-ascii;\r\n\tBoundary=\"a b\"\r\n\r\nbody";
        let headers = Headers::of(text).unwrap();
        assert_eq!(headers.content_type(), Some(("multipart/mixed".into(), Some("a b".into()))));
        assert_eq!(headers.body, "body");
    }
}
