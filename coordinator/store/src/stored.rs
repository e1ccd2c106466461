//! Documents as rows hold them, which this version or another one wrote.
//!
//! Each row has the number of the document schema it was written in. A row of a newer one may have fields that this version
//! would drop at the next write, so the store does not open. A row of a known one that cannot be read stays as it is and
//! is reported; the others are served.

use landfall_api::{Document, Kind};

use crate::{memory::Row, traits::Unreadable};

/// The schema in which documents are stored. Rises when a document gets a field or a word that the version released last
/// does not know: with the first change of `tests/golden/schemas/` after a release.
pub(super) const DOCUMENT_SCHEMA: u32 = 1;

/// What the rows hold.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) documents: Vec<Row>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl Loaded {
    /// Takes a row in, or why its text cannot be had.
    pub(super) fn take(&mut self, kind: String, name: String, json: Result<String, String>) {
        match json.and_then(|json| read(&kind, &name, &json)) {
            Ok(row) => self.documents.push(row),
            Err(why) => self.unreadable.push(Unreadable { kind, name, why }),
        }
    }
}

/// The document of a row.
pub(super) fn read(kind: &str, name: &str, json: &str) -> Result<Row, String> {
    let document = parse(kind, json)?;
    if document.kind().as_str() == kind && document.metadata().name == name {
        return Ok(Row { document, bytes: json.len() });
    }
    Err(format!("its row holds {}", document.reference()))
}

/// Straight into its type: there are hundreds of thousands. Only one that is refused is read as a tree, for the words.
fn parse(kind: &str, json: &str) -> Result<Document, String> {
    let typed = match Kind::ALL.into_iter().find(|known| known.as_str() == kind) {
        Some(Kind::Machine) => serde_json::from_str(json).map(Document::Machine),
        Some(Kind::Template) => serde_json::from_str(json).map(Document::Template),
        Some(Kind::Workflow) => serde_json::from_str(json).map(Document::Workflow),
        Some(Kind::Secret) => serde_json::from_str(json).map(Document::Secret),
        Some(Kind::EnrolmentRule) => serde_json::from_str(json).map(Document::EnrolmentRule),
        Some(Kind::Pool) => serde_json::from_str(json).map(Document::Pool),
        None => return Err("this version has no such kind".to_owned()),
    };
    if let Ok(document) = typed {
        return Ok(document);
    }
    let value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Document::from_value(value).map_err(|problem| problem.to_string())
}
