//! What can be wrong with an image or with how it is given, and what to do about each.

use crate::Mistake;

/// The cause of a [`crate::WriteError::BadFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// It is something else than a disk image.
    Other(Mistake),
    /// It has no partition table, and nothing states that it needs none.
    NoTable,
    /// Its partition table is damaged or incomplete.
    Table,
    /// It has two partition tables of which only one can be right.
    LeftOver,
    /// The request states what the content contradicts.
    Stated,
    /// Its content cannot be decoded: a checksum or a structure is wrong.
    Content,
    /// It uses a feature of its format that is not supported, or exceeds a limit.
    Unsupported,
    /// Its server encodes it anew in transfer.
    Reencoded,
    /// Its server answers against the protocol, or states what is not so.
    Server,
    /// The URL, or how its server is to be asked, cannot be used.
    Settings,
    /// What is given beside it (mirrors, index, manifest, checksums) does not fit it.
    Beside,
}

impl Defect {
    /// What to do.
    pub(crate) const fn hint(self) -> &'static str {
        match self {
            Self::Other(mistake) => mistake.hint(),
            Self::NoTable => {
                "publish an image of a whole disk, with its partition table; if it is meant to have none, state that \
                    with table: none (--table none)"
            }
            Self::Table => "build the image again; its partition table is not whole",
            Self::LeftOver => {
                "remove the table that is left over from the image (wipefs --types gpt clears an old GPT), and publish \
                    the image again"
            }
            Self::Stated => "correct what the template states of the image, or leave it out",
            Self::Content => {
                "compare the file's digest on the server with the one where it was built; if they differ, upload it \
                    again, else build it again"
            }
            Self::Unsupported => "store the image without this feature; qemu-img convert -O raw makes a plain image",
            Self::Reencoded => "switch compression in transfer off for image files, on the server and on any proxy",
            Self::Server => "correct the server's configuration, or use another server",
            Self::Settings => "correct the image's URL and access in the template",
            Self::Beside => "publish image and the files beside it together, from the same build",
        }
    }
}
