//! Why a container could not be put together.

use std::io;

/// One step failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub(super) struct InitError {
    what: String,
    #[source]
    source: io::Error,
}

/// Makes one of the kernel's reason; `what` continues "cannot".
pub(super) fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> InitError {
    let what = what.into();
    move |source| InitError { what, source: source.into() }
}
