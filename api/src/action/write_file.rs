//! `writeFile`: its fields, what is sent to the agent, and what comes of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::kind::{ActionInfo, Declaration, Download};
use super::rules::{Rules, plain_text};
use crate::{AccessSpec, Digest, DiskSelector, DurationSpec, SecretText, issue::join};

/// Writes one file into the installed system. Directories on the way are made; a file that stands there is replaced.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteFileSpec {
    /// Where: an absolute path in the installed system's root file system, without `..`.
    pub path: String,
    /// What: the whole text. It may hold secrets. Either this or `url`.
    pub content: Option<String>,
    /// What: the file behind this http, https or file URL, of at most 1 GiB. It needs `digest`.
    pub url: Option<String>,
    /// The digest of the file behind `url`.
    pub digest: Option<Digest>,
    /// Its owner: a name of the installed system's /etc/passwd, or a number in quotes. Default: root.
    pub owner: Option<String>,
    /// Its group: a name of the installed system's /etc/group, or a number in quotes. Default: root.
    pub group: Option<String>,
    /// Its permissions, octal, in quotes. Default: "0644", and "0600" where the content holds a secret.
    pub mode: Option<String>,
    /// Which disk. Default: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// `writeFile` as an agent is sent it: every default stated, every secret in place.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteFile {
    /// Absolute, in the installed root.
    pub path: String,
    /// What the file is to hold.
    pub source: FileSource,
    /// A name or a number; `None`: root.
    pub owner: Option<String>,
    /// A name or a number; `None`: root.
    pub group: Option<String>,
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Which disk; `None`: the disk that this workflow wrote.
    pub disk: Option<DiskSelector>,
}

/// What a file is to hold.
#[derive(Debug, Clone, PartialEq)]
pub enum FileSource {
    /// This text; may hold secrets.
    Content(SecretText),
    /// What is behind a URL.
    Download {
        /// `http:`, `https:` or `file:`.
        url: String,
        /// What its bytes must be.
        digest: Digest,
    },
}

/// What came of a `writeFile`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteFileResult {
    /// The installed root file system's device.
    pub root_device: String,
}

/// The action's fields do not go together: `validate_actions` refuses them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field {0} is missing or invalid")]
pub struct UnusableFile(&'static str);

/// The longest path, bytes: the kernel's PATH_MAX without the final NUL.
const MAX_PATH: usize = 4095;
/// The longest part of a path, bytes: what every file system of Linux takes.
const MAX_NAME: usize = 255;

impl WriteFileSpec {
    /// What an agent is sent. `secret`: the content holds a secret.
    ///
    /// # Errors
    /// [`UnusableFile`] where the fields do not go together.
    pub fn resolved(self, secret: bool) -> Result<WriteFile, UnusableFile> {
        let Self { path, content, url, digest, owner, group, mode, disk } = self;
        let source = match (content, url, digest) {
            (Some(text), None, None) => FileSource::Content(SecretText::new(text)),
            (None, Some(url), Some(digest)) => FileSource::Download { url, digest },
            (None, Some(_), None) => return Err(UnusableFile("digest")),
            _ => return Err(UnusableFile("content")),
        };
        let mode = match mode {
            Some(text) => mode_bits(&text).ok_or(UnusableFile("mode"))?,
            None if secret => 0o600,
            None => 0o644,
        };
        Ok(WriteFile { path, source, owner, group, mode, disk })
    }
}

impl Declaration for WriteFileSpec {
    const INFO: ActionInfo = ActionInfo {
        // A download may break, and what is written twice is there once.
        attempts: 3,
        means_written_disk: true,
        secrets: &["content"],
        ..ActionInfo::new("Writes one file into the installed system.", DurationSpec::from_secs(5 * 60), 4)
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        rules.selector(spec.get("disk"), &join(path, "disk"));
        if let Some(fault) = plain_text(spec, "path").and_then(path_fault) {
            rules.say(join(path, "path"), fault, "write an absolute path such as /etc/motd");
        }
        source(spec, path, rules);
        for field in ["owner", "group"] {
            if let Some(name) = plain_text(spec, field).filter(|name| !is_account(name)) {
                let hint = "write a name of the installed system, or a number such as \"1000\"";
                rules.say(join(path, field), format!("\"{name}\" cannot be an account"), hint);
            }
        }
        if let Some(mode) = plain_text(spec, "mode").filter(|mode| mode_bits(mode).is_none()) {
            let hint = "write 3 or 4 octal digits in quotes, such as \"0640\"";
            rules.say(join(path, "mode"), format!("\"{mode}\" is not a mode"), hint);
        }
    }

    fn downloads(&self) -> Vec<Download> {
        let urls = self.url.iter().map(|url| vec![url.clone()]);
        urls.map(|urls| Download { urls, access: AccessSpec::default() }).collect()
    }
}

/// Exactly one source, and a digest with a URL alone. An expression counts as what it will most likely be: a value.
fn source(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let has = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    match (has("content"), has("url"), has("digest")) {
        (true, true, _) => {
            rules.say(join(path, "url"), "a file has content or a url, not both", "remove one of the two")
        }
        (false, false, _) => {
            let hint = "write content: with the text, or url: and digest:";
            rules.say(join(path, "content"), "the file has no content and no url", hint);
        }
        (false, true, false) => {
            let hint = "add digest: sha256:… of the file at the URL";
            rules.say(join(path, "digest"), "the file behind the url has no digest", hint);
        }
        (true, false, true) => {
            rules.say(join(path, "digest"), "a digest belongs to a url, and content is given", "remove the digest");
        }
        _ => {}
    }
    rules.file_url(spec, path);
}

/// What is wrong with a path; `None`: nothing.
fn path_fault(path: &str) -> Option<String> {
    let part_fits = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= MAX_NAME;
    let parts = path.strip_prefix('/').filter(|rest| rest.split('/').all(part_fits));
    let fits = parts.is_some() && path.len() <= MAX_PATH && !path.contains(char::is_control);
    (!fits).then(|| format!("{path:?} is not an absolute path of a file without \"..\""))
}

/// A number, or a name as useradd takes it.
fn is_account(text: &str) -> bool {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        // The highest number means "unchanged" to the kernel.
        return text.parse::<u32>().is_ok_and(|number| number != u32::MAX);
    }
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && text.len() <= 32
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"_-.$".contains(&b))
}

fn mode_bits(text: &str) -> Option<u32> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    octal.then(|| u32::from_str_radix(text, 8).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_makes_a_file_private_without_a_mode() {
        let spec = |mode: Option<&str>| WriteFileSpec {
            content: Some("x".into()),
            mode: mode.map(str::to_owned),
            ..WriteFileSpec::default()
        };
        assert_eq!(spec(None).resolved(false).unwrap().mode, 0o644);
        assert_eq!(spec(None).resolved(true).unwrap().mode, 0o600);
        assert_eq!(spec(Some("2755")).resolved(true).unwrap().mode, 0o2755);
        assert_eq!(WriteFileSpec::default().resolved(false), Err(UnusableFile("content")));
    }
}
