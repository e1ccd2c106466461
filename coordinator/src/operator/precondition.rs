//! `If-Match` (RFC 9110, section 13.1.1): a change is made only if the document is still the one its author read. The
//! entity tag of a document is its resourceVersion, and every GET of one names it as `ETag`.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use landfall_api::{Document, ErrorCode, Problem};

use super::problem::Refusal;

/// What a request demands of the document that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfMatch {
    /// Nothing.
    Absent,
    /// `*`: that there is one.
    Any,
    /// That it has this resourceVersion.
    Version(u64),
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Refusal;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else { return Ok(Self::Absent) };
        parse(value.to_str().unwrap_or_default()).ok_or_else(|| {
            Problem::new(ErrorCode::InvalidDocument, "the header If-Match is invalid")
                .at("If-Match")
                .hint("send the ETag of one GET, such as \"42\" with its quotes, or *")
                .into()
        })
    }
}

fn parse(value: &str) -> Option<IfMatch> {
    match value.trim() {
        "*" => Some(IfMatch::Any),
        tag => Some(IfMatch::Version(tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?)),
    }
}

impl IfMatch {
    /// Refuses if the document that is stored is not the one demanded.
    pub(super) fn check(self, stored: Option<&Document>) -> Result<(), Refusal> {
        let is = stored.map(|document| document.metadata().resource_version);
        let (holds, wanted) = match self {
            Self::Absent => (true, String::new()),
            Self::Any => (is.is_some(), "If-Match demands that it exists".to_owned()),
            Self::Version(wanted) => (is == Some(wanted), format!("If-Match names {wanted}")),
        };
        if holds {
            return Ok(());
        }
        let is =
            is.map_or("there is no such document".to_owned(), |is| format!("the document has resourceVersion {is}"));
        Err(failed(Problem::new(ErrorCode::Conflict, format!("{is}; {wanted}"))))
    }

    /// What the engine refused: where it compared the version, a precondition failed.
    pub(super) fn refused(self, problem: Problem) -> Refusal {
        match self.version() {
            Some(_) if problem.code == ErrorCode::Conflict => failed(problem),
            _ => problem.into(),
        }
    }

    /// The version that a change must replace.
    pub(super) fn version(self) -> Option<u64> {
        match self {
            Self::Version(version) => Some(version),
            Self::Absent | Self::Any => None,
        }
    }
}

/// 412, with what to do.
fn failed(problem: Problem) -> Refusal {
    let problem = problem.hint("GET the document again, repeat the change on it, and send its ETag");
    Refusal::with_status(StatusCode::PRECONDITION_FAILED, problem)
}

/// The entity tag of a document.
pub(super) fn tag(document: &Document) -> (header::HeaderName, HeaderValue) {
    // Digits and quotes are a header's value; there is no other case.
    let value = HeaderValue::from_str(&format!("\"{}\"", document.metadata().resource_version));
    (header::ETAG, value.unwrap_or(HeaderValue::from_static("\"0\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_strong_tag_or_a_star_is_read() {
        assert_eq!(parse("\"42\""), Some(IfMatch::Version(42)));
        assert_eq!(parse(" * "), Some(IfMatch::Any));
        for bad in ["", "42", "\"\"", "\"a\"", "W/\"42\"", "\"1\", \"2\"", "\"-1\""] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
