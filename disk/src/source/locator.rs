//! A URL, parsed once: which scheme it is of, its name in messages, and what is refused in it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use reqwest::Url;

use super::{oci::Reference, userinfo::has_user};
use crate::{Defect, WriteError};

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Locator {
    /// `http://` or `https://`, without user and password.
    Http(Url),
    /// An absolute path.
    File(PathBuf),
    /// A layer of an artefact in a registry.
    Oci(Reference),
}

impl Locator {
    /// # Errors
    /// [`WriteError::BadFormat`], without anything secret that the text may hold.
    pub(crate) fn parse(text: &str) -> Result<Self, WriteError> {
        let bad =
            |reason: String| WriteError::BadFormat { subject: shown_text(text), reason, defect: Defect::Settings };
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => {
                let url = Url::parse(text).map_err(|error| bad(format!("it is not a URL: {error}")))?;
                if has_user(&url) {
                    return Err(bad(
                        "user and password do not belong in a URL, which is logged; give them as credentials".into(),
                    ));
                }
                Ok(Self::Http(url))
            }
            "file" => path_of(text).map(Self::File).map_err(bad),
            "oci" | "oci+http" => Reference::parse(text).map(Self::Oci).map_err(bad),
            "" => Err(bad("it is not a URL; write https://…, file:/… or oci://…".into())),
            other => Err(bad(format!("{other}: URLs are not supported; use http, https, file or oci"))),
        }
    }

    /// The URL of the server behind it, if it is behind one.
    pub(crate) fn server(&self) -> Option<Url> {
        match self {
            Self::Http(url) => Some(url.clone()),
            Self::Oci(reference) => Some(reference.registry.clone()),
            Self::File(_) => None,
        }
    }

    /// The last segment of the path, percent-decoded: what a file of checksums knows the image by.
    pub(crate) fn file_name(&self) -> Option<String> {
        let name = match self {
            Self::Http(url) => String::from_utf8(percent_decode(url.path().rsplit('/').next()?)?).ok()?,
            Self::File(path) => path.file_name()?.to_str()?.to_owned(),
            Self::Oci(_) => return None,
        };
        Some(name).filter(|name| !name.is_empty())
    }
}

/// A URL for people. The part after `?` is often a secret signature.
pub(super) fn shown(url: &Url) -> String {
    shown_text(url.as_str())
}

/// The same for text that may not be a URL.
pub(crate) fn shown_text(text: &str) -> String {
    let (plain, query) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
    let query = if query.is_empty() { "" } else { "?…" };
    // An `@` before the path ends what may be a password; in an OCI reference it comes after it.
    let Some((scheme, rest)) = plain.split_once("://") else { return format!("{plain}{query}") };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let hidden = if host.len() < authority.len() { "…@" } else { "" };
    format!("{scheme}://{hidden}{host}{path}{query}")
}

/// RFC 8089: `file:/path`, `file:///path` or `file://localhost/path`.
fn path_of(text: &str) -> Result<PathBuf, String> {
    let rest = text.get("file:".len()..).unwrap_or_default();
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    if !path.starts_with('/') {
        return Err("a file: URL needs an absolute path on this machine, such as file:///srv/image.zst".into());
    }
    let bytes = percent_decode(path).ok_or("a % in it is not followed by two hexadecimal digits; write %25 for one")?;
    if bytes.contains(&0) {
        return Err("a path cannot hold a zero byte".into());
    }
    Ok(Path::new(&OsString::from_vec(bytes)).to_owned())
}

/// RFC 3986, section 2.1; `None` if a `%` is not followed by two digits.
fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let [high, low, after @ ..] = after else { return None };
            let digit = |byte: u8| char::from(byte).to_digit(16);
            out.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(url: &str) -> String {
        Locator::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn file_urls_give_paths_or_say_what_is_wrong() {
        for url in ["file:/a/b%20c", "file:///a/b%20c", "file://localhost/a/b%20c", "FILE:/a/b%20c"] {
            assert_eq!(Locator::parse(url).unwrap(), Locator::File("/a/b c".into()), "{url}");
        }
        for url in ["file:a", "file://server/a", "file:", "file:/a%2", "file:/a%zz", "file:/a%00", "file:/a%é"] {
            assert!(Locator::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        for url in ["http://anna:geheim@host/a?sig=geheim", "https://geheim@host/", "ftp://anna:geheim@host/"] {
            assert!(!reason(url).contains("geheim"), "{}", reason(url));
        }
        assert!(reason("http://anna:geheim@host/a").contains("credentials"));
        assert_eq!(shown(&Url::parse("https://host/a?X-Amz-Signature=geheim").unwrap()), "https://host/a?…");
    }

    #[test]
    fn the_file_name_is_the_last_segment_decoded() {
        let name = |url: &str| Locator::parse(url).unwrap().file_name();
        assert_eq!(name("https://h/a/b%20c.img?x=/y").as_deref(), Some("b c.img"));
        assert_eq!(name("file:///a/b.img").as_deref(), Some("b.img"));
        assert_eq!(name("https://h/a/"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(http|https|file|oci|oci\\+http)?:?/{0,3}.{0,60}") {
            if let Ok(locator) = Locator::parse(&text) {
                locator.file_name();
            }
        }
    }
}
