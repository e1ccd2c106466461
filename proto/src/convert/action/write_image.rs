//! `writeImage`: what is to be written, and what proves it.
//!
//! What the first agents know of stays in their fields. Whatever they would pass over, and so install wrongly (another kind
//! of proof, `keep`, `verify`), is sent with a proof that they do not see, which they refuse.

use std::time::Duration;

use landfall_api::{
    Digest, DiskReceipt, ImageAccess, ImageAuthorization, ImageFormat, ImageProof, ImageSource, IndexSpec, SecretText,
    SignatureSpec, SumsSpec,
    message::{WriteImage, WriteImageResult},
};

use super::super::{
    ConvertError, Within as _,
    scalar::{digest, digest_if_any, duration_to_wire, text, text_if_any},
    selector::{selector, selector_to_wire},
};
use crate::v1::{self, write_image::Proof};

impl TryFrom<v1::WriteImage> for WriteImage {
    type Error = ConvertError;

    fn try_from(wire: v1::WriteImage) -> Result<Self, ConvertError> {
        // A number that this agent does not know asks for something it cannot do.
        let read_back = match v1::Verify::try_from(wire.verify) {
            Ok(v1::Verify::Unspecified) => false,
            Ok(v1::Verify::ReadBack) => true,
            Err(_) => return Err(ConvertError::missing("verify")),
        };
        let proof = proof(&wire.digest, wire.digest_waived, wire.proof)?;
        let urls: Vec<String> = std::iter::once(wire.url).chain(wire.mirrors).collect();
        if urls.iter().any(String::is_empty) {
            return Err(ConvertError::missing("url"));
        }
        if wire.keep.iter().any(String::is_empty) {
            return Err(ConvertError::missing("keep"));
        }
        let format = |name: String| name.parse::<ImageFormat>().map_err(|error| ConvertError::new("format", error));
        let format = text_if_any(wire.format).map(format).transpose()?;
        let access = wire.access.map(ImageAccess::try_from).transpose().within("access")?.unwrap_or_default();
        Ok(Self {
            disk: selector(wire.disk),
            image: ImageSource { urls, proof, format, no_table: wire.no_table, access },
            keep: wire.keep,
            read_back,
        })
    }
}

impl From<WriteImage> for v1::WriteImage {
    fn from(spec: WriteImage) -> Self {
        let WriteImage { disk, image: ImageSource { urls, proof, format, no_table, access }, keep, read_back } = spec;
        let known_to_all = keep.is_empty() && !read_back;
        let mut urls = urls.into_iter();
        let mut wire = Self {
            disk: selector_to_wire(disk),
            url: urls.next().unwrap_or_default(),
            mirrors: urls.collect(),
            format: format.map(|format| format.as_str().to_owned()).unwrap_or_default(),
            keep,
            no_table,
            verify: if read_back { v1::Verify::ReadBack } else { v1::Verify::Unspecified }.into(),
            access: Some(access).filter(|access| *access != ImageAccess::default()).map(v1::ImageAccess::from),
            ..Self::default()
        };
        match proof {
            ImageProof::Stored(digest) if known_to_all => wire.digest = digest.to_string(),
            ImageProof::Waived if known_to_all => wire.digest_waived = true,
            proof => wire.proof = Some(proof.into()),
        }
        wire
    }
}

/// Exactly one proof, in the first agents' two fields or in the `oneof`. Absent, or of a kind that only a newer agent knows:
/// refused; an image is never taken unproven by mistake.
fn proof(stored: &str, waived: bool, newer: Option<Proof>) -> Result<ImageProof, ConvertError> {
    match (digest_if_any("digest", stored)?, waived, newer) {
        (Some(digest), false, None) => Ok(ImageProof::Stored(digest)),
        (None, true, None) => Ok(ImageProof::Waived),
        (Some(_), true, _) => Err(ConvertError::new("digest_waived", "a digest is given as well")),
        (None, false, None) => Err(ConvertError::missing("digest")),
        (Some(_), false, Some(_)) | (None, true, Some(_)) => {
            Err(ConvertError::new("proof", "digest or digest_waived is given as well"))
        }
        (None, false, Some(proof)) => proof.try_into(),
    }
}

