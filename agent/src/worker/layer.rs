//! The tools layer on this machine: fetched by digest into memory, once, and mounted read-only.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use std::{fs, io, thread};

use landfall_api::{Digest, ToolsManifest, message::ToolsLayer};
use landfall_disk::{Access, CancelFlag, Image, Proof, ProvenFile, WriteError, image_at, open_source};
use landfall_proto::PROTOCOL;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::loop_device::LoopDevice;
use super::memory;
use super::memory::TooLittle;
use crate::drivers::{self, TOOLS_ROOT};
use crate::logging::Logged;
use crate::proxy;

/// Between looks whether another branch is done with fetching it.
const POLL: Duration = Duration::from_millis(50);

/// The layer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayerError {
    /// It does not fit.
    #[error(transparent)]
    Memory(#[from] TooLittle),
    /// It cannot be fetched, or is another file.
    #[error("cannot fetch the tools layer")]
    Fetch(#[source] WriteError),
    /// Its file has another size than stated.
    #[error("the file of the tools layer has {}{actual} bytes, and the coordinator states {stated}", at_least(*actual, *stated))]
    Size {
        /// As fetched; of a larger one no more than one byte too many is.
        actual: u64,
        stated: u64,
    },
    /// The kernel refused something.
    #[error("cannot {what}")]
    Kernel { what: &'static str, source: io::Error },
    /// It does not say what it was made for.
    #[error("the tools layer has no file {}", ToolsManifest::MADE_FOR)]
    Unmarked(#[source] io::Error),
    /// It was made for another machine or another agent.
    #[error("the tools layer was made for {made}, and this machine has {here}")]
    Other { what: MadeFor, made: String, here: String },
    /// The action was stopped.
    #[error("the action was stopped")]
    Stopped,
}

/// What a layer is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeFor {
    /// A processor.
    Processor,
    /// A kernel.
    Kernel,
    /// A revision of the protocol between agent and worker.
    Protocol,
}

const fn at_least(actual: u64, stated: u64) -> &'static str {
    if actual > stated { "at least " } else { "" }
}

fn kernel<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> LayerError {
    move |source| LayerError::Kernel { what, source: source.into() }
}

/// The layer that is mounted.
struct Present {
    digest: Digest,
    device: LoopDevice,
}

/// At most one, for as long as this process lives: sessions come and go.
static PRESENT: Mutex<Option<Present>> = Mutex::new(None);

/// Makes sure that this layer is mounted at [`TOOLS_ROOT`]. Blocking.
///
/// # Errors
/// [`LayerError`]
pub(super) fn ready(layer: &ToolsLayer, cancel: &CancelFlag) -> Result<(), LayerError> {
    let mut present = lock(cancel)?;
    if present.as_ref().is_some_and(|present| present.digest == layer.digest) {
        return Ok(());
    }
    if let Some(other) = present.take() {
        unmount(other.device);
    }
    memory::fits(layer.size_bytes)?;
    tracing::info!("fetching the tools layer, {} bytes, from {}", layer.size_bytes, layer.url);
    let file = fetched(layer, cancel)?;
    // Each in a boot image, unless the kernel has it built in.
    ["loop", "squashfs"].into_iter().for_each(drivers::load_by_name);
    let device = LoopDevice::attach(&file).map_err(kernel("make a loop device for the tools layer"))?;
    let mounted = mount_from(&device).and_then(|()| for_this_machine(Path::new(TOOLS_ROOT)));
    if let Err(e) = mounted {
        unmount(device);
        return Err(e);
    }
    *present = Some(Present { digest: layer.digest, device });
    Ok(())
}

/// Another branch may fetch the layer at this time.
fn lock(cancel: &CancelFlag) -> Result<MutexGuard<'static, Option<Present>>, LayerError> {
    loop {
        match PRESENT.try_lock() {
            Ok(present) => return Ok(present),
            Err(TryLockError::Poisoned(present)) => return Ok(present.into_inner()),
            Err(TryLockError::WouldBlock) if cancel.is_cancelled() => return Err(LayerError::Stopped),
            Err(TryLockError::WouldBlock) => thread::sleep(POLL),
        }
    }
}

