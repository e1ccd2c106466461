//! A site's own registry of images: Debian's `docker-registry`, whose storage the lab fills itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{LabError, Log, Mark, Network, Process};

/// Storage of a registry, before it is started.
#[derive(Debug)]
pub struct RegistryStorage {
    root: PathBuf,
    repository: String,
}

impl RegistryStorage {
    /// Empty, with one repository, below a directory that is made.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn create(root: &Path, repository: &str) -> Result<Self, LabError> {
        fs::create_dir_all(root).map_err(LabError::file("cannot make", root))?;
        Ok(Self { root: root.to_owned(), repository: repository.to_owned() })
    }

    /// Adds a file as a blob, by a second name where that is possible; `digest` is its own, such as `sha256:…`.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn blob(&self, digest: &str, file: &Path) -> Result<(), LabError> {
        let data = self.data(digest)?;
        if fs::hard_link(file, &data).is_err() {
            fs::copy(file, &data).map_err(LabError::file("cannot copy", file))?;
        }
        self.link("_layers", digest)
    }

    /// Adds JSON as a blob; its digest and size.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn json(&self, content: &Value) -> Result<(String, usize), LabError> {
        let stored = self.stored(content)?;
        self.link("_layers", &stored.0)?;
        Ok(stored)
    }

    /// Adds a manifest; its digest.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn manifest(&self, content: &Value) -> Result<String, LabError> {
        let (digest, _) = self.stored(content)?;
        self.link("_manifests/revisions", &digest)?;
        Ok(digest)
    }

    fn stored(&self, content: &Value) -> Result<(String, usize), LabError> {
        let text = content.to_string();
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&text)));
        let data = self.data(&digest)?;
        fs::write(&data, &text).map_err(LabError::file("cannot write", &data))?;
        Ok((digest, text.len()))
    }

    /// Where the registry keeps the bytes of a digest.
    fn data(&self, digest: &str) -> Result<PathBuf, LabError> {
        let hex = digest.trim_start_matches("sha256:");
        let folder = self.root.join("docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex);
        fs::create_dir_all(&folder).map_err(LabError::file("cannot make", &folder))?;
        Ok(folder.join("data"))
    }

    /// Says that the repository has it.
    fn link(&self, kind: &str, digest: &str) -> Result<(), LabError> {
        let hex = digest.trim_start_matches("sha256:");
        let folder = self.root.join("docker/registry/v2/repositories").join(&self.repository);
        let folder = folder.join(kind).join("sha256").join(hex);
        fs::create_dir_all(&folder).map_err(LabError::file("cannot make", &folder))?;
        let link = folder.join("link");
        fs::write(&link, digest).map_err(LabError::file("cannot write", &link))
    }
}

/// A registry that runs.
#[derive(Debug)]
pub struct Registry {
    _process: Process,
}

impl Registry {
    /// Its port at [`Network::ADDRESS`]; HTTP.
    pub const PORT: u16 = 5000;

    /// Starts it beside the coordinator; its log goes to `<dir>/registry.log`.
    ///
    /// # Errors
    /// [`LabError`] if docker-registry is missing or does not start.
    pub async fn start(storage: &RegistryStorage, network: &Network, dir: &Path) -> Result<Self, LabError> {
        let config = json!({
            "version": 0.1,
            "storage": { "filesystem": { "rootdirectory": storage.root } },
            "http": { "addr": format!("{}:{}", Network::ADDRESS, Self::PORT) },
        });
        let file = dir.join("registry.yaml");
        fs::write(&file, config.to_string()).map_err(LabError::file("cannot write", &file))?;
        let mut command = network.namespace().command("docker-registry");
        command.arg("serve").arg(&file);
        let mut process = Process::spawn("docker-registry", command, Log::open(&dir.join("registry.log"))?)?;
        process.wait_stderr(Mark::default(), "listening on", Duration::from_secs(60)).await?;
        Ok(Self { _process: process })
    }
}
