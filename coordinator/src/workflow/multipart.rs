//! A text of user-data beside a cloud-config of ours: a MIME message of both, cloud-init's own way to have several parts.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use landfall_api::UserDataKind;

/// Cloud-init takes for a MIME message whatever has `mime-version:` in this many bytes (`convert_string` of its `user_data`).
const LOOKED_AT: usize = 4096;

/// The longest line of base64 in a MIME message (RFC 2045, section 6.8).
const LINE: usize = 76;

/// The file that gives cloud-init the text as what it is, and after it `config`, whose fields win. A text alone is the file.
pub(super) fn file(text: &str, config: Option<&str>) -> String {
    let kind = UserDataKind::of(text);
    let message = kind == Some(UserDataKind::Mime);
    if config.is_none() && (message || !looks_like_a_message(text)) {
        return text.to_owned();
    }
    let boundary = (0_u32..).map(|n| format!("=landfall-{n}")).find(|boundary| !text.contains(boundary.as_str()));
    let boundary = boundary.unwrap_or_default();
    let mut out = format!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\nMIME-Version: 1.0\n\n");
    out.push_str(&format!("--{boundary}\n"));
    if message {
        // Its headers become those of the part.
        out.push_str(text);
        out.push('\n');
    } else {
        // Of another text cloud-init looks how it begins.
        part(&mut out, kind.and_then(UserDataKind::content_type).unwrap_or("text/plain"), "user-data", text);
    }
    if let Some(config) = config {
        out.push_str(&format!("--{boundary}\n"));
        part(&mut out, "text/cloud-config", "landfall", config);
    }
    out.push_str(&format!("--{boundary}--\n"));
    out
}

fn looks_like_a_message(text: &str) -> bool {
    let start = text.as_bytes().get(..LOOKED_AT).unwrap_or(text.as_bytes());
    start.to_ascii_lowercase().windows(13).any(|bytes| bytes == b"mime-version:")
}

/// In base64: Python reads any other part with letters beyond ASCII wrongly.
fn part(out: &mut String, content_type: &str, name: &str, text: &str) {
    out.push_str(&format!(
        "Content-Type: {content_type}; charset=\"utf-8\"\nMIME-Version: 1.0\nContent-Transfer-Encoding: base64\n\
         Content-Disposition: attachment; filename=\"{name}\"\n\n"
    ));
    let mut left = STANDARD.encode(text);
    while !left.is_empty() {
        let rest = left.split_off(LINE.min(left.len()));
        out.push_str(&left);
        out.push('\n');
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "#cloud-config\n{\"hostname\": \"web\"}\n";

    /// Content types and texts of a message's parts.
    fn parts(message: &str) -> Vec<(String, String)> {
        let (head, body) = message.split_once("\n\n").unwrap();
        let boundary = head.split("boundary=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(head.contains("MIME-Version: 1.0") && body.ends_with(&format!("--{boundary}--\n")), "{message}");
        let body = body.strip_suffix(&format!("--{boundary}--\n")).unwrap();
        let read = |part: &str| {
            let (head, content) = part.split_once("\n\n").unwrap();
            let kind = head.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap();
            let kind = kind.split(';').next().unwrap().to_owned();
            let text = match head.contains("base64") {
                true => String::from_utf8(STANDARD.decode(content.replace('\n', "")).unwrap()).unwrap(),
                false => content.to_owned(),
            };
            (kind, text)
        };
        body.split(&format!("--{boundary}\n")).skip(1).map(read).collect()
    }

    #[test]
    fn each_kind_keeps_its_type_and_our_fields_come_last() {
        for (text, kind) in [
            ("#!/bin/sh\necho grüße\n", "text/x-shellscript"),
            ("#cloud-config\na: 1\n", "text/cloud-config"),
            ("## template: jinja\n#cloud-config\n", "text/jinja2"),
            ("#include\nhttps://h/x\n", "text/x-include-url"),
            ("#cloud-boothook\n", "text/cloud-boothook"),
            ("a secret's text", "text/plain"),
        ] {
            let found = parts(&file(text, Some(CONFIG)));
            let wanted = [(kind, text), ("text/cloud-config", CONFIG)];
            assert_eq!(found, wanted.map(|(kind, text)| (kind.to_owned(), text.to_owned())));
        }
        let long = format!("#!/bin/sh\n{}", "x".repeat(500));
        assert!(file(&long, Some(CONFIG)).lines().all(|line| line.len() <= LINE));
    }

    #[test]
    fn a_message_goes_into_the_message_as_it_is() {
        let inner = "Content-Type: multipart/mixed; boundary=\"=landfall-0\"\nMIME-Version: 1.0\n\n--=landfall-0\n\n#!/bin/sh\n\
                     --=landfall-0--\n";
        let whole = file(inner, Some(CONFIG));
        let found = parts(&whole);
        assert!(whole.contains(inner) && whole.contains("boundary=\"=landfall-1\""), "{whole}");
        assert_eq!(
            found.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(),
            ["multipart/mixed", "text/cloud-config"]
        );
    }

    #[test]
    fn a_mention_of_mime_makes_no_message() {
        let text = "#cloud-config\nwrite_files:\n- content: |\n    MIME-Version: 1.0\n";
        assert_eq!(parts(&file(text, None)), [("text/cloud-config".to_owned(), text.to_owned())]);
        let far = format!("#cloud-config\n{}\nMIME-Version: 1.0\n", "# x\n".repeat(1200));
        assert_eq!(file(&far, None), far);
        assert_eq!(file("MIME-Version: 1.0\n\nx", None), "MIME-Version: 1.0\n\nx");
    }
}
