//! The loaders in memory: one copy of each, however many machines fetch it at once.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::Mutex;

/// A loader is a few hundred kilobytes; something larger is not one.
const MAX_FILE: u64 = 16 << 20;

/// The directory of loaders.
pub(super) struct Loaders {
    directory: PathBuf,
    kept: Mutex<HashMap<&'static str, Kept>>,
}

struct Kept {
    length: u64,
    modified: Option<SystemTime>,
    content: Arc<[u8]>,
}

impl Loaders {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, kept: Mutex::default() }
    }

    /// The content of a loader; read again only when the file has changed.
    ///
    /// # Errors
    /// When the file is not there, or is far too large to be a loader.
    pub(super) async fn load(&self, name: &'static str) -> io::Result<Arc<[u8]>> {
        let path = self.directory.join(name);
        // Held while reading, so that a rack that comes at once reads each file once.
        let mut kept = self.kept.lock().await;
        let about = tokio::fs::metadata(&path).await?;
        let (length, modified) = (about.len(), about.modified().ok());
        if let Some(same) = kept.get(name).filter(|k| (k.length, k.modified) == (length, modified)) {
            return Ok(Arc::clone(&same.content));
        }
        let content: Arc<[u8]> = read(&path, length).await?.into();
        kept.insert(name, Kept { length, modified, content: Arc::clone(&content) });
        Ok(content)
    }
}

async fn read(path: &Path, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_FILE {
        return Err(io::Error::other(format!("{} has {length} bytes, more than any loader", path.display())));
    }
    tokio::fs::read(path).await
}
