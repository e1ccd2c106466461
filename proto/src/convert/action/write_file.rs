//! `writeFile`.

use landfall_api::{FileSource, SecretText, WriteFile, WriteFileResult};

use super::super::{
    ConvertError, Within as _,
    scalar::{digest, text, text_if_any},
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1::{self, write_file::Source};

/// Every permission bit there is.
const ALL_BITS: u32 = 0o7777;

impl TryFrom<v1::WriteFile> for WriteFile {
    type Error = ConvertError;

    fn try_from(wire: v1::WriteFile) -> Result<Self, ConvertError> {
        if wire.mode & !ALL_BITS != 0 {
            return Err(ConvertError::new("mode", "it has more than permission bits"));
        }
        Ok(Self {
            path: text("path", wire.path)?,
            source: wire.source.ok_or_else(|| ConvertError::missing("source"))?.try_into()?,
            owner: text_if_any(wire.owner),
            group: text_if_any(wire.group),
            mode: wire.mode,
            disk: selector_if_any(wire.disk),
        })
    }
}

impl From<WriteFile> for v1::WriteFile {
    fn from(spec: WriteFile) -> Self {
        Self {
            path: spec.path,
            source: Some(spec.source.into()),
            owner: spec.owner.unwrap_or_default(),
            group: spec.group.unwrap_or_default(),
            mode: spec.mode,
            disk: spec.disk.map(selector_to_wire).unwrap_or_default(),
        }
    }
}

impl TryFrom<Source> for FileSource {
    type Error = ConvertError;

    fn try_from(wire: Source) -> Result<Self, ConvertError> {
        Ok(match wire {
            Source::Content(text) => Self::Content(SecretText::new(text)),
            Source::Download(wire) => Self::Download {
                url: text("url", wire.url).within("download")?,
                digest: digest("digest", &wire.digest).within("download")?,
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

impl From<v1::WriteFileResult> for WriteFileResult {
    fn from(wire: v1::WriteFileResult) -> Self {
        Self { root_device: wire.root_device }
    }
}

impl From<WriteFileResult> for v1::WriteFileResult {
    fn from(result: WriteFileResult) -> Self {
        Self { root_device: result.root_device }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{Digest, DiskSelector};

    use super::*;

    fn file(source: FileSource) -> WriteFile {
        WriteFile {
            path: "/etc/key".into(),
            source,
            owner: Some("www-data".into()),
            group: None,
            mode: 0o640,
            disk: Some(DiskSelector([("serial".to_owned(), "D1".into())].into())),
        }
    }

    #[test]
    fn a_file_survives_the_wire_and_never_shows_its_content() {
        let text = file(FileSource::Content(SecretText::new("geheim")));
        assert!(!format!("{text:?}").contains("geheim"), "{text:?}");
        let digest = Digest::from_sha256([1; 32]);
        for spec in [text, file(FileSource::Download { url: "http://h/f".into(), digest })] {
            assert_eq!(WriteFile::try_from(v1::WriteFile::from(spec.clone())), Ok(spec));
        }
    }

    #[test]
    fn a_file_without_a_source_or_proof_is_refused() {
        let whole = v1::WriteFile::from(file(FileSource::Content(SecretText::new("x"))));
        let unproven = v1::FileDownload { url: "http://h/f".into(), digest: String::new() };
        for (wire, field) in [
            (v1::WriteFile { source: None, ..whole.clone() }, "source"),
            (v1::WriteFile { source: Some(Source::Download(unproven)), ..whole.clone() }, "download.digest"),
            (v1::WriteFile { path: String::new(), ..whole.clone() }, "path"),
            (v1::WriteFile { mode: 0o10000, ..whole }, "mode"),
        ] {
            assert_eq!(WriteFile::try_from(wire).unwrap_err().field(), field);
        }
    }
}
