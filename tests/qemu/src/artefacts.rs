//! What a lab boots: programs, boot image, OS image.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::LabError;

/// The files a lab needs. None of them is changed.
#[derive(Debug, Clone)]
pub struct Artefacts {
    /// The agent's program, as it is in the boot image.
    pub agent: PathBuf,
    /// The coordinator's binary.
    pub coordinator: PathBuf,
    /// Kernel for netboot.
    pub kernel: PathBuf,
    /// Initramfs with the agent.
    pub initramfs: PathBuf,
    /// Directory with `undionly.kpxe` and `snponly.efi`.
    pub bootloaders: PathBuf,
    /// The OS image.
    pub image: OsImage,
    /// Kernel and initramfs with every driver a server may need.
    pub server: Option<(PathBuf, PathBuf)>,
    /// A Debian image, for the tests that need a whole distribution.
    pub debian: Option<OsImage>,
    /// The initramfs of a switch, for the tests of bonds and VLANs.
    pub switch: Option<PathBuf>,
    /// The tools layer of the kernel, for the tests of actions that need it.
    pub tools: Option<PathBuf>,
    /// Directory with landfall.efi and landfall.iso for arm64, see `tests/qemu/arm64`.
    pub arm64: Option<PathBuf>,
    /// Debian's package of shim, unpacked.
    pub shim: Option<PathBuf>,
    /// The root of a Debian as a tar, for the tests of layouts.
    pub root_tar: Option<OsImage>,
}

impl Artefacts {
    /// Kernel and initramfs: the boot image for VMs, or the one for servers.
    ///
    /// # Errors
    /// [`LabError::File`] if there is none for servers.
    pub fn boot_image(&self, server: bool) -> Result<(PathBuf, PathBuf), LabError> {
        if !server {
            return Ok((self.kernel.clone(), self.initramfs.clone()));
        }
        self.server.clone().ok_or_else(|| LabError::File {
            what: "cannot find",
            path: PathBuf::from("the boot image for servers: give --server-boot DIR"),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }
}

/// A compressed disk image and what is known of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OsImage {
    /// The stored file.
    pub path: PathBuf,
    /// Its sha256, `sha256:<hex>`.
    pub digest: String,
    /// Bytes of the stored file.
    pub stored_bytes: u64,
    /// Bytes of the decoded disk image, 0 if not known.
    pub raw_bytes: u64,
}

impl OsImage {
    /// Finds the one `*.img.zst` (or `*.img`) in a directory and measures it; `raw_bytes` comes from the JSON beside it.
    ///
    /// # Errors
    /// [`LabError`] if there is none, or several.
    pub fn find(dir: &Path) -> Result<Self, LabError> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
            .map_err(LabError::file("cannot list", dir))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.to_string_lossy().ends_with(".img.zst") || path.extension().is_some_and(|e| e == "img"))
            .collect();
        let (Some(path), None) = (found.pop(), found.pop()) else {
            let message = "expected exactly one *.img.zst or *.img here; scripts/os-image makes one".to_owned();
            return Err(LabError::Format { path: dir.to_owned(), message });
        };
        Self::measure(&path)
    }

    /// Hashes an image file.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn measure(path: &Path) -> Result<Self, LabError> {
        let mut file = std::fs::File::open(path).map_err(LabError::file("cannot open", path))?;
        let mut hasher = Sha256::new();
        let stored_bytes =
            std::io::copy(&mut file, &mut HashWriter(&mut hasher)).map_err(LabError::file("cannot read", path))?;
        let digest = format!("sha256:{}", hex::encode(hasher.finalize()));
        Ok(Self { path: path.to_owned(), digest, stored_bytes, raw_bytes: stated_raw_bytes(path) })
    }

    /// The last part of its path.
    pub fn file_name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// What `landfall-image os-disk` wrote about an image, in a JSON file in the same directory.
fn stated_raw_bytes(path: &Path) -> u64 {
    let beside = path.parent().unwrap_or(Path::new("."));
    let files = std::fs::read_dir(beside).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "json"))
        .filter_map(|file| serde_json::from_slice::<serde_json::Value>(&std::fs::read(file).ok()?).ok())
        .find_map(|json| json.get("raw_bytes").or_else(|| json.get("rawBytes"))?.as_u64())
        .unwrap_or(0)
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
