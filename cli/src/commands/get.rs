//! `landfall get`.

use std::{cmp::Ordering, collections::BTreeMap};

use landfall_api::{Document, Kind};
use landfall_client::{Client, Scope};
use serde_json::Value;

use super::sightings;
use crate::args::{Get, Output, Selection};
use crate::failure::Failure;
use crate::jsonpath::Expression;
use crate::live::News;
use crate::output::Out;
use crate::show::Look;
use crate::{live, output, show};

pub(crate) async fn run(args: &Get, client: &Client, out: &mut Out) -> Result<(), Failure> {
    if let [word] = args.which.words.as_slice()
        && sightings::WORDS.contains(&word.as_str())
    {
        return sightings::run(args, client, out).await;
    }
    let selection = args.which.selection()?;
    args.labels.with(&selection)?;
    if args.watch {
        return watch(args, &selection, client, out).await;
    }
    let mut documents = Vec::new();
    let (mut revision, mut failed) = (0, None);
    match &selection {
        Selection::Kinds(kinds) => {
            for kind in kinds {
                let (found, at) = client.list(&Scope::of(*kind, args.labels.selector.as_ref())).await?;
                documents.extend(found);
                revision = at;
            }
        }
        Selection::Named(named) => {
            for (kind, name) in named {
                match client.get(*kind, name).await.map_err(Failure::from) {
                    Ok(document) => documents.push(document),
                    // Existing documents are still shown; each failure is printed, and the last one decides the exit
                    // code.
                    Err(failure) => {
                        if let Some(earlier) = failed.replace(failure) {
                            Failure::print(&earlier);
                        }
                    }
                }
            }
            documents.sort_by_key(Document::kind);
        }
    }
    if let Some(failure) = failed.take_if(|_| documents.is_empty()) {
        return Err(failure);
    }
    if let Some(path) = &args.sort_by {
        sort(&mut documents, path)?;
    }
    if documents.is_empty() && args.output.is_table() {
        output::to_stderr(&nothing(&selection.kinds(), args));
    } else {
        let one = matches!(&selection, Selection::Named(named) if named.len() == 1);
        let look = Look { header: !args.no_headers, labels: args.show_labels, one, revision };
        show::documents(&args.output, &documents, look, out)?;
    }
    failed.map_or(Ok(()), Err)
}

fn nothing(kinds: &[Kind], args: &Get) -> String {
    let words = kinds.iter().map(|k| k.plural()).collect::<Vec<_>>().join(", ");
    match &args.labels.selector {
        Some(labels) => format!("There are no {words} with {labels}."),
        None => format!("There are no {words}."),
    }
}

/// By kind, then by the value at the path: numbers by value, everything else as text, documents without a value first.
fn sort(documents: &mut Vec<Document>, path: &Expression) -> Result<(), Failure> {
    let mut keyed = Vec::new();
    for document in documents.drain(..) {
        let tree = serde_json::to_value(&document).map_err(show::unseen)?;
        keyed.push((path.all(&tree).first().map(|found| (*found).clone()), document));
    }
    keyed.sort_by(|(a, one), (b, other)| one.kind().cmp(&other.kind()).then_with(|| order(a.as_ref(), b.as_ref())));
    documents.extend(keyed.into_iter().map(|(_, document)| document));
    Ok(())
}

fn order(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Some(a), Some(b)) => crate::jsonpath::plain(a).cmp(&crate::jsonpath::plain(b)),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Which documents were shown, and in which version.
type Shown = BTreeMap<(Kind, String), u64>;

fn key(document: &Document) -> (Kind, String) {
    (document.kind(), document.metadata().name.clone())
}

/// The documents of a scope that were shown and are missing in its list.
fn absent(shown: &Shown, scope: &Scope, documents: &[Document]) -> Vec<(Kind, String)> {
    let there: Vec<_> = documents.iter().map(key).collect();
    shown.keys().filter(|key| scope.has(key.0, &key.1) && !there.contains(key)).cloned().collect()
}

fn gone(keys: Vec<(Kind, String)>, shown: &mut Shown, args: &Get) {
    for key in keys {
        if shown.remove(&key).is_some() && args.output.is_table() {
            output::to_stderr(&format!("{}/{} is gone", key.0.singular(), key.1));
        }
    }
}

/// Refuses names without a document: the command would never show anything for them.
async fn all_there(
    selection: &Selection, scope: &Scope, documents: &[Document], client: &Client,
) -> Result<(), Failure> {
    let Selection::Named(named) = selection else { return Ok(()) };
    let there: Vec<&str> = documents.iter().map(|d| d.metadata().name.as_str()).collect();
    match named.iter().find(|(kind, name)| scope.has(*kind, name) && !there.contains(&name.as_str())) {
        Some((kind, name)) => {
            // This is only a hint: if it is not available, that is not a failure.
            let names = client.names(*kind).await.unwrap_or_default();
            Err(Failure::missing(*kind, name, &names.iter().map(String::as_str).collect::<Vec<_>>(), ""))
        }
        None => Ok(()),
    }
}

async fn watch(args: &Get, selection: &Selection, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let mut feed = live::feed(client, live::scopes(selection, args.labels.selector.as_ref()));
    let wanted = |d: &Document| selection.has(d.kind(), &d.metadata().name);
    let mut shown = Shown::new();
    let (mut headed, mut listed) = (Vec::new(), Vec::new());
    while let Some(news) = feed.recv().await {
        let documents = match news {
            News::All(scope, documents, _) => {
                if listed.contains(&scope) {
                    // A deletion without a watch is not reported in another way.
                    gone(absent(&shown, &scope, &documents), &mut shown, args);
                } else {
                    all_there(selection, &scope, &documents, client).await?;
                    listed.push(scope);
                }
                documents
            }
            News::Changed(document) => vec![document],
            News::Gone(document) => {
                gone(vec![key(&document)], &mut shown, args);
                continue;
            }
            News::Lost(failure, wait) => {
                output::to_stderr(&format!("{failure}; next attempt in {:.1} s", wait.as_secs_f64()));
                continue;
            }
            News::Ended(failure) => return Err(failure),
        };
        // After a reconnect all documents are listed again: only changed ones are shown.
        let new = |d: &Document| shown.get(&key(d)) != Some(&d.metadata().resource_version);
        let documents: Vec<Document> = documents.into_iter().filter(|d| wanted(d) && new(d)).collect();
        for document in &documents {
            shown.insert(key(document), document.metadata().resource_version);
        }
        let Some(kind) = documents.first().map(Document::kind) else { continue };
        let first = !headed.contains(&kind);
        if first {
            headed.push(kind);
        }
        let look = Look { header: first && !args.no_headers, labels: args.show_labels, one: true, revision: 0 };
        match args.output {
            Output::Json => documents.iter().try_for_each(|d| out.json_line(d))?,
            Output::Yaml => {
                for document in &documents {
                    out.line("---")?;
                    out.yaml(document)?;
                }
            }
            Output::JsonPath(_) => {
                documents.iter().try_for_each(|d| show::documents(&args.output, std::slice::from_ref(d), look, out))?;
            }
            _ => show::documents(&args.output, &documents, look, out)?,
        }
    }
    Ok(())
}
