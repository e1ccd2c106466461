//! Text that is to reach the machine as it is.

use base64::Engine as _;
use serde_json::Value;

/// Text as a template takes it: what would begin an expression there is written as one that gives the same characters.
/// `before`: whether an expression follows directly.
pub(crate) fn literal(text: &str, before: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let opens = match chars.peek() {
            Some(next) => matches!(next, '{' | '%' | '#'),
            None => before,
        };
        if c == '{' && opens { out.push_str("{{ \"{\" }}") } else { out.push(c) }
    }
    out
}

/// A tree whose texts are to reach the machine as they are.
pub(crate) fn literal_tree(tree: Value) -> Value {
    match tree {
        Value::String(text) => literal(&text, false).into(),
        Value::Array(items) => items.into_iter().map(literal_tree).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, literal_tree(value))).collect(),
        other => other,
    }
}

/// The text that base64 stands for; `None` if it is none, or no UTF-8.
pub(crate) fn from_base64(text: &str) -> Option<String> {
    let plain: String = text.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(plain).ok()?;
    String::from_utf8(bytes).ok()
}

/// Octal permissions as documents take them, of any usual spelling; `None` if they are none.
pub(crate) fn mode(text: &str) -> Option<String> {
    let digits = text.trim().trim_start_matches("0o").trim_start_matches('0');
    let bits = if digits.is_empty() { 0 } else { u32::from_str_radix(digits, 8).ok()? };
    (bits <= 0o7777).then(|| format!("{bits:04o}"))
}

#[cfg(test)]
mod tests {
    use landfall_api::Document;
    use serde_json::json;

    use super::*;

    #[test]
    fn braces_of_a_file_stay_what_they_are() {
        for text in ["a {{ x }} b", "{% if %}{# c #}", "{{{ x }}}", "plain { brace }", "${X} {"] {
            let content = literal(text, false);
            let rendered = minijinja(&content);
            assert_eq!(rendered, text);
            let template = json!({"apiVersion": landfall_api::API_VERSION, "kind": "Template", "metadata": {"name": "t"},
                "spec": {"actions": [{"name": "f", "writeFile": {"path": "/f", "content": content, "disk": {}}}]}});
            Document::from_value(template).unwrap().validate().unwrap();
        }
        assert_eq!(literal("{", true), "{{ \"{\" }}");
    }

    /// The only expression that [`literal`] writes, as the renderer reads it.
    fn minijinja(text: &str) -> String {
        text.replace("{{ \"{\" }}", "{")
    }

    #[test]
    fn permissions_are_read_in_each_spelling() {
        for (text, octal) in [("0644", "0644"), ("644", "0644"), ("0o600", "0600"), ("04755", "4755"), ("0", "0000")] {
            assert_eq!(mode(text).as_deref(), Some(octal), "{text}");
        }
        assert_eq!((mode("0999"), mode("rw"), mode("17777")), (None, None, None));
    }
}
