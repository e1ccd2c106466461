//! The tools layers: served from the files that were hashed, whatever stands at their paths now. Each is named by its digest, so no
//! machine gets another one than that of its assignment.

use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use axum::{body::Body, response::Response};
use futures::stream;
use http::{HeaderMap, StatusCode};
use landfall_api::{Digest, message::ToolsLayer};
use sha2::{Digest as _, Sha256};

use super::file::{failed, head, plain};
use super::range::{Version, select};

/// The first bytes of a squashfs file.
const MAGIC: &[u8] = b"hsqs";
/// One read.
const CHUNK: usize = 256 << 10;
/// How many layers are served: of two processors the newest, and the one before, which older assignments name.
const KEPT: usize = 4;

/// The file is no layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is another format.
    #[error("is no squashfs file")]
    Format,
    /// It does not fit into the memory of machines.
    #[error("is larger than {} bytes", ToolsLayer::MAX_BYTES)]
    TooLarge,
}

/// A layer: a file that was hashed, and is open since.
#[derive(Debug)]
pub struct Layer {
    file: File,
    /// Of the whole file.
    pub digest: Digest,
    /// Bytes; 4 to [`ToolsLayer::MAX_BYTES`].
    pub size_bytes: u64,
    modified: SystemTime,
}

impl Layer {
    /// Opens and hashes the file. Blocking.
    ///
    /// # Errors
    /// [`LayerError`]
    pub fn open(path: &Path) -> Result<Self, LayerError> {
        let mut file = File::open(path)?;
        // Before it is hashed: what is written from here on shows.
        let modified = file.metadata()?.modified()?;
        let (mut hasher, mut size_bytes, mut buffer) = (Sha256::new(), 0, vec![0; CHUNK]);
        loop {
            let count = match file.read(&mut buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let bytes = buffer.get(..count).unwrap_or_default();
            if size_bytes == 0 && !bytes.starts_with(MAGIC) {
                return Err(LayerError::Format);
            }
            if bytes.is_empty() {
                let digest = Digest::from_sha256(hasher.finalize().into());
                return Ok(Self { file, digest, size_bytes, modified });
            }
            size_bytes += bytes.len() as u64;
            if size_bytes > ToolsLayer::MAX_BYTES {
                return Err(LayerError::TooLarge);
            }
            hasher.update(bytes);
        }
    }

    /// Where it is served below the address of the HTTP port.
    pub fn route(&self) -> String {
        format!("/boot/tools/{}", self.digest)
    }

    /// Whether it is as it was hashed. What is written over an open file changes it, what is put in its place does not.
    fn is_unchanged(&self) -> io::Result<bool> {
        let now = self.file.metadata()?;
        Ok(now.len() == self.size_bytes && now.modified()? == self.modified)
    }
}

/// The layers that are served, newest first.
#[derive(Debug, Default)]
pub struct Layers(ArcSwap<Vec<Arc<Layer>>>);

impl Layers {
    /// Serves these; of those before, the newest few stay, for assignments that name them.
    pub fn put(&self, layers: Vec<Layer>) {
        let mut all: Vec<Arc<Layer>> = layers.into_iter().map(Arc::new).collect();
        for old in self.0.load().iter() {
            if all.iter().all(|layer| layer.digest != old.digest) {
                all.push(old.clone());
            }
        }
        all.truncate(KEPT);
        self.0.store(Arc::new(all));
    }

