//! What is to be written, and what proves it: the `image` of a `writeImage` action.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{Digest, ImageUrl};

/// An image and what proves it: exactly one of `digest`, `rawDigest`, `sums`, `signature`, `index` and `digestWaived`. An
/// image whose URLs are all `oci://…@sha256:…` needs none of them: the reference is the proof.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageSpec {
    /// `http://`, `https://`, `oci://registry/repository:tag`, `oci+http://…` (a registry without TLS), or `file:///path`:
    /// a file that the agent itself sees. No passwords: URLs are logged and shown.
    pub url: String,
    /// Mirrors with the same content, tried in this order when `url` fails. At most 15.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<String>,
    /// Digest of the stored bytes: of the file at `url`, compressed as it is.
    pub digest: Option<Digest>,
    /// Digest of the raw bytes: of the decoded content.
    pub raw_digest: Option<Digest>,
    /// A checksum file that lists the image.
    pub sums: Option<SumsSpec>,
    /// A detached signature of the stored bytes.
    pub signature: Option<SignatureSpec>,
    /// An index with a digest of every chunk, which are verified before they are written.
    pub index: Option<IndexSpec>,
    /// States explicitly that nothing proves this image; the status shows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub digest_waived: bool,
    /// How it is stored. Content of another format is refused. Default: detected from the content.
    pub format: Option<ImageFormat>,
    /// What it has in place of a partition table. Default: it must have one, a GPT or an MBR.
    pub table: Option<ImageTable>,
    /// How to connect to its servers.
    pub access: Option<AccessSpec>,
}

impl ImageSpec {
    /// Every URL with this content, in the order they are tried.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.url).chain(&self.mirrors).map(String::as_str)
    }

    /// Whether the references themselves prove it: each URL names a registry's content by digest.
    pub fn is_pinned(&self) -> bool {
        self.urls().all(|url| ImageUrl::parse(url).is_ok_and(ImageUrl::is_pinned))
    }
}

/// A checksum file, as `sha256sum` and `sha512sum` write it. It must list the image's file name. Without a signature it
/// protects against damage in transfer, but does not prove who made the image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SumsSpec {
    /// Where the file is: `http://`, `https://` or `file:`.
    pub url: String,
    /// What proves the file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureSpec>,
}

/// A detached signature and who must have made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignatureSpec {
    /// Where the signature is: `http://`, `https://` or `file:`.
    pub url: String,
    /// The maker's public key: a minisign key (the line that begins with RW), or an armoured OpenPGP one.
    pub key: String,
}

/// An index: the JSON manifest that `landfall-image pack` writes, or a bmap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IndexSpec {
    /// Where the index is: `http://`, `https://` or `file:`.
    pub url: String,
    /// Digest of the index's own bytes.
    pub digest: Digest,
}

/// How to connect to an image's servers.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessSpec {
    /// Certificate authorities to trust in addition to the public ones, PEM, one or several per item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ca_certificates: Vec<String>,
    /// `http://host:port` of a proxy. Default: none.
    pub proxy: Option<String>,
    /// Credentials. Only if every URL of the image is `https://` or `oci://`.
    pub authorization: Option<AuthorizationSpec>,
}

/// Credentials for an image's servers: `username` and `password`, or `token`. Password and token are secrets, written
/// as `{{ secrets.NAME.KEY }}`; the agent sends them only to these servers.
#[skip_serializing_none]
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthorizationSpec {
    /// The user's name (RFC 7617).
    pub username: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// A bearer token (RFC 6750).
    pub token: Option<String>,
}

/// An assignment contains the values.
impl std::fmt::Debug for AuthorizationSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.token.is_some() { "Bearer(…)" } else { "Basic(…)" })
    }
}

words! {
    /// How an image is stored.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    ImageFormat {
        /// The disk's bytes as they are.
        Raw = "raw",
        /// gzip.
        Gzip = "gzip",
        /// The .xz format.
        Xz = "xz",
        /// Zstandard.
        Zstd = "zstd",
        /// bzip2.
        Bzip2 = "bzip2",
        /// The LZ4 frame format.
        Lz4 = "lz4",
        /// QEMU's qcow2, version 2 or 3.
        Qcow2 = "qcow2",
        /// VMware's VMDK, streamOptimized alone: as `qemu-img convert -O vmdk -o subformat=streamOptimized` makes it, and as it is
        /// in an OVA.
        Vmdk = "vmdk",
    } else UnknownFormat "\"{0}\" is not an image format; write raw, gzip, xz, zstd, bzip2, lz4, qcow2 or vmdk, or leave it out to go by \
     content"
}

/// What an image is stated to have in place of the partition table that every other image must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageTable {
    /// No table: a file system or another volume over the whole disk. An image that has a table is refused, and so is
    /// what cannot be a volume, such as an archive or a web page.
    None,
}

/// Additional checks after the write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Verify {
    /// No additional check.
    #[default]
    None,
    /// Everything is read back from the disk and compared with what was written, before the disk becomes bootable.
    ReadBack,
}

impl Verify {
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_format_is_refused_with_the_known_ones() {
        let error = "vhdx".parse::<ImageFormat>().unwrap_err().to_string();
        assert!(error.contains("\"vhdx\"") && error.contains("vmdk"), "{error}");
    }

    #[test]
    fn an_image_is_pinned_only_if_every_url_is() {
        let pinned = format!("oci://r.example/a/b@sha256:{}", "0a".repeat(32));
        let mut image = ImageSpec { url: pinned.clone(), ..ImageSpec::default() };
        assert!(image.is_pinned());
        image.mirrors = vec![pinned.replace("oci:", "oci+http:")];
        assert!(image.is_pinned());
        image.mirrors.push("http://h/i".into());
        assert!(!image.is_pinned());
        image.mirrors = vec!["oci://r.example/a/b:latest".into()];
        assert!(!image.is_pinned());
    }
}
