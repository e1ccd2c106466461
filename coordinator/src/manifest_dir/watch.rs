//! Notices of changes in a directory: the kernel's inotify. If it is not available (too many watches, a network file
//! system), only the slow scan remains.

use std::{io, os::fd::OwnedFd, path::Path};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::net::unix::pipe;

/// Written, moved, deleted, or made readable; and the directory itself moved away.
const WHAT: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_CREATE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF);

/// Room for some events at once; the kernel refuses a read too small for one, which has a name of up to 255 bytes.
const EVENTS: usize = 4096;

/// Changes of one directory. An inotify descriptor is read like a pipe; what the events say does not matter, because
/// everything is looked at.
pub(super) struct Changes(pipe::Receiver);

impl Changes {
    /// `None`, and a line in the log, where the kernel does not tell.
    pub(super) fn of(directory: &Path) -> Option<Self> {
        let watch = || -> io::Result<pipe::Receiver> {
            let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
            inotify.add_watch(directory, WHAT)?;
            pipe::Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify))
        };
        watch()
            .inspect_err(|error| {
                let directory = directory.display();
                tracing::warn!(%directory, %error, "changes of the manifests are seen only by the next full scan");
            })
            .ok()
            .map(Self)
    }

    /// Waits for the next changes; for ever if the kernel reports none any more.
    pub(super) async fn next(&self) {
        let mut events = [0; EVENTS];
        while self.0.readable().await.is_ok() {
            match self.0.try_read(&mut events) {
                Ok(_) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot read changes of the manifests");
                    break;
                }
            }
        }
        std::future::pending().await
    }
}