impl TryFrom<Proof> for ImageProof {
    type Error = ConvertError;

    fn try_from(wire: Proof) -> Result<Self, ConvertError> {
        Ok(match wire {
            Proof::StoredDigest(text) => Self::Stored(digest("stored_digest", &text)?),
            Proof::RawDigest(text) => Self::Raw(digest("raw_digest", &text)?),
            Proof::Sums(wire) => Self::Sums(wire.try_into().within("sums")?),
            Proof::Signature(wire) => Self::Signed(wire.try_into().within("signature")?),
            Proof::Index(wire) => Self::Index(wire.try_into().within("index")?),
            Proof::Pinned(v1::ImagePinned {}) => Self::Pinned,
            Proof::Waived(v1::ImageWaived {}) => Self::Waived,
        })
    }
}

impl From<ImageProof> for Proof {
    fn from(proof: ImageProof) -> Self {
        let stated = |digest: Digest| digest.to_string();
        match proof {
            ImageProof::Stored(digest) => Self::StoredDigest(stated(digest)),
            ImageProof::Raw(digest) => Self::RawDigest(stated(digest)),
            ImageProof::Sums(SumsSpec { url, signature }) => {
                Self::Sums(v1::ImageSums { url, signature: signature.map(v1::ImageSignature::from) })
            }
            ImageProof::Signed(signature) => Self::Signature(signature.into()),
            ImageProof::Index(IndexSpec { url, digest }) => Self::Index(v1::ImageIndex { url, digest: stated(digest) }),
            ImageProof::Pinned => Self::Pinned(v1::ImagePinned {}),
            ImageProof::Waived => Self::Waived(v1::ImageWaived {}),
        }
    }
}

impl TryFrom<v1::ImageSums> for SumsSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::ImageSums) -> Result<Self, ConvertError> {
        let signature = wire.signature.map(SignatureSpec::try_from).transpose().within("signature")?;
        Ok(Self { url: text("url", wire.url)?, signature })
    }
}

impl TryFrom<v1::ImageSignature> for SignatureSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::ImageSignature) -> Result<Self, ConvertError> {
        Ok(Self { key: text("key", wire.key)?, url: text("url", wire.url)? })
    }
}

impl From<SignatureSpec> for v1::ImageSignature {
    fn from(spec: SignatureSpec) -> Self {
        let SignatureSpec { url, key } = spec;
        Self { url, key }
    }
}

impl TryFrom<v1::ImageIndex> for IndexSpec {
    type Error = ConvertError;

    fn try_from(wire: v1::ImageIndex) -> Result<Self, ConvertError> {
        Ok(Self { url: text("url", wire.url)?, digest: digest("digest", &wire.digest)? })
    }
}

impl TryFrom<v1::ImageAccess> for ImageAccess {
    type Error = ConvertError;

    fn try_from(wire: v1::ImageAccess) -> Result<Self, ConvertError> {
        Ok(Self {
            ca_certificates: wire.ca_certificates,
            proxy: text_if_any(wire.proxy),
            authorization: wire.authorization.map(ImageAuthorization::try_from).transpose().within("authorization")?,
        })
    }
}

impl From<ImageAccess> for v1::ImageAccess {
    fn from(access: ImageAccess) -> Self {
        Self {
            ca_certificates: access.ca_certificates,
            proxy: access.proxy.unwrap_or_default(),
            authorization: access.authorization.map(v1::ImageAuthorization::from),
        }
    }
}

impl TryFrom<v1::ImageAuthorization> for ImageAuthorization {
    type Error = ConvertError;

    /// One way of the two. With neither or both the image's server would learn what was not meant for it.
    fn try_from(wire: v1::ImageAuthorization) -> Result<Self, ConvertError> {
        let v1::ImageAuthorization { username, password, token } = wire;
        match (username.is_empty(), token.is_empty()) {
            (false, true) => Ok(Self::Basic { username, password: SecretText::new(password) }),
            (true, false) if password.is_empty() => Ok(Self::Bearer(SecretText::new(token))),
            _ => Err(ConvertError::missing("username or token")),
        }
    }
}

