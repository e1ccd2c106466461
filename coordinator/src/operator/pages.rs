//! Lists in pages, as Kubernetes has them: `limit` and `continue`.
//!
//! A page is read when it is asked for; nothing is kept between two. A document that changes meanwhile is in its page as it
//! is then, and a watch from the first page's revision, which every page states, tells what the pages missed.

use axum::http::StatusCode;
use landfall_api::{Document, ErrorCode, Kind, LabelSelector, List, ListMetadata, Problem};
use landfall_store::{DocumentStore, StoreError};
use serde_json::value::RawValue;

use super::problem::Refusal;

/// Documents of a page at most, and of one without a limit: some 10 MB of machines with their facts.
const PAGE: usize = 500;

/// Bytes of a page's documents at most, unless it has one alone. A page is made in one piece, and several readers may ask at once.
const PAGE_BYTES: usize = 8 << 20;

/// Which documents of a kind are asked for.
pub(super) struct Wanted {
    pub(super) kind: Kind,
    pub(super) name: Option<String>,
    pub(super) labels: LabelSelector,
}

impl Wanted {
    /// Whether a document of that name may be meant, whatever its labels.
    pub(super) fn named(&self, name: &str) -> bool {
        self.name.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// Whether a document can begin or cease to be meant while it exists.
    pub(super) fn may_change(&self) -> bool {
        !self.labels.is_empty()
    }

    pub(super) fn has(&self, document: &Document) -> bool {
        document.kind() == self.kind
            && self.named(&document.metadata().name)
            && self.labels.matches(&document.metadata().labels)
    }
}

/// Where a list goes on: `<revision of the first page>.<documents so far>.<name of the last one>`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Token {
    /// Absent: at the beginning.
    revision: Option<u64>,
    before: u64,
    last: String,
}

impl Token {
    /// The revision at which the list began; 0 at its beginning.
    pub(super) fn revision(&self) -> u64 {
        self.revision.unwrap_or_default()
    }
}

impl std::str::FromStr for Token {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let mut parts = text.splitn(3, '.');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (revision, before) = (number(), number());
        let last = parts.next().filter(|name| landfall_api::is_dns_label(name));
        match (revision, before, last) {
            (Some(_), Some(before), Some(last)) => Ok(Self { revision, before, last: last.to_owned() }),
            _ => Err(bad("is not valid")),
        }
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.revision.unwrap_or_default(), self.before, self.last)
    }
}

fn bad(why: &str) -> Refusal {
    let problem = Problem::new(ErrorCode::InvalidDocument, format!("the continue token {why}"))
        .at("continue")
        .hint("give metadata.continue of the page before as it is, or leave it out to list from the beginning");
    Refusal::with_status(StatusCode::BAD_REQUEST, problem)
}

/// A watch that asks for a page.
pub(super) fn unpaged() -> Refusal {
    let problem = Problem::new(ErrorCode::InvalidDocument, "a watch has no pages")
        .at("watch")
        .hint("list with limit and continue, then watch from the list's resourceVersion");
    Refusal::with_status(StatusCode::BAD_REQUEST, problem)
}

/// A page of at most `limit` documents beyond the token's, as JSON. A request for all, with 0, or for more than a page may hold
/// gets a page as well, with a token for the next one.
///
/// # Errors
/// A token of another store.
pub(super) async fn page(
    documents: &dyn DocumentStore, wanted: &Wanted, limit: usize, from: Token,
) -> Result<List<Box<RawValue>>, Refusal> {
    let before = from.before;
    let limit = if limit == 0 { PAGE } else { limit.min(PAGE) };
    let List { items: found, mut metadata } = list(documents, wanted, limit, from).await?;
    let (mut items, mut bytes, mut last) = (Vec::with_capacity(found.len()), 0_usize, "");
    for document in &found {
        let item = serde_json::value::to_raw_value(document).map_err(|error| {
            Problem::new(ErrorCode::Internal, format!("{} does not serialise: {error}", document.reference()))
        })?;
        bytes = bytes.saturating_add(item.get().len());
        if bytes > PAGE_BYTES && !items.is_empty() {
            let (revision, left) = (Some(metadata.resource_version), found.len() - items.len());
            let next = Token { revision, before: before + items.len() as u64, last: last.to_owned() };
            metadata.next = Some(next.to_string());
            let remaining = metadata.remaining_item_count.unwrap_or_default() + left as u64;
            metadata.remaining_item_count = (!wanted.may_change()).then_some(remaining);
            break;
        }
        last = &document.metadata().name;
        items.push(item);
    }
    Ok(List { items, metadata })
}

