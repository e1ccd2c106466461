//! `writeFile`.

use landfall_api::{FileSource, SecretText, WriteFile, WriteFileResult};

use crate::convert::{ConvertError, Within as _, codec::*};
use crate::v1::{self, write_file::Source};

wire! {
    WriteFile = v1::WriteFile, checked by permissions {
        path: text, source: oneof, owner: text_if_any, group: text_if_any, mode, disk: selector_if_any,
    }
    WriteFileResult = v1::WriteFileResult { root_device }
}

/// Every permission bit there is.
const ALL_BITS: u32 = 0o7777;

fn permissions(wire: &v1::WriteFile) -> Result<(), ConvertError> {
    if wire.mode & !ALL_BITS == 0 { Ok(()) } else { Err(ConvertError::new("mode", "it has more than permission bits")) }
}

impl TryFrom<Source> for FileSource {
    type Error = ConvertError;

    fn try_from(wire: Source) -> Result<Self, ConvertError> {
        Ok(match wire {
            Source::Content(text) => Self::Content(SecretText::new(text)),
            Source::Download(wire) => Self::Download {
                url: text::from("url", wire.url).within("download")?,
                digest: digest::from("digest", wire.digest).within("download")?,
            },
        })
    }
}

impl From<FileSource> for Source {
    fn from(source: FileSource) -> Self {
        match source {
            FileSource::Content(text) => Self::Content(text.into_exposed()),
            FileSource::Download { url, digest } => {
                Self::Download(v1::FileDownload { url, digest: digest.to_string() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::Digest;

    use super::*;
    use crate::convert::testing::{disk, refused, survives};

    fn file(source: FileSource) -> WriteFile {
        WriteFile {
            path: "/etc/key".into(),
            source,
            owner: Some("www-data".into()),
            group: None,
            mode: 0o640,
            disk: Some(disk("D1")),
        }
    }

    #[test]
    fn a_file_survives_the_wire_and_never_shows_its_content() {
        let text = file(FileSource::Content(SecretText::new("geheim")));
        let digest = Digest::from_sha256([1; 32]);
        for spec in [text, file(FileSource::Download { url: "http://h/f".into(), digest })] {
            survives::<v1::WriteFile, _>(spec);
        }
    }

    #[test]
    fn a_file_without_a_source_or_proof_is_refused() {
        refused::<v1::WriteFile, _>(
            file(FileSource::Content(SecretText::new("x"))),
            &[
                ("source", |w| w.source = None),
                ("download.digest", |w| {
                    w.source =
                        Some(Source::Download(v1::FileDownload { url: "http://h/f".into(), digest: String::new() }));
                }),
                ("path", |w| w.path.clear()),
                ("mode", |w| w.mode = 0o10000),
            ],
        );
    }
}
