//! `unpack`: its fields, what is sent to the agent, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::kind::{ActionInfo, Declaration, Download};
use super::rules::{Rules, is_directory, plain_text};
use crate::{AccessSpec, Digest, DiskSelector, DurationSpec, ImageAccess, ImageSourceError, issue::join};

/// Unpacks a tar archive, or every layer of an OCI image, into the installed system. Directories on the way are made; a file that
/// stands there is replaced.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnpackSpec {
    /// The archive behind this http or https URL: tar, as it is or compressed with gzip, xz, zstd, bzip2 or LZ4, which
    /// its content shows. It needs `digest`. Either this or `image`.
    pub url: Option<String>,
    /// The digest of the file behind `url`, as it is stored.
    pub digest: Option<Digest>,
    /// The root file system of an OCI image by digest: `oci://registry/repository@sha256:…`, of one platform.
    pub image: Option<String>,
    /// How its server is asked.
    pub access: Option<AccessSpec>,
    /// Where its root goes: an absolute path of the installed system, without `..`. Default: `/`.
    pub path: Option<String>,
    /// Which disk. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// `unpack` as an agent is sent it: every default stated, every secret in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpack {
    /// What.
    pub source: UnpackSource,
    /// How its server is asked.
    pub access: ImageAccess,
    /// Absolute, in the installed root.
    pub path: String,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What is unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnpackSource {
    /// A tar archive.
    Archive {
        /// `http:` or `https:`.
        url: String,
        /// What its stored bytes must be.
        digest: Digest,
    },
    /// Every layer of an image.
    Image {
        /// `oci:` or `oci+http:`, by the digest of its manifest.
        url: String,
    },
}

/// What came of an `unpack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnpackResult {
    /// The installed root file system's device.
    pub root_device: String,
    /// Files, directories, links and devices in the archive or in all layers.
    pub entries: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

/// The action's fields do not go together: `validate_actions` refuses them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableArchive {
    /// One of them.
    #[error("the field {0} is missing or invalid")]
    Field(&'static str),
    /// `access`.
    #[error(transparent)]
    Access(#[from] ImageSourceError),
}

impl UnpackSpec {
    /// What an agent is sent.
    ///
    /// # Errors
    /// [`UnusableArchive`] where the fields do not go together.
    pub fn resolved(self) -> Result<Unpack, UnusableArchive> {
        let Self { url, digest, image, access, path, disk } = self;
        let source = match (url, digest, image) {
            (Some(url), Some(digest), None) => UnpackSource::Archive { url, digest },
            (Some(_), None, None) => return Err(UnusableArchive::Field("digest")),
            (None, None, Some(url)) => UnpackSource::Image { url },
            _ => return Err(UnusableArchive::Field("url")),
        };
        let access = access.map(ImageAccess::try_from).transpose()?.unwrap_or_default();
        Ok(Unpack { source, access, path: path.unwrap_or_else(|| "/".into()), disk })
    }
}

impl Declaration for UnpackSpec {
    const INFO: ActionInfo = ActionInfo {
        // A download may break, and what is unpacked twice is there once.
        attempts: 3,
        tools: true,
        means_written_disk: true,
        secrets: &["access.authorization"],
        ..ActionInfo::new(
            "Unpacks a tar archive or an OCI image into the installed system.",
            DurationSpec::from_secs(3600),
            7,
        )
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        source(spec, path, rules);
        if let Some(directory) = plain_text(spec, "path").filter(|directory| !is_directory(directory)) {
            let message = format!("{directory:?} is not an absolute path without \"..\"");
            rules.say(join(path, "path"), message, "write a path such as /opt/app");
        }
        let urls: Vec<&str> = ["url", "image"].iter().filter_map(|field| spec.get(*field)?.as_str()).collect();
        rules.access(spec.get("access"), &urls, &join(path, "access"));
    }

    fn downloads(&self) -> Vec<Download> {
        let access = self.access.clone().unwrap_or_default();
        let urls = self.url.iter().chain(&self.image);
        urls.map(|url| Download { urls: vec![url.clone()], access: access.clone() }).collect()
    }
}

/// Exactly one source, and a proof. An expression counts as what it will most likely be: a value.
fn source(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let has = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    match (has("url"), has("digest"), has("image")) {
        (true, _, true) => {
            rules.say(join(path, "image"), "it unpacks a url or an image, not both", "remove one of the two");
        }
        (false, _, false) => {
            let hint = "write url: and digest: of an archive, or image: oci://registry/repository@sha256:…";
            rules.say(join(path, "url"), "there is nothing to unpack", hint);
        }
        (true, false, false) => {
            let hint = "add digest: sha256:… of the file at the URL";
            rules.say(join(path, "digest"), "the archive behind the url has no digest", hint);
        }
        (false, true, true) => {
            let hint = "write the digest into the image's reference, behind an @";
            rules.say(join(path, "digest"), "a digest belongs to a url, and an image is given", hint);
        }
        _ => {}
    }
    rules.web_url(spec, path);
    rules.oci_image(spec, path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> String {
        format!("sha256:{}", "00".repeat(32))
    }

    #[test]
    fn a_resolved_unpack_has_one_source_and_a_path() {
        let digest: Digest = digest().parse().unwrap();
        let spec = UnpackSpec { url: Some("http://h/f".into()), digest: Some(digest), ..UnpackSpec::default() };
        let resolved = spec.clone().resolved().unwrap();
        assert_eq!(resolved.source, UnpackSource::Archive { url: "http://h/f".into(), digest });
        assert_eq!(resolved.path, "/");
        let unproven = UnpackSpec { digest: None, ..spec.clone() };
        assert_eq!(unproven.resolved(), Err(UnusableArchive::Field("digest")));
        let both = UnpackSpec { image: Some("oci://h/r".into()), ..spec };
        assert_eq!(both.resolved(), Err(UnusableArchive::Field("url")));
    }
}