/// At most `limit` documents beyond the token's, 0 for all: they are shared with the store, not copied.
///
/// # Errors
/// A token of another store.
pub(super) async fn list(
    documents: &dyn DocumentStore, wanted: &Wanted, limit: usize, from: Token,
) -> Result<List<Document>, Refusal> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    if let Some(name) = &wanted.name {
        return Ok(one(documents, wanted, name).await?);
    }
    let (mut items, mut last) = (Vec::new(), from.last);
    let mut revision = from.revision;
    loop {
        let chunk = if wanted.may_change() { PAGE.max(limit) } else { limit };
        let page = documents.page(wanted.kind, &last, chunk).await?;
        let first = *revision.get_or_insert(page.revision);
        if first > page.revision {
            return Err(bad("is of another coordinator's list"));
        }
        let mut more = page.more;
        for document in page.items {
            if items.len() == limit {
                more = true;
                break;
            }
            last.clone_from(&document.metadata().name);
            if wanted.has(&document) {
                items.push(document);
            }
        }
        if !more || items.len() == limit {
            let before = from.before + items.len() as u64;
            let next = more.then(|| Token { revision: Some(first), before, last }.to_string());
            let remaining = page.total.saturating_sub(before);
            let remaining_item_count = (more && !wanted.may_change()).then_some(remaining);
            return Ok(List { items, metadata: ListMetadata { resource_version: first, next, remaining_item_count } });
        }
    }
}

