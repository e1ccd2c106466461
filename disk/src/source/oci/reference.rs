//! `oci://host[:port]/repository@sha256:…` or `:tag`, and what of it proves the content.

use std::fmt;

use landfall_api::Digest;
use reqwest::Url;

use crate::source::userinfo::has_user;

/// Which manifest of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    /// The one with this digest: it proves everything that it names.
    Digest(Digest),
    /// The manifest that carries the tag at the moment.
    Tag(String),
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(digest) => write!(f, "{digest}"),
            Self::Tag(tag) => f.write_str(tag),
        }
    }
}

/// An artefact in a registry, and which of its layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// `https://host[:port]/`, or `http://` for `oci+http:`.
    pub(crate) registry: Url,
    pub(crate) repository: String,
    pub(crate) version: Version,
    /// Its digest or its title, where the manifest has several.
    pub(crate) layer: Option<String>,
}

impl Reference {
    /// # Errors A clause that continues "… is not a usable image: ".
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write oci://host/repository@sha256:… or oci://host/repository:tag";
        let (scheme, rest) = text.split_once("://").ok_or(FORM)?;
        let transport = if scheme.eq_ignore_ascii_case("oci+http") { "http" } else { "https" };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (host, path) = rest.split_once('/').ok_or(FORM)?;
        let registry = Url::parse(&format!("{transport}://{host}/")).map_err(|error| format!("{error}; {FORM}"))?;
        if has_user(&registry) {
            return Err("user and password do not belong in a URL, which is logged; give them as credentials".into());
        }
        if registry.path() != "/" || registry.query().is_some() || registry.fragment().is_some() {
            return Err(FORM.into());
        }
        let (repository, version) = match path.split_once('@') {
            // A tag beside a digest is for people.
            Some((name, digest)) => {
                let name = name.split_once(':').map_or(name, |(name, _)| name);
                (name, Version::Digest(digest.parse().map_err(|error| format!("{error}"))?))
            }
            None => {
                let (name, tag) = path.rsplit_once(':').ok_or("it has neither a tag nor a digest; add @sha256:…")?;
                (name, Version::Tag(tag_of(tag)?))
            }
        };
        if !is_repository(repository) {
            return Err("a repository is lower-case words of letters, digits, . _ and -, between slashes".into());
        }
        let layer = match query {
            None => None,
            Some(query) => match query.strip_prefix("layer=").filter(|layer| !layer.is_empty()) {
                Some(layer) => Some(layer.to_owned()),
                None => return Err("after the ? only layer= with a layer's digest or title is allowed".into()),
            },
        };
        Ok(Self { registry, repository: repository.to_owned(), version, layer })
    }

    /// The digest that proves the manifest.
    pub(crate) fn pinned(&self) -> Option<&Digest> {
        match &self.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.registry.scheme() == "http" { "oci+http" } else { "oci" };
        let host = self.registry.host_str().unwrap_or_default();
        let port = self.registry.port().map_or(String::new(), |port| format!(":{port}"));
        let between = if self.pinned().is_some() { '@' } else { ':' };
        write!(f, "{scheme}://{host}{port}/{}{between}{}", self.repository, self.version)?;
        self.layer.as_ref().map_or(Ok(()), |layer| write!(f, "?layer={layer}"))
    }
}

/// As the OCI distribution specification 1.1 has it: `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
fn tag_of(text: &str) -> Result<String, String> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let good = (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'));
    if good { Ok(text.to_owned()) } else { Err("a tag is at most 128 letters, digits, . _ and -".into()) }
}

/// Strict enough to keep out characters that have another meaning in a URL's path.
fn is_repository(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    let outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.len() <= 255
        && text
            .split('/')
            .all(|word| outer(word.bytes().next()) && outer(word.bytes().next_back()) && word.bytes().all(inner))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_read_and_written_alike() {
        for text in [
            format!("oci://host/a/b@{DIGEST}"),
            format!("oci+http://127.0.0.1:5000/a@{DIGEST}?layer=disk.zst"),
            "oci://[::1]:5000/a:v1.2_x-y".into(),
        ] {
            assert_eq!(Reference::parse(&text).unwrap().to_string(), text);
        }
        let both = Reference::parse(&format!("oci://host/a:tag@{DIGEST}")).unwrap();
        assert_eq!(both.pinned().unwrap().to_string(), DIGEST);
        assert_eq!(Reference::parse("oci://host/a:t").unwrap().registry.as_str(), "https://host/");
    }

    #[test]
    fn what_names_no_artefact_is_refused() {
        for bad in [
            "oci://host", "oci://host/", "oci://host/a", "oci://host/A:t", "oci://host/../a:t", "oci://host/a//b:t",
            "oci://u:geheim@host/a:t", "oci:///a:t", "oci://host/a:", "oci://host/a@sha256:00", "oci://host/a:t?x=y",
            "oci://host/a:t/../../x", "oci://host/a:t#x", "oci://ho#st/a:t",
        ] {
            let error = Reference::parse(bad).unwrap_err();
            assert!(!error.contains("geheim"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "oci://[a-z0-9.:/@?#%\\[\\]]{0,60}") {
            if let Ok(reference) = Reference::parse(&text) {
                prop_assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference);
            }
        }
    }
}
