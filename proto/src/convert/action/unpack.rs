//! `unpack`.

use landfall_api::{ImageAccess, Unpack, UnpackResult, UnpackSource};

use super::super::{
    ConvertError, Within as _,
    scalar::{digest, text},
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1::{self, unpack::Source};

impl TryFrom<v1::Unpack> for Unpack {
    type Error = ConvertError;

    fn try_from(wire: v1::Unpack) -> Result<Self, ConvertError> {
        Ok(Self {
            source: wire.source.ok_or_else(|| ConvertError::missing("source"))?.try_into()?,
            access: wire.access.map(ImageAccess::try_from).transpose().within("access")?.unwrap_or_default(),
            path: text("path", wire.path)?,
            disk: selector_if_any(wire.disk),
        })
    }
}

impl From<Unpack> for v1::Unpack {
    fn from(spec: Unpack) -> Self {
        Self {
            source: Some(spec.source.into()),
            access: Some(spec.access).filter(|access| *access != ImageAccess::default()).map(v1::ImageAccess::from),
            path: spec.path,
            disk: spec.disk.map(selector_to_wire).unwrap_or_default(),
        }
    }
}

impl TryFrom<Source> for UnpackSource {
    type Error = ConvertError;

    fn try_from(wire: Source) -> Result<Self, ConvertError> {
        Ok(match wire {
            Source::Archive(wire) => Self::Archive {
                url: text("url", wire.url).within("archive")?,
                digest: digest("digest", &wire.digest).within("archive")?,
            },
            Source::Image(url) => Self::Image { url: text("image", url)? },
        })
    }
}

impl From<UnpackSource> for Source {
    fn from(source: UnpackSource) -> Self {
        match source {
            UnpackSource::Archive { url, digest } => {
                Self::Archive(v1::FileDownload { url, digest: digest.to_string() })
            }
            UnpackSource::Image { url } => Self::Image(url),
        }
    }
}

impl From<v1::UnpackResult> for UnpackResult {
    fn from(wire: v1::UnpackResult) -> Self {
        Self { root_device: wire.root_device, entries: wire.entries, bytes: wire.bytes }
    }
}

impl From<UnpackResult> for v1::UnpackResult {
    fn from(result: UnpackResult) -> Self {
        Self { root_device: result.root_device, entries: result.entries, bytes: result.bytes }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{Digest, DiskSelector, ImageAuthorization, SecretText};

    use super::*;

    fn archive() -> Unpack {
        Unpack {
            source: UnpackSource::Archive { url: "http://h/f".into(), digest: Digest::from_sha256([1; 32]) },
            access: ImageAccess::default(),
            path: "/srv".into(),
            disk: Some(DiskSelector([("serial".to_owned(), "D1".into())].into())),
        }
    }

    #[test]
    fn an_unpack_survives_the_wire_and_shows_no_token() {
        let image = Unpack {
            source: UnpackSource::Image { url: "oci://h/r@sha256:00".into() },
            access: ImageAccess {
                authorization: Some(ImageAuthorization::Bearer(SecretText::new("geheim"))),
                ..ImageAccess::default()
            },
            path: "/".into(),
            disk: None,
        };
        assert!(!format!("{image:?}").contains("geheim"), "{image:?}");
        for spec in [archive(), image] {
            assert_eq!(Unpack::try_from(v1::Unpack::from(spec.clone())), Ok(spec));
        }
        let result = UnpackResult { root_device: "/dev/vda2".into(), entries: 3, bytes: 4 };
        assert_eq!(UnpackResult::from(v1::UnpackResult::from(result.clone())), result);
    }

    #[test]
    fn an_unpack_without_source_proof_or_path_is_refused() {
        let whole = v1::Unpack::from(archive());
        let unproven = v1::FileDownload { url: "http://h/f".into(), digest: String::new() };
        for (wire, field) in [
            (v1::Unpack { source: None, ..whole.clone() }, "source"),
            (v1::Unpack { source: Some(Source::Archive(unproven)), ..whole.clone() }, "archive.digest"),
            (v1::Unpack { source: Some(Source::Image(String::new())), ..whole.clone() }, "image"),
            (v1::Unpack { path: String::new(), ..whole }, "path"),
        ] {
            assert_eq!(Unpack::try_from(wire).unwrap_err().field(), field);
        }
    }
}
