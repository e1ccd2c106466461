//! A backup of the running coordinator, as a stream.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::{fs, io};

use axum::body::Bytes;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::{BackupError, files, io_error, pack::Packed};
use landfall_store::Upkeep;

/// Pieces that wait for a slow reader, and their size, bytes.
const QUEUE: usize = 16;
const PIECE: usize = 64 << 10;

/// The file's bytes; it breaks off with an error where it cannot go on.
pub type Stream = ReceiverStream<io::Result<Bytes>>;

/// Copies the database and hands out the backup. Disk is needed for one copy of the database; memory for none.
///
/// # Errors
/// [`BackupError`] of copying and reading. What fails later breaks the stream off, and the reader's digest shows it.
pub async fn stream(upkeep: &dyn Upkeep, data_dir: &Path) -> Result<Stream, BackupError> {
    // A copy has its name only while this is held: whatever else has such a name was left by a crash.
    static COPYING: Mutex<()> = Mutex::const_new(());
    let copying = COPYING.lock().await;
    files::remove_stale(data_dir)?;
    let copy = files::staging(data_dir);
    upkeep.snapshot(&copy).await?;
    let opened = File::open(&copy).map_err(io_error("open", &copy));
    fs::remove_file(&copy).map_err(io_error("remove", &copy))?;
    drop(copying);
    let (database, data_dir) = (opened?, data_dir.to_owned());
    let packed = tokio::task::spawn_blocking(move || Packed::of(&data_dir, database))
        .await
        .map_err(|error| BackupError::Refused(error.to_string()))??;
    let (sender, pieces) = mpsc::channel(QUEUE);
    tokio::task::spawn_blocking(move || {
        let out = io::BufWriter::with_capacity(PIECE, Pieces(sender.clone()));
        if let Err(error) = packed.write(out) {
            tracing::warn!(%error, "a backup broke off");
            // The reader may have gone.
            let _gone = sender.blocking_send(Err(error));
        }
    });
    Ok(ReceiverStream::new(pieces))
}

struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "its reader has gone");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
