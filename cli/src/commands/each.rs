//! One request for each of several machines: some at once, with a line each and a summary.

use std::future::Future;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use landfall_api::{Kind, LabelSelector};
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
            stated(selector)?;
            let (found, _) = client.list(&Scope::of(Kind::Machine, Some(selector))).await?;
            if found.is_empty() {
                return Err(Failure::Usage(format!("no machine has the labels {selector}")));
            }
            Ok(found.into_iter().map(|document| document.metadata().name.clone()).collect())
        }
    }
}

/// Refuses a selector without a label, as a variable of a shell that is not set makes it: it would take every machine.
///
/// # Errors
/// [`Failure::Usage`].
pub(crate) fn stated(selector: &LabelSelector) -> Result<(), Failure> {
    match selector.is_empty() {
        true => Err(Failure::Usage("the selector is empty, and would take every machine; name a label".into())),
        false => Ok(()),
    }
}

/// Makes the request for each of these; `done` shows what came of one. A failure does not end the others, unless there are too
/// many, or the coordinator does not answer, or the reader of the output has gone: then no other is begun, and those that have
/// begun are waited for.
///
/// # Errors
/// The machine's own [`Failure`] where it is one; else [`Failure::Partly`], after each was shown.
pub(crate) async fn each<T, F: Future<Output = Result<T, Failure>>>(
    names: Vec<String>, several: &Several, act: impl Fn(String) -> F,
    mut done: impl FnMut(&str, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let of = names.len();
    let most = several.max_failures.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let (mut waiting, mut begun) = (names.into_iter(), FuturesUnordered::new());
    let (mut failed, mut unread, mut stop) = (0, None, false);
    loop {
        while begun.len() < usize::from(several.max_parallel)
            && failed < most
            && !stop
            && let Some(name) = waiting.next()
        {
            let asked = act(name.clone());
            begun.push(async move { (name, asked.await) });
        }
        let Some((name, outcome)) = begun.next().await else { break };
        match outcome {
            Ok(value) => match done(&name, value) {
                Err(failure) if of > 1 => unread = Some(failure.cut_off()),
                shown => shown?,
            },
            Err(failure) if of == 1 => return Err(failure),
            Err(failure @ Failure::Closed) => unread = Some(failure.cut_off()),
            Err(failure) => {
                failed += 1;
                stop |= matches!(failure, Failure::Unreachable { .. });
                show(&name, &failure);
            }
        }
        stop |= unread.is_some();
    }
    let left = waiting.len();
    match unread {
        Some(failure) => Err(failure),
        None if failed == 0 => Ok(()),
        None => Err(Failure::Partly { failed, left, of }),
    }
}

/// Shows a failure of one of several, unless it was shown. Machines are named without their kind.
pub(crate) fn show(name: &str, failure: &Failure) {
    if !matches!(failure, Failure::NotSucceeded) {
        let kind = if name.contains('/') { "" } else { "machine/" };
        output::to_stderr(&format!("{kind}{name}:"));
        failure.print();
    }
}
