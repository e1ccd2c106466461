//! Rules across the fields of a `writeImage`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::ImageUrl;
use crate::action::rules::Rules;
use crate::issue::{has_expression, join};

/// Most mirrors of one image.
const MAX_MIRRORS: usize = 15;

/// A GPT of the usual size has so many entries (UEFI 2.10, section 5.3.2).
const MAX_KEPT: usize = 128;

/// A GPT entry's name: 36 UTF-16 code units (UEFI 2.10, table 5.6).
const MAX_LABEL: usize = 36;

/// What may prove an image, apart from the URL itself.
const PROOFS: [&str; 6] = ["digest", "rawDigest", "sums", "signature", "index", "digestWaived"];

/// Base64 digits of a minisign public key: 2 bytes of algorithm, 8 of key id, 32 of key.
const MINISIGN_KEY: usize = 56;

const PROOF_HINT: &str = "add digest: sha256:… of the file at the URL; or one of rawDigest, sums, signature, index; \
    or digestWaived: true for an image without proof";

const PIN_HINT: &str = "write the digest of its manifest into the URL and into each mirror's: oci://registry/repository@sha256:…; or \
    add digest: sha256:… of the layer; or digestWaived: true for an image without proof";

impl Rules<'_> {
    /// Everything about a `writeImage` but its disk.
    pub(super) fn image(&mut self, spec: &Map<String, Value>, path: &str) {
        self.keep(spec.get("keep"), &join(path, "keep"));
        let Some(image) = spec.get("image").and_then(Value::as_object) else { return };
        let path = join(path, "image");
        self.proof(image, &path);
        self.urls(image, &path);
        let mirrors = image.get("mirrors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let urls: Vec<&str> = image.get("url").into_iter().chain(mirrors).filter_map(Value::as_str).collect();
        self.access(image.get("access"), &urls, &join(&path, "access"));
        if let Some(sums) = image.get("sums") {
            let path = join(&path, "sums");
            self.file_beside(sums, &path);
            self.signature(sums.get("signature"), &join(&path, "signature"));
        }
        self.signature(image.get("signature"), &join(&path, "signature"));
        if let Some(index) = image.get("index") {
            self.file_beside(index, &join(&path, "index"));
        }
    }

    /// Exactly one proof. An expression counts as its most likely value: a proof.
    fn proof(&mut self, image: &Map<String, Value>, path: &str) {
        let stated = |name: &&str| match image.get(*name) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            // Whether it will be true is known only once it is rendered.
            Some(Value::String(text)) if *name == "digestWaived" => !has_expression(text),
            Some(_) => true,
        };
        let found: Vec<&str> = PROOFS.iter().copied().filter(stated).collect();
        match found.as_slice() {
            [_] => {}
            [first, second, ..] => {
                let said = |name: &str| if name == "digestWaived" { "a waiver".into() } else { format!("\"{name}\"") };
                let message =
                    format!("an image needs exactly one proof, but it has {} and {}", said(first), said(second));
                self.say(join(path, second), message, "remove one of the two");
            }
            [] => {
                let pending = image.get("digestWaived").and_then(Value::as_str).is_some_and(has_expression);
                if !pending && !may_be_pinned(image) {
                    let of_registry =
                        image.get("url").and_then(Value::as_str).is_some_and(|url| url.starts_with("oci"));
                    let hint = if of_registry { PIN_HINT } else { PROOF_HINT };
                    self.say(join(path, "digest"), "the image has no digest and no other proof", hint);
                }
            }
        }
    }

    fn urls(&mut self, image: &Map<String, Value>, path: &str) {
        let mut seen = BTreeSet::new();
        let mirrors = image.get("mirrors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let places = mirrors.iter().enumerate().map(|(i, url)| (url.as_str(), format!("{path}.mirrors[{i}]")));
        for (url, at) in [(image.get("url").and_then(Value::as_str), join(path, "url"))].into_iter().chain(places) {
            let Some(url) = url.filter(|url| !has_expression(url)) else { continue };
            if let Err(error) = ImageUrl::parse(url) {
                self.say(at, error.message, error.hint);
            } else if !seen.insert(url) {
                self.say(at, format!("{url} is listed twice"), "remove one of the two");
            }
        }
        if mirrors.len() > MAX_MIRRORS {
            let message = format!("there are {} mirrors; the limit is {MAX_MIRRORS}", mirrors.len());
            self.say(join(path, "mirrors"), message, "keep the nearest ones");
        }
    }

    /// The `url` of a small file fetched beside the image.
    fn file_beside(&mut self, holder: &Value, path: &str) {
        let Some(url) = holder.get("url").and_then(Value::as_str).filter(|url| !has_expression(url)) else { return };
        let hint = "write http://host/path, https://host/path or file:///path";
        match ImageUrl::parse(url) {
            Ok(ImageUrl::Http | ImageUrl::File(_)) => {}
            Ok(ImageUrl::Oci { .. }) => self.say(join(path, "url"), format!("{url} is not the URL of a file"), hint),
            Err(error) => self.say(join(path, "url"), error.message, error.hint),
        }
    }

    fn signature(&mut self, signature: Option<&Value>, path: &str) {
        let Some(signature) = signature.filter(|s| s.is_object()) else { return };
        self.file_beside(signature, path);
        let Some(key) = signature.get("key").and_then(Value::as_str).filter(|key| !has_expression(key)) else { return };
        // Never the key itself in a message: it may be the wrong one of a pair.
        if key.contains("PRIVATE KEY") || key.contains("secret key") {
            self.say(
                join(path, "key"),
                "this is a private key, and every reader of the document could sign with it",
                "write the public key, and create a new pair: this one is no longer secret",
            );
        } else if !is_public_key(key) {
            self.say(
                join(path, "key"),
                "this is not a public key",
                "write a minisign key (the line that begins with RW), or the block from -----BEGIN PGP PUBLIC KEY \
                    BLOCK----- on",
            );
        }
    }

    fn keep(&mut self, keep: Option<&Value>, path: &str) {
        let labels = keep.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for (i, label) in labels.iter().enumerate() {
            let Some(label) = label.as_str().filter(|label| !has_expression(label)) else { continue };
            let at = format!("{path}[{i}]");
            if label.is_empty() || label.contains(char::is_control) || label.encode_utf16().count() > MAX_LABEL {
                let hint = "write the name that sgdisk -p or lsblk -o PARTLABEL shows, of 1 to 36 characters";
                self.say(at, format!("\"{label}\" is not a partition's label"), hint);
            } else if !seen.insert(label) {
                self.say(at, format!("\"{label}\" is listed twice"), "remove one of the two");
            }
        }
        if labels.len() > MAX_KEPT {
            let message = format!("there are {} labels; a partition table has {MAX_KEPT} entries", labels.len());
            self.say(path, message, "list the partitions that must stay");
        }
    }
}

