//! One request for each of several machines: some at once, with a line each and a summary.

use std::future::Future;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use landfall_api::Kind;
use landfall_client::{Client, Scope};

use crate::args::{Machines, Several};
use crate::failure::Failure;
use crate::output;

/// The machines that the words select, in the order of their names.
///
/// # Errors
/// [`Failure`]: names and a selector, neither, or none that matches.
pub(crate) async fn named(args: &Machines, client: &Client) -> Result<Vec<String>, Failure> {
    match (&args.labels.selector, args.names.as_slice()) {
        (None, []) => Err(Failure::Usage("no machines selected; use names or --selector".into())),
        (Some(_), [_, ..]) => Err(Failure::Usage("names and --selector exclude each other; use one of them".into())),
        (None, names) => {
            let mut names: Vec<_> =
                names.iter().map(|name| name.strip_prefix("machine/").unwrap_or(name).to_owned()).collect();
            names.sort();
            names.dedup();
            Ok(names)
        }
        (Some(selector), []) => {
            let (found, _) = client.list(&Scope::of(Kind::Machine, Some(selector))).await?;
            if found.is_empty() {
                return Err(Failure::Usage(format!("no machine has the labels {selector}")));
            }
            Ok(found.into_iter().map(|document| document.metadata().name.clone()).collect())
        }
    }
}

/// Makes the request for each machine; `done` shows what came of one. A failure does not end the others, unless there are
/// too many; those that have begun are waited for.
///
/// # Errors
/// The machine's own [`Failure`] where it is one; else [`Failure::Partly`], after each was shown.
pub(crate) async fn each<T, F: Future<Output = Result<T, Failure>>>(
    names: Vec<String>, several: &Several, act: impl Fn(String) -> F,
    mut done: impl FnMut(&str, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let of = names.len();
    let most = several.max_failures.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let (mut waiting, mut begun, mut failed) = (names.into_iter(), FuturesUnordered::new(), 0);
    loop {
        while begun.len() < usize::from(several.max_parallel)
            && failed < most
            && let Some(name) = waiting.next()
        {
            let asked = act(name.clone());
            begun.push(async move { (name, asked.await) });
        }
        match begun.next().await {
            None => break,
            Some((name, Ok(value))) => done(&name, value)?,
            Some((_, Err(failure))) if of == 1 => return Err(failure),
            Some((name, Err(failure))) => {
                failed += 1;
                show(&name, &failure);
            }
        }
    }
    let left = waiting.len();
    if failed == 0 { Ok(()) } else { Err(Failure::Partly { failed, left, of }) }
}

/// Shows a failure of one of several machines, unless it was shown.
pub(crate) fn show(machine: &str, failure: &Failure) {
    if !matches!(failure, Failure::NotSucceeded) {
        output::to_stderr(&format!("machine/{machine}:"));
        failure.print();
    }
}
