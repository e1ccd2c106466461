//! Where images and the files beside them may be. Pure: checks only the text.

use crate::Digest;

/// The text is not a URL that an image can be fetched from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {hint}")]
pub struct UrlError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: &'static str,
}

/// A URL of an image, as far as its shape tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageUrl<'a> {
    /// `http://` or `https://`.
    Http,
    /// `file:` and an absolute path, which is this (percent-encoded as it was).
    File(&'a str),
    /// `oci://registry/repository`, with `:tag` or `@sha256:…` behind it; `?layer=` names one of several layers.
    Oci {
        /// `host` or `host:port`.
        registry: &'a str,
        /// Spoken to without TLS: `oci+http://`.
        plain: bool,
        /// Named by the digest of its manifest.
        pin: Option<Digest>,
    },
}

impl UrlError {
    /// Whether the text names no place of a known kind, as `ftp://h/f` and `debian:12` do.
    pub(crate) fn is_unknown_place(&self) -> bool {
        self.hint == SCHEMES
    }
}

const SCHEMES: &str = "write http://host/path, https://host/path, oci://registry/repository or file:///path";
const NO_PASSWORDS: &str = "remove user and password; logs and status would show them";
const PIN: &str = "write oci://registry/repository@sha256: and the 64 hexadecimal digits of the manifest's digest";

impl<'a> ImageUrl<'a> {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`UrlError`], which repeats nothing of a URL that holds a password.
    pub fn parse(text: &'a str) -> Result<Self, UrlError> {
        if let Some((_, rest)) = text.split_once("://") {
            // In a reference without a repository the `@` is in the place of a host; it is not a password.
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if host.contains('@') && !host.contains("@sha256:") {
                let message = "the URL contains a user or a password, but URLs are logged and shown".to_owned();
                return Err(UrlError { message, hint: NO_PASSWORDS });
            }
        }
        let bad = |hint| UrlError { message: format!("\"{text}\" is not an image's URL"), hint };
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(bad("write %20 for a space"));
        }
        if let Some(rest) = text.strip_prefix("file:") {
            let path = rest.strip_prefix("//localhost").or_else(|| rest.strip_prefix("//")).unwrap_or(rest);
            // A path of `/` alone is a folder; `//host/…` is another machine's.
            return if path.len() > 1 && path.starts_with('/') && !path.ends_with('/') {
                Ok(Self::File(path))
            } else {
                Err(bad("write file:/// and an absolute path, without a host's name"))
            };
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad(SCHEMES))?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let path = rest.get(host.len()..).unwrap_or_default();
        let oci = match scheme {
            "http" | "https" => None,
            "oci" => Some(false),
            "oci+http" => Some(true),
            _ => return Err(bad(SCHEMES)),
        };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        if name.is_empty() || host.contains('@') {
            return Err(bad(if oci.is_some() { "write oci://registry/repository" } else { SCHEMES }));
        }
        match oci {
            None => Ok(Self::Http),
            Some(plain) => {
                let (path, layer) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
                if layer.is_some_and(|query| query.strip_prefix("layer=").is_none_or(str::is_empty)) {
                    return Err(bad("after the ? write layer= and the digest or title of a layer, or nothing"));
                }
                let (name, pin) = match path.split_once('@') {
                    None => (path, None),
                    Some((name, pin)) => (name, Some(pin.parse().map_err(|_| bad(PIN))?)),
                };
                let (repository, tag) = name.split_once(':').map_or((name, None), |(name, tag)| (name, Some(tag)));
                let repository = repository.strip_prefix('/').unwrap_or_default();
                if repository.is_empty()
                    || repository.contains('#')
                    || tag.is_some_and(|t| t.is_empty() || t.contains('/'))
                {
                    return Err(bad("write oci://registry/repository, then :tag or @sha256:…"));
                }
                if tag.is_none() && pin.is_none() {
                    return Err(bad("the version is missing: add @sha256:… or :tag after the repository"));
                }
                Ok(Self::Oci { registry: host, plain, pin })
            }
        }
    }

    /// Whether it names its content by digest.
    pub const fn is_pinned(self) -> bool {
        matches!(self, Self::Oci { pin: Some(_), .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_url_is_known_by_its_shape() {
        let hex = "0a".repeat(32);
        for url in ["http://h/i.img", "https://h:8443/a/b?x=y", "http://[fd00::1]:80/i", "https://h/a@b"] {
            assert_eq!(ImageUrl::parse(url), Ok(ImageUrl::Http), "{url}");
        }
        for (url, path) in [("file:/a/b", "/a/b"), ("file:///a/b.zst", "/a/b.zst"), ("file://localhost/a", "/a")] {
            assert_eq!(ImageUrl::parse(url), Ok(ImageUrl::File(path)), "{url}");
        }
        let tagged = ImageUrl::parse("oci://r.example:5000/a/b:v1").unwrap();
        assert_eq!(tagged, ImageUrl::Oci { registry: "r.example:5000", plain: false, pin: None });
        assert!(!tagged.is_pinned());
        let pinned = format!("oci://r/a@sha256:{hex}");
        for url in [pinned.clone(), format!("oci+http://r:1/a/b:v1@sha256:{hex}"), format!("{pinned}?layer=disk.img")] {
            assert!(ImageUrl::parse(&url).unwrap().is_pinned(), "{url}");
        }
    }

    #[test]
    fn invalid_image_urls_are_refused_with_a_hint() {
        for url in [
            "", "h/i", "ftp://h/i", "http://", "http:///i", "http://:80/i", "http://h/a b", "file:", "file:a/b",
            "file://host/a", "file:///", "file:///folder/", "oci://r", "oci://r/", "oci://r/:tag", "oci://r/a",
            "oci://r/a:", "oci://r/a:v1?tag=x", "oci://r/a:v1?layer=", "oci://r@sha256:00", "oci://r/a@sha256:00",
            "oci://r/a@latest", "oci+https://r/a",
        ] {
            let error = ImageUrl::parse(url).expect_err(url);
            assert!(
                error.message.contains(url) && ["write", "add"].iter().any(|verb| error.hint.contains(verb)),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        for url in ["http://anna:geheim@h/i", "oci://anna:geheim@r/a", "https://geheim@h"] {
            let error = ImageUrl::parse(url).expect_err(url).to_string();
            assert!(!error.contains("geheim") && error.contains("password"), "{error}");
        }
    }
}
