//! `unpack`.

use landfall_api::{Unpack, UnpackResult, UnpackSource};

use crate::convert::{ConvertError, Within as _, codec::*};
use crate::v1::{self, unpack::Source};

wire! {
    Unpack = v1::Unpack { source: oneof, access: unless_default, path: text, disk: selector_if_any }
    UnpackResult = v1::UnpackResult { root_device, entries, bytes }
}

impl TryFrom<Source> for UnpackSource {
    type Error = ConvertError;

    fn try_from(wire: Source) -> Result<Self, ConvertError> {
        Ok(match wire {
            Source::Archive(wire) => Self::Archive {
                url: text::from("url", wire.url).within("archive")?,
                digest: digest::from("digest", wire.digest).within("archive")?,
            },
            Source::Image(url) => Self::Image { url: text::from("image", url)? },
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

#[cfg(test)]
mod tests {
    use landfall_api::{Digest, ImageAccess, ImageAuthorization, SecretText};

    use super::*;
    use crate::convert::testing::{disk, refused, survives};

    fn archive() -> Unpack {
        Unpack {
            source: UnpackSource::Archive { url: "http://h/f".into(), digest: Digest::from_sha256([1; 32]) },
            access: ImageAccess::default(),
            path: "/srv".into(),
            disk: Some(disk("D1")),
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
        for spec in [archive(), image] {
            survives::<v1::Unpack, _>(spec);
        }
    }

    #[test]
    fn an_unpack_without_source_proof_or_path_is_refused() {
        refused::<v1::Unpack, _>(
            archive(),
            &[
                ("source", |w| w.source = None),
                ("archive.digest", |w| {
                    w.source =
                        Some(Source::Archive(v1::FileDownload { url: "http://h/f".into(), digest: String::new() }));
                }),
                ("image", |w| w.source = Some(Source::Image(String::new()))),
                ("path", |w| w.path.clear()),
            ],
        );
    }
}
