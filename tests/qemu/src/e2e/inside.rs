//! Work inside a lab's network, to which this program's own threads do not belong.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use landfall_lab::Network;
use nix::sched::{CloneFlags, setns};
use tokio::sync::oneshot;

/// Does work on this thread, which stays in the namespace. A thread is in a namespace alone; the others stay where they are.
pub(super) fn inside<T>(namespace: &Path, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let file = File::open(namespace).with_context(|| namespace.display().to_string())?;
    setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("cannot enter {}", namespace.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// Does work on a thread of its own in the network of a lab, and gives its result.
pub(super) async fn in_network<T, W>(network: &Network, work: W) -> anyhow::Result<T>
where
    T: Send + 'static,
    W: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let namespace = file_of(network.namespace().name());
    let (end, ended) = oneshot::channel();
    // Without a receiver the test has ended.
    std::thread::Builder::new().name("inside".into()).spawn(move || drop(end.send(inside(&namespace, work))))?;
    ended.await?
}

/// The file that stands for a namespace.
pub(super) fn file_of(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}
