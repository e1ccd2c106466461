//! Reads Redfish's JSON leniently: a field may be absent, null, empty, or of another type, and costs no more than itself.

use serde_json::Value;

/// The member at a path, unless it is null.
pub(super) fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(key)).filter(|found| !found.is_null())
}

/// More than any serial number or version has: what is longer would fill the machine's document.
const MAX_TEXT: usize = 256;

/// A text without the blanks around it, cut at 256 characters; numbers count as texts, an empty one as none.
pub(super) fn text(value: &Value, path: &[&str]) -> Option<String> {
    let text = match at(value, path)? {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT).collect();
    (!text.is_empty()).then_some(text)
}

/// The path that a link names; of another host's URL its path.
pub(super) fn link(value: &Value, path: &[&str]) -> Option<String> {
    let linked = at(value, path)?;
    // Some write the path itself where an object with `@odata.id` belongs.
    let written = linked.get("@odata.id").unwrap_or(linked).as_str()?.trim();
    own_path(written)
}

/// The paths of a collection's members, at most `most`.
pub(super) fn members(collection: &Value, most: usize) -> Vec<String> {
    links(collection, &["Members"], most)
}

/// The paths of a list of links, at most `most`.
pub(super) fn links(value: &Value, path: &[&str], most: usize) -> Vec<String> {
    let all = at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|one| link(one, &[])).take(most).collect()
}

/// The path of a URL: requests go to the BMC of the document alone, whatever it links to.
pub(super) fn own_path(written: &str) -> Option<String> {
    let path = match written.split_once("://") {
        Some((_, rest)) => rest.get(rest.find('/')?..)?,
        None => written,
    };
    (path.starts_with('/') && !path.starts_with("//") && path.bytes().all(|b| b.is_ascii_graphic()))
        .then(|| path.to_owned())
}

/// What an error of Redfish says, in its own words; shortened.
pub(super) fn said(body: &Value) -> String {
    let extended = at(body, &["error", "@Message.ExtendedInfo"]);
    let first = match extended {
        Some(Value::Array(all)) => all.first(),
        other => other,
    };
    let message = first
        .and_then(|info| text(info, &["Message"]).or_else(|| text(info, &["MessageId"])))
        .or_else(|| text(body, &["error", "message"]));
    match message {
        Some(message) => {
            let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
            format!(": {line}")
        }
        None => String::new(),
    }
}

/// Whether an error names a message of that name, or of one with it: vendors have registries of their own.
pub(super) fn names_message(body: &Value, name: &str) -> bool {
    let extended = at(body, &["error", "@Message.ExtendedInfo"]).and_then(Value::as_array);
    let ids = extended.into_iter().flatten().filter_map(|info| text(info, &["MessageId"]));
    ids.chain(text(body, &["error", "code"])).any(|id| id.contains(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_odd_field_is_no_field() {
        let system =
            json!({"Model": " R640 ", "SerialNumber": 4711, "PowerState": null, "BiosVersion": ["x"], "SKU": ""});
        assert_eq!(text(&system, &["Model"]).as_deref(), Some("R640"));
        assert_eq!(text(&system, &["SerialNumber"]).as_deref(), Some("4711"));
        for none in ["PowerState", "BiosVersion", "SKU", "Absent"] {
            assert_eq!(text(&system, &[none]), None, "{none}");
        }
        assert_eq!(text(&json!("x"), &["Model"]), None);
    }

    #[test]
    fn links_lead_to_the_documents_bmc_alone() {
        for (written, path) in [
            (json!({"@odata.id": "/redfish/v1/Systems"}), Some("/redfish/v1/Systems")),
            (json!("/redfish/v1/Systems"), Some("/redfish/v1/Systems")),
            (json!({"@odata.id": "https://other.example:8443/redfish/v1/x"}), Some("/redfish/v1/x")),
            (json!({"@odata.id": "//other.example/x"}), None),
            (json!({"@odata.id": "relative"}), None),
            (json!({"@odata.id": "/a\r\nHost: b"}), None),
            (json!({"@odata.id": 7}), None),
            (json!({}), None),
        ] {
            assert_eq!(link(&json!({"l": written}), &["l"]).as_deref(), path, "{written}");
        }
        let many = json!({"Members": [{"@odata.id": "/a"}, null, "x", {"@odata.id": "/b"}, {"@odata.id": "/c"}]});
        assert_eq!(members(&many, 2), ["/a", "/b"]);
        assert!(members(&json!({"Members": "none"}), 2).is_empty());
    }

    #[test]
    fn an_errors_first_message_is_shown() {
        let info = json!({"error": {"code": "Base.1.8.GeneralError", "message": "general",
            "@Message.ExtendedInfo": [{"MessageId": "Base.1.8.SessionLimitExceeded", "Message": "too\nmany"}]}});
        assert_eq!(said(&info), ": too many");
        assert!(names_message(&info, "SessionLimitExceeded") && !names_message(&info, "AccessDenied"));
        assert_eq!(said(&json!({"error": {"message": "general"}})), ": general");
        assert_eq!(said(&json!("<html>")), "");
    }
}