/// Whether every URL is pinned, or may be once it is rendered.
fn may_be_pinned(image: &Map<String, Value>) -> bool {
    let may = |url: &Value| match url.as_str() {
        Some(text) if has_expression(text) => text.trim_start().starts_with('{') || text.starts_with("oci"),
        Some(text) => ImageUrl::parse(text).is_ok_and(ImageUrl::is_pinned),
        None => false,
    };
    let mirrors = match image.get("mirrors") {
        None | Some(Value::Null) => true,
        Some(Value::Array(mirrors)) => mirrors.iter().all(may),
        // One expression for the whole list.
        Some(other) => may(other),
    };
    image.get("url").is_some_and(may) && mirrors
}

/// By shape only: the verifier parses it.
fn is_public_key(key: &str) -> bool {
    key.contains("-----BEGIN PGP PUBLIC KEY BLOCK-----")
        || key.lines().map(str::trim).any(|line| line.starts_with("RW") && line.len() == MINISIGN_KEY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::issue::Issue;

    #[test]
    fn a_secret_in_a_document_is_not_repeated() {
        let issues = |spec: Value| -> Vec<Issue> {
            let mut issues = Vec::new();
            Rules::new(&mut issues).image(spec.as_object().unwrap(), "writeImage");
            issues
        };
        let found = issues(json!({"image": {"url": "http://anna:geheim@h/i",
            "signature": {"url": "http://h/g", "key": "-----BEGIN PGP PRIVATE KEY BLOCK-----\ngeheim"},
            "access": {"proxy": "http://anna:geheim@p:1", "caCertificates": ["PRIVATE KEY geheim"]}}}));
        assert_eq!(found.len(), 4);
        assert!(!format!("{found:?}").contains("geheim"), "{found:?}");
    }
}
