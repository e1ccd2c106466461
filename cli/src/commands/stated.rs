//! Values that a person states for a template's parameters: `--param NAME=VALUE`.

use std::collections::BTreeMap;

use landfall_api::{Document, Kind, Parameter, Template};
use landfall_client::Client;
use serde_json::Value;

use crate::failure::Failure;

/// The values, each read by the type that the stored template declares.
pub(super) async fn of_template(
    given: &[String], template: &str, client: &Client,
) -> Result<BTreeMap<String, Value>, Failure> {
    if given.is_empty() {
        return Ok(BTreeMap::new());
    }
    values(given, &stored(client, template).await?.spec.parameters)
}

/// The template of that name.
pub(super) async fn stored(client: &Client, name: &str) -> Result<Template, Failure> {
    match client.get(Kind::Template, name).await? {
        Document::Template(template) => Ok(template.into_inner()),
        other => Err(Failure::local("the coordinator sent another kind of document", other.kind(), "")),
    }
}

/// Each value as its declared type; without one as JSON where it is JSON.
pub(super) fn values(
    given: &[String], declared: &BTreeMap<String, Parameter>,
) -> Result<BTreeMap<String, Value>, Failure> {
    let mut out = BTreeMap::new();
    for text in given {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::Usage(format!("--param takes NAME=VALUE, not \"{text}\"")));
        };
        // An undeclared one is the coordinator's to refuse.
        let value = declared.get(name).map_or_else(|| Parameter::default().read(value), |known| known.read(value));
        if out.insert(name.to_owned(), value).is_some() {
            return Err(Failure::Usage(format!("--param {name} is given twice")));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_parameter_is_read_by_its_type_or_as_json() {
        let declared = json!({"t": {"type": "text"}, "l": {"type": "list"}, "i": {"type": "integer"}});
        let declared: BTreeMap<String, Parameter> = serde_json::from_value(declared).unwrap();
        let given =
            ["n=42", "b=bookworm", "q=\"12\"", "j=[1]", "e=", "u=a=b", "t=42", "l=a,b", "i=x"].map(String::from);
        let read = values(&given, &declared).unwrap();
        let want = json!({"n": 42, "b": "bookworm", "q": "12", "j": [1], "e": "", "u": "a=b", "t": "42", "l": ["a", "b"], "i": "x"});
        assert_eq!(json!(read), want);
        assert!(values(&["x".into()], &declared).is_err());
        assert!(values(&["x=1".into(), "x=2".into()], &declared).is_err());
    }
}
