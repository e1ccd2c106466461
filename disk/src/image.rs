//! A disk image: where it is, what proves it, how it is stored.

use std::{fmt, str::FromStr};

use landfall_api::{Digest, ImageAccess, ImageAuthorization};

/// A disk image.
#[derive(Debug, Clone)]
pub struct Image {
    /// `http://`, `https://`, `file:` or `oci://`; not empty. The same content behind each: they are tried in this order.
    pub urls: Vec<String>,
    /// What proves it.
    pub proof: Proof,
    /// `None`: detected from the content. Content of another format is refused.
    pub format: Option<Format>,
    /// It has no partition table, and that is meant. Without this word an image without a table is refused, with it an
    /// image that has one.
    pub no_table: bool,
    /// How servers are spoken to.
    pub access: Access,
}

impl Image {
    /// Its name in messages: without a query, because the query is often a secret signature.
    pub fn shown_name(&self) -> String {
        crate::source::shown_text(self.name())
    }

    /// Its first URL.
    pub fn name(&self) -> &str {
        self.urls.first().map_or("an image without a URL", String::as_str)
    }
}

/// What proves that an image is the intended one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Digest of the stored bytes (the file behind the URL).
    Stored(Digest),
    /// Digest of the raw bytes (what the stored ones decode to).
    Raw(Digest),
    /// A file of checksums that lists the image's file name: `sha256sum`'s and `sha512sum`'s own format, or BSD's.
    /// Without a signature it shows that nothing was cut or altered in transfer, not who made the image.
    Sums {
        /// Where the file is.
        url: String,
        /// What proves the file itself.
        signature: Option<Signature>,
    },
    /// A detached signature of the stored bytes.
    Signed(Signature),
    /// An index with the digest of every chunk: of `landfall-image pack`, or a bmap. Chunks are verified before they are
    /// written.
    Index {
        /// Where the index is.
        url: String,
        /// Digest of the index's own bytes.
        digest: Digest,
    },
    /// The URLs themselves: each is an OCI reference by digest.
    Pinned,
    /// The request waives a proof explicitly.
    Waived,
}

impl Proof {
    /// The digest that the receipt names the image by: the stated one, of whichever bytes.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Self::Stored(digest) | Self::Raw(digest) | Self::Index { digest, .. } => Some(*digest),
            Self::Sums { .. } | Self::Signed(_) | Self::Pinned | Self::Waived => None,
        }
    }
}

/// A detached signature and who must have made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Where the signature is.
    pub url: String,
    /// The public key, as its maker publishes it: a minisign key (the line that starts with `RW`) or an armoured
    /// OpenPGP one.
    pub key: String,
}

/// How servers are spoken to.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Certificate authorities to trust besides the public ones, PEM.
    pub ca_certificates: Vec<String>,
    /// `http://host:port` of a proxy. `None`: no proxy; the environment's proxy variables are ignored.
    pub proxy: Option<String>,
    /// Sent to the hosts of the image's own URLs, never to where one of them redirects on another host.
    pub authorization: Option<Authorization>,
}

impl From<&ImageAccess> for Access {
    fn from(stated: &ImageAccess) -> Self {
        let authorization = stated.authorization.as_ref().map(|stated| match stated {
            ImageAuthorization::Basic { username, password } => {
                Authorization::Basic { user: username.clone(), password: password.expose().to_owned() }
            }
            ImageAuthorization::Bearer(token) => Authorization::Bearer(token.expose().to_owned()),
        });
        Self { ca_certificates: stated.ca_certificates.clone(), proxy: stated.proxy.clone(), authorization }
    }
}

/// Credentials. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Authorization {
    /// RFC 7617.
    Basic {
        /// The user's name.
        user: String,
        /// The password.
        password: String,
    },
    /// RFC 6750.
    Bearer(
        /// The token.
        String,
    ),
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic { .. } => "Basic(…)",
            Self::Bearer(_) => "Bearer(…)",
        })
    }
}

/// How an image is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The disk's bytes as they are.
    Raw,
    /// RFC 1952, any number of members.
    Gzip,
    /// The .xz file format, any number of streams and blocks.
    Xz,
    /// Zstandard (RFC 8878): any number of frames, skippable ones among them.
    Zstd,
    /// bzip2, any number of streams.
    Bzip2,
    /// The LZ4 frame format, any number of frames.
    Lz4,
    /// QEMU's qcow2, version 2 or 3.
    Qcow2,
    /// VMware's VMDK, streamOptimized alone: as `qemu-img convert -O vmdk -o subformat=streamOptimized` makes it, and as it is
    /// in an OVA.
    Vmdk,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Raw, Self::Gzip, Self::Xz, Self::Zstd, Self::Bzip2, Self::Lz4, Self::Qcow2, Self::Vmdk];

    /// As it is written in templates.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a format's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not an image format; write raw, gzip, xz, zstd, bzip2, lz4, qcow2 or vmdk, or leave it out to go by \
     content"
)]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|format| format.as_str() == s).ok_or_else(|| UnknownFormat(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_unique_name_that_parses_back() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("vhdx".parse::<Format>().is_err());
    }

    #[test]
    fn credentials_are_never_printed() {
        let secret = Access {
            authorization: Some(Authorization::Basic { user: "anna".into(), password: "geheim".into() }),
            ..Access::default()
        };
        assert!(!format!("{secret:?}").contains("geheim"));
    }
}
