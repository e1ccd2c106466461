//! `writeImage`: what is to be written, and what proves it.
//!
//! What the first agents know of stays in their fields. Whatever they would pass over, and so install wrongly (another kind
//! of proof, `keep`, `verify`), is sent with a proof that they do not see, which they refuse.

use std::time::Duration;

use landfall_api::message::{WriteImage, WriteImageResult};
use landfall_api::{
    ImageAccess, ImageAuthorization, ImageProof, ImageSource, IndexSpec, SecretText, SignatureSpec, SumsSpec,
};

use crate::convert::{ConvertError, Within as _, codec::*};
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
        let proof = proof(wire.digest, wire.digest_waived, wire.proof)?;
        let urls: Vec<String> = std::iter::once(wire.url).chain(wire.mirrors).collect();
        if urls.iter().any(String::is_empty) {
            return Err(ConvertError::missing("url"));
        }
        if wire.keep.iter().any(String::is_empty) {
            return Err(ConvertError::missing("keep"));
        }
        let format = parsed_if_any::from("format", wire.format)?;
        let access = unless_default::from("access", wire.access)?;
        Ok(Self {
            disk: selector::from("disk", wire.disk)?,
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
            disk: selector::to(disk),
            url: urls.next().unwrap_or_default(),
            mirrors: urls.collect(),
            format: parsed_if_any::to(format),
            keep,
            no_table,
            verify: if read_back { v1::Verify::ReadBack } else { v1::Verify::Unspecified }.into(),
            access: unless_default::to(access),
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
fn proof(stored: String, waived: bool, newer: Option<Proof>) -> Result<ImageProof, ConvertError> {
    match (parsed_if_any::from("digest", stored)?, waived, newer) {
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
            Proof::StoredDigest(text) => Self::Stored(digest::from("stored_digest", text)?),
            Proof::RawDigest(text) => Self::Raw(digest::from("raw_digest", text)?),
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
        match proof {
            ImageProof::Stored(digest) => Self::StoredDigest(digest::to(digest)),
            ImageProof::Raw(digest) => Self::RawDigest(digest::to(digest)),
            ImageProof::Sums(sums) => Self::Sums(sums.into()),
            ImageProof::Signed(signature) => Self::Signature(signature.into()),
            ImageProof::Index(index) => Self::Index(index.into()),
            ImageProof::Pinned => Self::Pinned(v1::ImagePinned {}),
            ImageProof::Waived => Self::Waived(v1::ImageWaived {}),
        }
    }
}

wire! {
    SumsSpec = v1::ImageSums { signature: one_if_any, url: text }
    SignatureSpec = v1::ImageSignature { key: text, url: text }
    IndexSpec = v1::ImageIndex { url: text, digest: digest }
    ImageAccess = v1::ImageAccess { ca_certificates, proxy: text_if_any, authorization: one_if_any }
    WriteImageResult = v1::WriteImageResult {
        receipt: one_if_any, written, stored_bytes, raw_bytes, written_bytes, elapsed_ms: span_in_ms(elapsed),
    }
}

codec! {
    /// The first agents may leave the time out; nothing decides by it.
    span_in_ms: Option<prost_types::Duration> => u64,
        |field, wire| Ok(millis::to(span::from(field, wire).unwrap_or_default())),
        |ms| span::to(Duration::from_millis(ms));
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

#[cfg(test)]
mod tests {
    use landfall_api::{Digest, DiskSelector, ImageFormat};

    use super::*;
    use crate::convert::testing::survives;

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
            let wire = v1::WriteImage::from(spec.clone());
            assert_eq!((wire.format.as_str(), wire.verify()), ("qcow2", v1::Verify::ReadBack));
            survives::<v1::WriteImage, _>(spec);
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
}
