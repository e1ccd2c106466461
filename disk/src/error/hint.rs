//! What a person can do about an error.

use super::WriteError;

impl WriteError {
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "check that the server is up and that the machine's network reaches it",
            Self::Status { .. } => "correct the URL in the template, or put the file there",
            Self::NoRanges { .. } => {
                "put the image on a server that answers Range requests, such as nginx, or use another format"
            }
            Self::NoMirror { .. } => "read the reason for each mirror; at least one mirror must serve the image",
            Self::BadSignature { .. } => {
                "get the signature and the current public key from the signer, and state that key"
            }
            Self::SourceChanged { .. } => "publish a new image under a new name",
            Self::Truncated { .. } => "upload the image again; the file on the server is cut short",
            Self::DigestMismatch { .. } => "state the digest that sha256sum prints for the file, or upload it again",
            Self::ChunkMismatch { .. } => {
                "upload image and index again; both must come from the same call of landfall-image pack"
            }
            Self::BadIndex { .. } => "use the index that landfall-image pack or bmaptool create made from this image",
            Self::BadFormat { defect, .. } => defect.hint(),
            Self::NotEnoughMemory { .. } => {
                "give the machine more memory, or make an image that takes less: zstd -3 without --long, xz -6, smaller \
                    chunks, or for qcow2 larger clusters and for vmdk larger grains"
            }
            Self::DiskTooSmall { .. } => "choose a larger disk, or make the image smaller",
            Self::WrongSectorSize { .. } => {
                "build the image for the disk's sector size: landfall-image os-disk --sector-size 512 or 4096, or your \
                builder's own option; or choose another disk"
            }
            Self::InUse { .. } => "unmount it and stop what holds it, or choose another disk",
            Self::ReadOnly { .. } => "choose another disk, or remove its write protection",
            Self::DiskChanged { .. } => "check whether disks were swapped, then start the workflow again",
            Self::SelectionChanged { .. } => {
                "connect every disk before the machine starts, or select the disk by serial or wwn"
            }
            Self::ReceiptMismatch { .. } => "to overwrite the disk, run landfall provision with --force",
            Self::Marked { .. } => {
                "put a wipe action with this disk before it: then the disk's record and its content go together"
            }
            Self::MarkLost { .. } => {
                "correct the program: the first MiB and the partition table of an installed disk must stay; then provision again"
            }
            Self::Unreadable { .. } => {
                "check the disk's health and the kernel log; to write over sectors that cannot be read, run landfall \
                    provision with --force"
            }
            Self::NotBlank { .. } => "to allow the install, run landfall provision",
            Self::ReadBack { .. } => {
                "replace the disk, or check its firmware and controller; its data cannot be trusted"
            }
            Self::LevelUnsupported { .. } => "state a level that the disk supports, or allow one in fallback",
            Self::EraseFailed { .. } => {
                "its old data may be readable, and it does not boot any more; read the disk's answer and the kernel log, and wipe it \
                 again"
            }
            Self::Erasing { .. } => "let it finish, without cutting its power; a wipe that has begun waits for it",
            Self::Locked { .. } => "unlock it with its password (hdparm --security-unlock), or use another disk",
            Self::NotErased { .. } => {
                "do not give the disk away: its erasure does not do what it says; write over it with level zero"
            }
            Self::KeepRefused { .. } => {
                "name labels that exist on the disk, or use an image that leaves room for these partitions"
            }
            Self::TooManyKept { .. } => "keep fewer partitions on this disk",
            Self::DeviceIo { .. } | Self::Examine { .. } => "check the disk's health and the kernel log",
            Self::LeaseExpired { .. } => "check that the machine reaches the coordinator",
            Self::Cancelled { .. } | Self::Start { .. } => "",
            Self::Internal(_) => "report this fault with the log",
        }
    }
}
