//! `unpack`: its fields, what is sent to the agent, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    kind::{ActionInfo, Declaration, Download, Then},
    rules::{Rules, is_directory, plain_text},
};
use crate::{AccessSpec, Digest, DiskSelector, DurationSpec, issue::join};

/// Unpacks a tar archive into the installed system. Directories on the way are made; a file that stands there is replaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnpackSpec {
    /// The archive: an http, https or file URL. Plain, or compressed with gzip, xz, zstd, bzip2 or lz4, which its content tells.
    pub url: String,
    /// The digest of the file behind `url`.
    pub digest: Digest,
    /// Where its root goes: an absolute path of the installed system, without `..`. Default: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Which disk. Default: the disk that this workflow wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSelector>,
}

/// `unpack` as an agent is sent it: every default stated.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpack {
    /// `http:`, `https:` or `file:`.
    pub url: String,
    /// What its bytes must be.
    pub digest: Digest,
    /// Absolute, in the installed root.
    pub path: String,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What came of an `unpack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnpackResult {
    /// The installed root file system's device.
    pub root_device: String,
    /// Entries of the archive.
    pub entries: u64,
    /// Bytes of content of its files.
    pub bytes: u64,
}

impl From<UnpackSpec> for Unpack {
    fn from(spec: UnpackSpec) -> Self {
        let UnpackSpec { url, digest, path, disk } = spec;
        Self { url, digest, path: path.unwrap_or_else(|| "/".into()), disk }
    }
}

impl Declaration for UnpackSpec {
    const INFO: ActionInfo = ActionInfo {
        about: "Unpacks a tar archive into the installed system.",
        timeout: DurationSpec::from_secs(60 * 60),
        // A download may break, and what is unpacked twice is there once.
        attempts: 3,
        protocol: 7,
        tools: true,
        then: Then::Next,
        writes_image: false,
        means_written_disk: true,
        after_failure: false,
        no_branch: None,
        secrets: &[],
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        rules.file_url(spec, path);
        if let Some(directory) = plain_text(spec, "path").filter(|directory| !is_directory(directory)) {
            let message = format!("{directory:?} is not an absolute path without \"..\"");
            rules.say(join(path, "path"), message, "write a path such as /opt/app");
        }
    }

    fn downloads(&self) -> Vec<Download> {
        vec![Download { urls: vec![self.url.clone()], access: AccessSpec::default() }]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::tests::faults;

    const AT: &str = "spec.actions[0].unpack";

    fn of(more: Value) -> Vec<String> {
        let digest = format!("sha256:{}", "00".repeat(32));
        let mut spec = json!({"url": "http://h/app.tar.zst", "digest": digest, "disk": {"name": "vda"}});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        faults(json!([{"name": "app", "unpack": spec}])).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn each_fault_of_an_archive_is_named_at_its_field() {
        for (more, field) in [
            (json!({"url": "oci://h/a"}), "url"),
            (json!({"url": "ftp://h/a"}), "url"),
            (json!({"digest": "md5:00"}), "digest"),
            (json!({"digest": null}), "digest"),
            (json!({"path": "opt"}), "path"),
            (json!({"path": "/opt/../etc"}), "path"),
            (json!({"disk": {"colour": "red"}}), "disk.colour"),
            (json!({"format": "tar"}), "format"),
        ] {
            assert_eq!(of(more.clone()), [format!("{AT}.{field}")], "{more}");
        }
    }

    #[test]
    fn an_archive_goes_to_the_root_by_default() {
        for more in [json!({}), json!({"path": "/opt/app"}), json!({"path": "/"}), json!({"url": "file:///a"})] {
            assert_eq!(of(more.clone()), [""; 0], "{more}");
        }
        let digest = Digest::from_sha256([0; 32]);
        let spec = UnpackSpec { url: "http://h/a".into(), digest, path: None, disk: None };
        assert_eq!(Unpack::from(spec).path, "/");
    }
}