    /// The response for a GET or HEAD of the layer with that digest.
    pub(super) async fn respond(&self, digest: &str, request: &HeaderMap) -> Response {
        let layer = self.0.load().iter().find(|layer| layer.digest.to_string() == digest).cloned();
        let Some(layer) = layer else {
            return plain(
                StatusCode::NOT_FOUND,
                "no such tools layer is served; it was replaced: retry the workflow\n",
            );
        };
        let answered = match layer.is_unchanged() {
            Ok(true) => answer(&layer, request),
            Ok(false) => {
                tracing::error!(service = "http", %digest, "the file of the tools layer was written over; reload the coordinator");
                let text = "the tools layer was written over: reload the coordinator, then retry the workflow\n";
                return plain(StatusCode::GONE, text);
            }
            Err(error) => Err(error),
        };
        answered.unwrap_or_else(|error| failed(Path::new(&layer.route()), &error))
    }
}

fn answer(layer: &Arc<Layer>, request: &HeaderMap) -> io::Result<Response> {
    let etag = format!("\"{}\"", layer.digest);
    let version = Version { length: layer.size_bytes, etag, modified: layer.modified };
    let (mut response, start, length) = head(&version, select(request, &version))?;
    *response.body_mut() = body(layer.clone(), start, start + length);
    Ok(response)
}

/// The bytes from `at` to `end`, read as they are sent.
fn body(layer: Arc<Layer>, at: u64, end: u64) -> Body {
    Body::from_stream(stream::try_unfold(at, move |at| {
        let layer = layer.clone();
        async move {
            let count = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            if count == 0 {
                return Ok(None);
            }
            let read = tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; count];
                layer.file.read_exact_at(&mut bytes, at).map(|()| bytes)
            });
            let bytes = read.await.map_err(io::Error::other)??;
            io::Result::Ok(Some((bytes, at + count as u64)))
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http_body_util::BodyExt as _;

    use super::*;

    fn layer(path: &Path, content: &[u8]) -> Result<Layer, LayerError> {
        fs::write(path, content).unwrap();
        Layer::open(path)
    }

    async fn asked(layers: &Layers, digest: Digest, range: &str) -> (u16, Vec<u8>) {
        let headers = HeaderMap::from_iter([(http::header::RANGE, range.parse().unwrap())]);
        let response = layers.respond(&digest.to_string(), &headers).await;
        (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn the_file_that_was_hashed_is_served() {
        let directory = tempfile::tempdir().unwrap();
        let (path, new) = (directory.path().join("tools"), directory.path().join("new"));
        let first = [MAGIC, &vec![7; CHUNK + 9]].concat();
        let layers = Layers::default();
        let opened = layer(&path, &first).unwrap();
        let old = opened.digest;
        layers.put(vec![opened]);
        // Another one is put in its place, and nothing is reloaded.
        fs::write(&new, b"hsqs and another").unwrap();
        fs::rename(&new, &path).unwrap();
        assert_eq!(asked(&layers, old, "").await, (200, first.clone()));
        // After the reload both are there.
        let opened = Layer::open(&path).unwrap();
        let now = opened.digest;
        layers.put(vec![opened]);
        assert_eq!(asked(&layers, now, "").await, (200, b"hsqs and another".to_vec()));
        assert_eq!(asked(&layers, old, "bytes=4-").await, (206, first[4..].to_vec()));
        // No change in any number of reloads.
        for _ in 0..9 {
            layers.put(vec![Layer::open(&path).unwrap()]);
        }
        assert_eq!(asked(&layers, old, "bytes=0-0").await, (206, b"h".to_vec()));
    }

    #[tokio::test]
    async fn only_the_newest_layers_stay() {
        let directory = tempfile::tempdir().unwrap();
        let layers = Layers::default();
        let mut digests = Vec::new();
        for n in 0..=KEPT {
            let opened = layer(&directory.path().join(n.to_string()), format!("hsqs{n}").as_bytes()).unwrap();
            digests.push(opened.digest);
            layers.put(vec![opened]);
        }
        let (status, text) = asked(&layers, digests[0], "").await;
        assert!(status == 404 && String::from_utf8_lossy(&text).contains("retry the workflow"));
        for digest in &digests[1..] {
            assert_eq!(asked(&layers, *digest, "").await.0, 200);
        }
    }

    #[tokio::test]
    async fn a_layer_that_was_written_over_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (path, layers) = (directory.path().join("tools"), Layers::default());
        let opened = layer(&path, b"hsqs").unwrap();
        let digest = opened.digest;
        layers.put(vec![opened]);
        fs::write(&path, "hsqs and more").unwrap();
        let (status, text) = asked(&layers, digest, "").await;
        assert!(status == 410 && String::from_utf8_lossy(&text).contains("reload the coordinator"));
    }

    #[test]
    fn another_file_is_no_layer() {
        let mut large = vec![0; usize::try_from(ToolsLayer::MAX_BYTES).unwrap() + 1];
        large[..4].copy_from_slice(MAGIC);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tools");
        assert!(matches!(Layer::open(&path), Err(LayerError::Read(_))));
        for content in [&b""[..], b"<html>"] {
            assert!(matches!(layer(&path, content), Err(LayerError::Format)));
        }
        assert!(matches!(layer(&path, &large), Err(LayerError::TooLarge)));
    }
}
