//! The file system in memory that holds a container's root, for as long as it runs.

use std::{fs, io, path::Path};

use landfall_api::{ErrorCode, Problem};
use landfall_disk::RootLayer;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::statvfs;

use crate::Failure;

/// What must stay free beside it, bytes: the worker, the program, and the agent's own buffers.
const BESIDE: u64 = 64 << 20;
/// A file system with less is full: what did not fit had more, bytes.
const NOTHING: u64 = 1 << 20;
const HINT: &str = "give the machine more memory, or make the image smaller";

/// The most that an image's root may take, bytes. `available`: what programs can still get; `None`: the kernel does not say.
pub(super) fn most(layers: &[RootLayer], available: Option<u64>, image: &str) -> Result<u64, Failure> {
    let stored = layers.iter().fold(0_u64, |all, layer| all.saturating_add(layer.size));
    // The kernel's own bound holds then: half of the memory.
    let Some(available) = available else { return Ok(u64::MAX) };
    let most = available.saturating_sub(BESIDE);
    if stored <= most && most > 0 {
        return Ok(most);
    }
    let message = format!(
        "the image's layers have {stored} bytes, {BESIDE} bytes must stay free beside them, and {available} bytes of memory are free; \
            nothing was fetched"
    );
    Err(Failure::last(Problem::new(ErrorCode::NotEnoughMemory, message).hint(HINT).at(image)))
}

/// A file system in memory. Gone when dropped, and with this process' namespace.
pub(super) struct Root<'a> {
    at: &'a Path,
    most: u64,
}

impl<'a> Root<'a> {
    /// Mounts it at `at`, which is made.
    pub(super) fn mount(at: &'a Path, most: u64) -> io::Result<Self> {
        fs::create_dir_all(at)?;
        // Device files of an image open nothing, and its programs get no other user's rights.
        let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        let size = if most == u64::MAX { String::new() } else { format!(",size={most}") };
        mount(Some("container"), at, Some("tmpfs"), flags, Some(format!("mode=0755{size}").as_str()))?;
        Ok(Self { at, most })
    }

    pub(super) const fn path(&self) -> &'a Path {
        self.at
    }

    /// The same failure, or that the image does not fit where that is why.
    pub(super) fn or_full(&self, failure: Failure, image: &str) -> Failure {
        let free = statvfs(self.at).map_or(u64::MAX, |about| about.blocks_available() * about.fragment_size());
        let about_room = matches!(failure.problem.code, ErrorCode::DiskTooSmall | ErrorCode::DeviceIo);
        if !about_room || failure.problem.code == ErrorCode::DeviceIo && free >= NOTHING {
            return failure;
        }
        let message = format!(
            "the image does not fit into memory: its content, with the layer that is being unpacked, has more than {} bytes",
            self.most
        );
        let mut problem = Problem::new(ErrorCode::NotEnoughMemory, message).hint(HINT).at(image);
        problem.causes = [vec![failure.problem.message], failure.problem.causes].concat();
        Failure::last(problem)
    }
}

impl Drop for Root<'_> {
    fn drop(&mut self) {
        // It goes with this process at the latest.
        let _ = umount2(self.at, MntFlags::MNT_DETACH);
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::Digest;
    use landfall_disk::Access;

    use super::*;
    use crate::{Reporter, actions::unpack::layers, registry::digest, testing::caged};

    #[test]
    fn an_image_without_room_is_refused_with_the_figures() {
        let layer = |size| RootLayer { url: "oci://h/r".into(), digest: Digest::from_sha256([1; 32]), size };
        let both = [layer(100 << 20), layer(28 << 20)];
        assert_eq!(most(&both, Some((128 << 20) + BESIDE), "i").unwrap(), 128 << 20);
        let problem = most(&both, Some((128 << 20) + BESIDE - 1), "oci://h/r").unwrap_err().problem;
        assert_eq!((problem.code, problem.subject.as_str()), (ErrorCode::NotEnoughMemory, "oci://h/r"));
        assert!(
            problem.message.contains("134217728 bytes") && problem.message.contains("201326591 bytes"),
            "{problem}"
        );
        assert!(most(&[layer(0)], Some(BESIDE), "i").is_err(), "a file system of no bytes has no bound");
        assert_eq!(most(&both, None, "i").unwrap(), u64::MAX);
    }

    #[test]
    fn content_that_outgrows_memory_ends_the_unpacking() {
        caged(|| {
            let mut builder = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(8 << 20);
            builder.append_data(&mut header, "large", &vec![7; 8 << 20][..]).unwrap();
            let stored = zstd::bulk::compress(&builder.into_inner().unwrap(), 1).unwrap();
            fs::write("/layer", &stored).unwrap();
            let layer = RootLayer { url: "file:///layer".into(), digest: digest(&stored), size: stored.len() as u64 };
            let root = Root::mount(Path::new("/root"), 2 << 20).unwrap();
            let unpacked = layers(root.path(), &[layer], Access::default(), &Reporter::new(io::sink()));
            let problem = root.or_full(unpacked.unwrap_err(), "oci://h/r").problem;
            assert_eq!((problem.code, problem.subject.as_str()), (ErrorCode::NotEnoughMemory, "oci://h/r"));
            assert!(problem.message.contains("more than 2097152 bytes"), "{problem}");
            drop(root);
            assert_eq!(fs::read_dir("/root").unwrap().count(), 0, "its memory is free again");
        });
    }
}
