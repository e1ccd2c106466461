//! How many files this process may have open: every connection is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Taken where the limit cannot be read: what a process has nearly everywhere.
const USUAL: u64 = 1024;

/// Raises the soft limit of open files to the hard one. A service manager commonly gives 1024 of them, which is the limit
/// of programs that still use `select`, and leaves the rest to those that ask.
pub fn raise() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, limit = limit(), "cannot raise the limit of open files");
    }
}

/// How many files this process may have open now.
pub fn limit() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}
