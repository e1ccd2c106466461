//! The tools layer's file: looked at and hashed once, when the configuration is loaded. Machines fetch it by that digest.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use landfall_api::{Digest, message::ToolsLayer};
use sha2::{Digest as _, Sha256};

use crate::config::{Config, ConfigError};

/// The first bytes of a squashfs file.
const MAGIC: &[u8] = b"hsqs";
/// One read.
const CHUNK: usize = 256 << 10;

/// The layer as agents are to fetch it; `None` where none is configured. Reads at most [`ToolsLayer::MAX_BYTES`]. Blocking.
///
/// # Errors
/// [`ConfigError::Invalid`] naming the key, for a file that cannot be read, is too large or is no squashfs.
pub fn read(config: &Config) -> Result<Option<ToolsLayer>, ConfigError> {
    let Some(path) = &config.boot.tools else { return Ok(None) };
    let invalid = |what: String| ConfigError::Invalid {
        key: "boot.tools",
        what: format!("{} {what}", path.display()),
        hint: "create it with landfall-image tools, or correct the path",
    };
    let (digest, size_bytes) = hashed(path).map_err(|e| invalid(format!("cannot be read: {e}")))?.map_err(invalid)?;
    Ok(Some(ToolsLayer { url: format!("{}/boot/tools", config.http_url()), digest, size_bytes }))
}

/// The inner error: what is wrong with the file.
fn hashed(path: &Path) -> io::Result<Result<(Digest, u64), String>> {
    let mut file = File::open(path)?;
    let (mut hasher, mut length, mut buffer) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        let count = match file.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        if length == 0 && !bytes.starts_with(MAGIC) {
            return Ok(Err("is no squashfs file".into()));
        }
        if bytes.is_empty() {
            return Ok(Ok((Digest::from_sha256(hasher.finalize().into()), length)));
        }
        length += bytes.len() as u64;
        if length > ToolsLayer::MAX_BYTES {
            return Ok(Err(format!("is larger than {} bytes", ToolsLayer::MAX_BYTES)));
        }
        hasher.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_of(content: Option<&[u8]>) -> Result<Option<ToolsLayer>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tools");
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let text = format!(
            "data_dir = \"/d\"\nadvertise = \"10.77.0.1\"\n[boot]\nkernel = \"/k\"\ninitramfs = \"/i\"\ntools = \"{}\"\n",
            path.display()
        );
        read(&Config::parse(Path::new("c.toml"), &text).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_layer_is_served_by_the_digest_of_its_file() {
        let layer = read_of(Some(b"hsqs and more")).unwrap().unwrap();
        assert_eq!((layer.url.as_str(), layer.size_bytes), ("http://10.77.0.1:7480/boot/tools", 13));
        // printf 'hsqs and more' | sha256sum
        let known = "sha256:c2dfe2e35f53d665db3627724b9a3b241cad1d05c9156fb09c18c213cb956ebb";
        assert_eq!(layer.digest.to_string(), known);
    }

    #[test]
    fn a_file_that_is_no_layer_is_refused_by_key() {
        let mut large = vec![0; usize::try_from(ToolsLayer::MAX_BYTES).unwrap() + 1];
        large[..4].copy_from_slice(MAGIC);
        for (content, said) in [
            (None, "cannot be read"),
            (Some(&b""[..]), "no squashfs"),
            (Some(b"<html>"), "no squashfs"),
            (Some(&large), "larger"),
        ] {
            let error = read_of(content).unwrap_err();
            assert!(error.starts_with("boot.tools") && error.contains(said), "{error}");
        }
    }
}