/// Of one document no others are read.
async fn one(documents: &dyn DocumentStore, wanted: &Wanted, name: &str) -> Result<List<Document>, StoreError> {
    // The revision first: what changes in between is seen by a watch from there.
    let resource_version = documents.page(wanted.kind, "", 0).await?.revision;
    let found = documents.get(wanted.kind, name).await?.filter(|document| wanted.has(document));
    Ok(List {
        items: found.into_iter().collect(),
        metadata: ListMetadata { resource_version, ..ListMetadata::default() },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::tests::{Api, api};

    fn template(name: &str, rack: &str) -> Document {
        let document = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Template",
            "metadata": {"name": name, "labels": {"rack": rack}}, "spec": {"actions": [{"name": "r", "reboot": {}}]}});
        Document::from_value(document).unwrap()
    }

    async fn apply(api: &Api, names: &[&str], rack: &str) {
        for name in names {
            api.coordinator.store.documents().create(template(name, rack)).await.unwrap();
        }
    }

    /// Names, `resourceVersion`, `remainingItemCount`, and where the next page begins.
    async fn page(api: &Api, query: &str) -> (String, u64, Option<u64>, Option<String>) {
        let (status, list) = api.get(&format!("/templates?{query}")).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        let metadata = &list["metadata"];
        let names = list["items"].as_array().unwrap().iter().map(|d| d["metadata"]["name"].as_str().unwrap());
        let next = metadata.get("continue").and_then(Value::as_str).map(str::to_owned);
        let names: Vec<&str> = names.collect();
        let left = metadata.get("remainingItemCount").and_then(Value::as_u64);
        (names.join(" "), metadata["resourceVersion"].as_u64().unwrap(), left, next)
    }

    #[tokio::test]
    async fn pages_join_into_the_whole_list() {
        let api = api().await;
        apply(&api, &["e", "c", "a", "d", "b"], "r7").await;
        let (names, first, left, next) = page(&api, "limit=2").await;
        assert_eq!((names.as_str(), first, left), ("a b", 5, Some(3)));
        // What changes between two pages: the first page's revision stays, so a watch from there misses nothing.
        apply(&api, &["bb"], "r7").await;
        let (names, second, left, next) = page(&api, &format!("limit=2&continue={}", next.unwrap())).await;
        assert_eq!((names.as_str(), second, left), ("bb c", first, Some(2)));
        let (names, third, left, next) = page(&api, &format!("continue={}", next.unwrap())).await;
        assert_eq!((names.as_str(), third, left, next), ("d e", first, None, None));
        let (names, _, left, next) = page(&api, "limit=6").await;
        assert_eq!((names.as_str(), left, next), ("a b bb c d e", None, None));
        assert_eq!(page(&api, "limit=0").await.0, names);
    }

    #[tokio::test]
    async fn a_list_without_a_limit_is_a_page_too() {
        let api = api().await;
        let names: Vec<String> = (0..=PAGE).map(|n| format!("t-{n:03}")).collect();
        let documents = names.iter().map(|name| template(name, ""));
        let made = documents.map(|document| api.coordinator.store.documents().create(document));
        futures::future::try_join_all(made).await.unwrap();
        let last = names.last().unwrap().as_str();
        for query in ["", "limit=0", "limit=100000"] {
            let (found, _, left, next) = page(&api, query).await;
            assert_eq!((found.split(' ').count(), left), (PAGE, Some(1)), "{query}");
            let (rest, _, left, next) = page(&api, &format!("{query}&continue={}", next.unwrap())).await;
            assert_eq!((rest.as_str(), left, next), (last, None, None), "{query}");
        }
    }

    #[tokio::test]
    async fn a_page_ends_at_its_bytes() {
        let api = api().await;
        // Nine of these fill it: a document has at most 1 MiB.
        let large = "x".repeat(PAGE_BYTES / 9 - 1000);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
            api.coordinator.store.documents().create(template(name, &large)).await.unwrap();
        }
        let (found, first, left, next) = page(&api, "").await;
        assert_eq!((found.as_str(), first, left), ("a b c d e f g h i", 10, Some(1)));
        let (found, second, left, next) = page(&api, &format!("continue={}", next.unwrap())).await;
        assert_eq!((found.as_str(), second, left, next), ("j", first, None, None));
    }

    #[tokio::test]
    async fn a_selected_list_has_pages_of_what_matches() {
        let api = api().await;
        apply(&api, &["a", "c", "e"], "r7").await;
        apply(&api, &["b", "d", "f"], "r8").await;
        let (names, _, left, next) = page(&api, "limit=2&labelSelector=rack%3Dr7").await;
        assert_eq!((names.as_str(), left), ("a c", None));
        let (names, _, _, next) =
            page(&api, &format!("limit=2&labelSelector=rack%3Dr7&continue={}", next.unwrap())).await;
        assert_eq!((names.as_str(), next), ("e", None));
        assert_eq!(page(&api, "name=b&limit=1").await, ("b".into(), 6, None, None));
        assert_eq!(page(&api, "name=b&labelSelector=rack%3Dr7").await.0, "");
    }

    #[tokio::test]
    async fn a_bad_token_is_refused_with_what_to_do() {
        let api = api().await;
        for query in ["continue=x", "continue=", "continue=99.0.a", "watch=true&limit=2", "watch=true&continue=0.0.a"] {
            let (status, problem) = api.get(&format!("/machines?{query}")).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {problem}");
            assert!(!problem["hint"].as_str().unwrap().is_empty(), "{query}: {problem}");
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let token = "42.7.node-1".parse::<Token>().unwrap();
        assert_eq!(token, Token { revision: Some(42), before: 7, last: "node-1".into() });
        for bad in ["", "42", "42.7", "42.7.", "42.7.No", "42.7.a.b", "-1.7.a", "x.7.a", "42.7.a\n"] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }
}