/// The file in memory, and no way to change it any more.
fn fetched(layer: &ToolsLayer, cancel: &CancelFlag) -> Result<File, LayerError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file: File =
        memfd_create("landfall-tools", flags).map_err(kernel("make a file in memory for the tools layer"))?.into();
    let access = Access { proxy: proxy::get().map(ToString::to_string), ..Access::default() };
    let urls = std::iter::once(&layer.url).chain(&layer.other_urls).cloned().collect();
    let image = Image { urls, access, ..image_at("", Proof::Stored(layer.digest)) };
    let source = open_source(&image, true, &Logged).map_err(LayerError::Fetch)?;
    let mut source = ProvenFile::of(source, layer.digest, u64::MAX, cancel);
    // A byte more shows that it is larger, and no more than that gets into memory.
    let copied = io::copy(&mut source.by_ref().take(layer.size_bytes.saturating_add(1)), &mut file);
    if let Some(failure) = source.into_failure() {
        return Err(LayerError::Fetch(failure));
    }
    let actual = copied.map_err(kernel("keep the tools layer in memory"))?;
    if actual != layer.size_bytes {
        return Err(LayerError::Size { actual, stated: layer.size_bytes });
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(kernel("seal the tools layer in memory"))?;
    Ok(file)
}

fn mount_from(device: &LoopDevice) -> Result<(), LayerError> {
    fs::create_dir_all(TOOLS_ROOT).map_err(kernel("make the directory /run/landfall/tools"))?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some(&device.path), TOOLS_ROOT, Some("squashfs"), flags, None::<&str>)
        .map_err(kernel("mount the tools layer; the boot image must carry the modules loop and squashfs"))
}

/// What still runs in it keeps it until it ends.
fn unmount(device: LoopDevice) {
    // It may not be mounted yet.
    if let Err(e) = umount2(TOOLS_ROOT, MntFlags::MNT_DETACH) {
        tracing::debug!("{TOOLS_ROOT}: {e}");
    }
    if let Err(e) = device.detach() {
        tracing::warn!("cannot give back the loop device of the tools layer: {e}");
    }
}

/// Whether the layer at `root` was made for this processor, this kernel and this agent.
fn for_this_machine(root: &Path) -> Result<(), LayerError> {
    let made = fs::read_to_string(root.join(ToolsManifest::MADE_FOR)).map_err(LayerError::Unmarked)?;
    let release = nix::sys::utsname::uname().map_err(kernel("ask for the kernel's release"))?;
    fits(&made, &ToolsManifest::made_for(std::env::consts::ARCH, &release.release().to_string_lossy(), PROTOCOL))
}

