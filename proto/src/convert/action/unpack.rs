//! `unpack`.

use landfall_api::{Unpack, UnpackResult};

use super::super::{
    ConvertError,
    scalar::{digest, text},
    selector::{selector_if_any, selector_to_wire},
};
use crate::v1;

impl TryFrom<v1::Unpack> for Unpack {
    type Error = ConvertError;

    fn try_from(wire: v1::Unpack) -> Result<Self, ConvertError> {
        Ok(Self {
            url: text("url", wire.url)?,
            digest: digest("digest", &wire.digest)?,
            path: text("path", wire.path)?,
            disk: selector_if_any(wire.disk),
        })
    }
}

impl From<Unpack> for v1::Unpack {
    fn from(spec: Unpack) -> Self {
        let Unpack { url, digest, path, disk } = spec;
        Self { url, digest: digest.to_string(), path, disk: disk.map(selector_to_wire).unwrap_or_default() }
    }
}

impl From<v1::UnpackResult> for UnpackResult {
    fn from(wire: v1::UnpackResult) -> Self {
        let v1::UnpackResult { root_device, entries, bytes } = wire;
        Self { root_device, entries, bytes }
    }
}

impl From<UnpackResult> for v1::UnpackResult {
    fn from(result: UnpackResult) -> Self {
        let UnpackResult { root_device, entries, bytes } = result;
        Self { root_device, entries, bytes }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::{Digest, DiskSelector};

    use super::*;

    fn unpack() -> Unpack {
        Unpack {
            url: "http://h/app.tar.zst".into(),
            digest: Digest::from_sha256([7; 32]),
            path: "/opt".into(),
            disk: Some(DiskSelector([("serial".to_owned(), "D1".into())].into())),
        }
    }

    #[test]
    fn an_archive_survives_the_wire() {
        assert_eq!(Unpack::try_from(v1::Unpack::from(unpack())), Ok(unpack()));
        let result = UnpackResult { root_device: "/dev/vda2".into(), entries: 3, bytes: 4 };
        assert_eq!(UnpackResult::from(v1::UnpackResult::from(result.clone())), result);
    }

    #[test]
    fn an_archive_without_a_digest_is_refused() {
        let whole = v1::Unpack::from(unpack());
        for (wire, field) in [
            (v1::Unpack { url: String::new(), ..whole.clone() }, "url"),
            (v1::Unpack { digest: String::new(), ..whole.clone() }, "digest"),
            (v1::Unpack { path: String::new(), ..whole }, "path"),
        ] {
            assert_eq!(Unpack::try_from(wire).unwrap_err().field(), field);
        }
    }
}
