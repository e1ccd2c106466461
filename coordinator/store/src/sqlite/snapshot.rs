//! A consistent copy of the database, by SQLite's own backup: pages are copied between the writer's transactions, and what
//! these change is carried over, so that writers never wait for more than one step.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, ffi};

use crate::error::StoreError;

/// Pages in one step: a MiB, some milliseconds.
const STEP: i32 = 256;
/// Steps in a row that may find the database locked, by a program that is not this one.
const LOCKED_STEPS: u32 = 20_000;

/// Copies the database behind `from` to the new file `to`, mode 0600, and flushes it. `between` runs after every step, and
/// may write through `from`.
pub(super) fn copy(from: &Connection, to: &Path, mut between: impl FnMut()) -> Result<(), StoreError> {
    let failed = |source: io::Error| StoreError::File { path: to.to_owned(), source };
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed)?;
    let copied =
        pages(from, to, &mut between).and_then(|()| File::open(to).and_then(|file| file.sync_all()).map_err(failed));
    if copied.is_err() {
        // Half a copy is useless; if it cannot be removed, the first error is more important.
        let _left = std::fs::remove_file(to);
    }
    copied
}

fn pages(from: &Connection, to: &Path, between: &mut impl FnMut()) -> Result<(), StoreError> {
    let mut target = Connection::open(to)?;
    {
        let backup = Backup::new(from, &mut target)?;
        let mut locked = 0;
        loop {
            match backup.step(STEP)? {
                StepResult::Done => break,
                StepResult::More => locked = 0,
                _ if locked < LOCKED_STEPS => {
                    locked += 1;
                    std::thread::yield_now();
                }
                _ => return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None).into()),
            }
            between();
        }
    }
    // The copy says of itself that it has a log beside it, as the original does; alone it must not look for one.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    target.close().map_err(|(_, error)| error.into())
}