impl From<ImageAuthorization> for v1::ImageAuthorization {
    fn from(authorization: ImageAuthorization) -> Self {
        match authorization {
            ImageAuthorization::Basic { username, password } => {
                Self { username, password: password.into_exposed(), token: String::new() }
            }
            ImageAuthorization::Bearer(token) => Self { token: token.into_exposed(), ..Self::default() },
        }
    }
}

impl TryFrom<v1::WriteImageResult> for WriteImageResult {
    type Error = ConvertError;

    fn try_from(wire: v1::WriteImageResult) -> Result<Self, ConvertError> {
        // The first agents may leave the time out; nothing decides by it.
        let elapsed = wire.elapsed.and_then(|span| Duration::try_from(span).ok()).unwrap_or_default();
        Ok(Self {
            receipt: wire.receipt.map(DiskReceipt::try_from).transpose().within("receipt")?,
            written: wire.written,
            stored_bytes: wire.stored_bytes,
            raw_bytes: wire.raw_bytes,
            written_bytes: wire.written_bytes,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

impl From<WriteImageResult> for v1::WriteImageResult {
    fn from(result: WriteImageResult) -> Self {
        Self {
            receipt: result.receipt.map(v1::DiskReceipt::from),
            written: result.written,
            stored_bytes: result.stored_bytes,
            raw_bytes: result.raw_bytes,
            written_bytes: result.written_bytes,
            elapsed: Some(duration_to_wire(Duration::from_millis(result.elapsed_ms))),
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::DiskSelector;

    use super::*;

    fn sum() -> Digest {
        Digest::from_sha256([10; 32])
    }

    fn url() -> String {
        "http://h/f".to_owned()
    }

    fn signature() -> SignatureSpec {
        SignatureSpec { url: url(), key: "RW".into() }
    }

    fn image(proof: ImageProof) -> WriteImage {
        let image = ImageSource {
            urls: vec!["http://h/i".into()],
            proof,
            format: None,
            no_table: false,
            access: ImageAccess::default(),
        };
        WriteImage { disk: DiskSelector::default(), image, keep: vec![], read_back: false }
    }

    /// What an agent of the first protocol sees of the proof: it refuses a message that has neither.
    fn an_old_agent_refuses(wire: &v1::WriteImage) -> bool {
        wire.digest.is_empty() && !wire.digest_waived
    }

    fn proofs() -> [ImageProof; 7] {
        [
            ImageProof::Stored(sum()),
            ImageProof::Raw(sum()),
            ImageProof::Sums(SumsSpec { url: url(), signature: Some(signature()) }),
            ImageProof::Signed(signature()),
            ImageProof::Index(IndexSpec { url: url(), digest: sum() }),
            ImageProof::Pinned,
            ImageProof::Waived,
        ]
    }

    #[test]
    fn what_every_agent_knows_travels_in_the_first_fields() {
        let mut plain = image(ImageProof::Stored(sum()));
        plain.image.urls.push("http://g/i".into());
        let wire = v1::WriteImage::from(plain);
        assert_eq!((wire.digest.as_str(), &wire.proof, wire.url.as_str()), (&*sum().to_string(), &None, "http://h/i"));
        assert_eq!((wire.mirrors.as_slice(), &wire.access), (&["http://g/i".to_owned()][..], &None));
        let waived = v1::WriteImage::from(image(ImageProof::Waived));
        assert!(waived.digest_waived && waived.proof.is_none());
    }

    #[test]
    fn an_old_agent_refuses_whatever_it_would_pass_over() {
        for proof in proofs() {
            let simple = matches!(proof, ImageProof::Stored(_) | ImageProof::Waived);
            let wire = v1::WriteImage::from(image(proof.clone()));
            assert_eq!(an_old_agent_refuses(&wire), !simple, "{proof:?}");
            for spec in [
                WriteImage { keep: vec!["data".into()], ..image(proof.clone()) },
                WriteImage { read_back: true, ..image(proof.clone()) },
            ] {
                let wire = v1::WriteImage::from(spec);
                assert!(an_old_agent_refuses(&wire) && wire.proof.is_some(), "{proof:?}");
            }
        }
    }

    #[test]
    fn everything_that_can_be_asked_survives_the_wire() {
        let basic = ImageAuthorization::Basic { username: "u".into(), password: SecretText::new("geheim") };
        let bearer = ImageAuthorization::Bearer(SecretText::new("geheim"));
        for (proof, authorization) in proofs().into_iter().flat_map(|proof| {
            [None, Some(basic.clone()), Some(bearer.clone())].map(|authorization| (proof.clone(), authorization))
        }) {
            let spec = WriteImage {
                disk: DiskSelector([("size".to_owned(), ">= 1GiB".into())].into()),
                image: ImageSource {
                    urls: vec!["http://h/i".into(), "http://g/i".into()],
                    proof,
                    format: Some(ImageFormat::Qcow2),
                    no_table: true,
                    access: ImageAccess {
                        ca_certificates: vec!["PEM".into()],
                        proxy: Some("http://p:1".into()),
                        authorization,
                    },
                },
                keep: vec!["data".into()],
                read_back: true,
            };
            assert!(!format!("{spec:?}").contains("geheim"), "{spec:?}");
            let wire = v1::WriteImage::from(spec.clone());
            assert_eq!((wire.format.as_str(), wire.verify()), ("qcow2", v1::Verify::ReadBack));
            assert_eq!(WriteImage::try_from(wire), Ok(spec));
        }
    }

    #[test]
    fn a_proof_that_is_missing_double_or_unknown_is_refused() {
        let sum = || sum().to_string();
        let wire = |proof: Option<Proof>| v1::WriteImage { url: url(), proof, ..v1::WriteImage::default() };
        let pinned = || Some(Proof::Pinned(v1::ImagePinned {}));
        let old = |digest: String, digest_waived| v1::WriteImage { digest, digest_waived, ..wire(pinned()) };
        let index = v1::ImageIndex { url: url(), digest: String::new() };
        let unsigned = v1::ImageSignature { url: url(), key: String::new() };
        let asks = |who| v1::ImageAccess { authorization: Some(who), ..v1::ImageAccess::default() };
        let both = v1::ImageAuthorization { username: "u".into(), token: "t".into(), ..Default::default() };
        for (wire, field) in [
            // Also what an agent finds that does not know the kind of proof: prost leaves an unknown case out.
            (wire(None), "digest"),
            (old(sum(), false), "proof"),
            (old(String::new(), true), "proof"),
            (v1::WriteImage { proof: None, ..old(sum(), true) }, "digest_waived"),
            (wire(Some(Proof::RawDigest(String::new()))), "raw_digest"),
            (wire(Some(Proof::StoredDigest("sha1:00".into()))), "stored_digest"),
            (wire(Some(Proof::Index(index))), "index.digest"),
            (wire(Some(Proof::Sums(v1::ImageSums::default()))), "sums.url"),
            (wire(Some(Proof::Signature(unsigned))), "signature.key"),
            (v1::WriteImage { url: String::new(), ..wire(pinned()) }, "url"),
            (v1::WriteImage { verify: 99, ..wire(pinned()) }, "verify"),
            (v1::WriteImage { format: "vhdx".into(), ..wire(pinned()) }, "format"),
            (v1::WriteImage { access: Some(asks(both)), ..wire(pinned()) }, "access.authorization.username or token"),
        ] {
            assert_eq!(WriteImage::try_from(wire).unwrap_err().field(), field);
        }
    }

    #[test]
    fn a_result_survives_the_wire() {
        let result = WriteImageResult {
            receipt: Some(crate::convert::disk::tests::receipt()),
            written: true,
            stored_bytes: 1,
            raw_bytes: 2,
            written_bytes: 3,
            elapsed_ms: 1500,
        };
        let wire = v1::WriteImageResult::from(result.clone());
        assert_eq!(wire.elapsed, Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }));
        assert_eq!(WriteImageResult::try_from(wire), Ok(result));
    }
}