fn fits(made: &str, here: &str) -> Result<(), LayerError> {
    let (made, here) = (made.trim(), here.trim());
    if made == here {
        return Ok(());
    }
    let same = |part: usize| made.split(", ").nth(part) == here.split(", ").nth(part);
    let what = match (same(0), same(1)) {
        (false, _) => MadeFor::Processor,
        (true, false) => MadeFor::Kernel,
        (true, true) => MadeFor::Protocol,
    };
    Err(LayerError::Other { what, made: made.to_owned(), here: here.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use landfall_api::ErrorCode;

    use super::{super::failure, *};

    /// sha256sum of "layer".
    const DIGEST: &str = "sha256:dac1d7cfa95021764849fd102524e141488c5e3a90f861dbb5a12d9ac8584f85";

    fn served(content: &[u8], size_bytes: u64) -> Result<File, LayerError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        let url = format!("file://{}", file.path().display());
        fetched(&layer(url, Vec::new(), size_bytes), &CancelFlag::new())
    }

    fn layer(url: String, other_urls: Vec<String>, size_bytes: u64) -> ToolsLayer {
        ToolsLayer { url, other_urls, digest: DIGEST.parse().unwrap(), size_bytes }
    }

    #[test]
    fn another_coordinator_gives_what_the_first_one_does_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"layer").unwrap();
        let there = format!("file://{}", file.path().display());
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for gone in [format!("http://{closed}/tools"), "file:///nowhere/tools".to_owned()] {
            fetched(&layer(gone, vec![there.clone()], 5), &CancelFlag::new()).unwrap();
        }
    }

    #[test]
    fn the_layer_in_memory_cannot_be_changed() {
        let mut file = served(b"layer", 5).unwrap();
        assert!(file.write_all(b"x").is_err() && file.set_len(0).is_err());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "layer");
    }

    #[test]
    fn a_layer_that_is_cut_or_altered_is_refused() {
        for (content, size) in [(&b"laye"[..], 5), (b"mayer", 5), (b"", 5)] {
            let error = served(content, size).unwrap_err();
            assert!(matches!(error, LayerError::Fetch(WriteError::DigestMismatch { .. })), "{error:?}");
        }
    }

    #[test]
    fn a_layer_of_another_size_was_replaced() {
        let longer = [&b"layer"[..], &[0; 100_000]].concat();
        for (content, stated, said) in [(&longer[..], 5, "has at least 6 bytes"), (b"layer", 6, "has 5 bytes")] {
            let error = served(content, stated).unwrap_err();
            assert!(matches!(error, LayerError::Size { .. }) && error.to_string().contains(said), "{error}");
            let failure = failure::no_layer(&error, "http://h/tools");
            assert!(failure.problem.hint.contains("was replaced") && !failure.retryable, "{failure:?}");
        }
    }

    #[test]
    fn a_layer_that_is_served_no_more_was_replaced() {
        let url = || "http://h/tools".to_owned();
        let status = |status: &str| WriteError::Status { url: url(), status: status.into() };
        let all = |failures| WriteError::NoMirror { url: url(), failures };
        let away = || WriteError::Unreachable { url: url(), reason: "no answer".into() };
        for (error, is_gone) in [
            (status("404 Not Found"), true),
            (status("410 Gone"), true),
            (all(vec![status("404 Not Found"), status("404 Not Found")]), true),
            (all(vec![status("404 Not Found"), away()]), false),
            (away(), false),
        ] {
            let failure = failure::no_layer(&LayerError::Fetch(error), "http://h/tools");
            assert_eq!(failure.problem.code == ErrorCode::NoToolsLayer, is_gone, "{failure:?}");
            assert_eq!(failure.problem.hint.contains("landfall retry"), is_gone, "{failure:?}");
            assert_eq!(failure.retryable, !is_gone, "{failure:?}");
        }
    }

    #[test]
    fn a_layer_made_for_something_else_is_refused_before_use() {
        let made = ToolsManifest::made_for("x86_64", "6.1.0-35-amd64", 7);
        fits(&made, &made).unwrap();
        for (architecture, kernel, protocol, hint) in [
            ("aarch64", "6.1.0-35-amd64", 7, "boot.arm64.tools"),
            ("x86_64", "6.1.0-37-amd64", 7, "kernel package"),
            ("x86_64", "6.1.0-35-amd64", 8, "release"),
        ] {
            let error = fits(&made, &ToolsManifest::made_for(architecture, kernel, protocol)).unwrap_err();
            let said = format!(
                "for x86_64, kernel 6.1.0-35-amd64, protocol 7, and this machine has {architecture}, kernel {kernel}, \
                 protocol {protocol}"
            );
            assert!(error.to_string().ends_with(&said), "{error}");
            let failure = failure::no_layer(&error, "http://h/tools");
            assert_eq!(failure.problem.code, ErrorCode::VersionSkew);
            assert!(failure.problem.hint.contains(hint), "{failure:?}");
        }
    }

    #[test]
    fn a_layer_of_another_revision_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let kernel = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
        let made = |protocol| ToolsManifest::made_for(std::env::consts::ARCH, &kernel, protocol);
        fs::write(root.path().join(ToolsManifest::MADE_FOR), made(PROTOCOL)).unwrap();
        for_this_machine(root.path()).unwrap();
        fs::write(root.path().join(ToolsManifest::MADE_FOR), made(PROTOCOL + 1)).unwrap();
        let error = for_this_machine(root.path()).unwrap_err();
        assert!(matches!(error, LayerError::Other { what: MadeFor::Protocol, .. }), "{error}");
    }
}
