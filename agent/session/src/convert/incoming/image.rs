//! `writeImage` from the coordinator: what is to be written, and what proves it.

use landfall_api::Digest;
use landfall_proto::v1;

use super::{super::Within as _, ConvertError, digest, selector};
use crate::{ImageAccess, ImageAuthorization, ImageProof, ImageSignature, Secret, WriteImage};

pub(super) fn write_image(wire: v1::WriteImage) -> Result<WriteImage, ConvertError> {
    // A number that this agent does not know asks for something it cannot do.
    let read_back = match v1::Verify::try_from(wire.verify) {
        Ok(v1::Verify::Unspecified) => false,
        Ok(v1::Verify::ReadBack) => true,
        Err(_) => return Err(ConvertError::missing("verify")),
    };
    let proof = proof(&wire.digest, wire.digest_waived, wire.proof)?;
    if wire.url.is_empty() || wire.mirrors.iter().any(String::is_empty) {
        return Err(ConvertError::missing("url"));
    }
    if wire.keep.iter().any(String::is_empty) {
        return Err(ConvertError::missing("keep"));
    }
    let access = wire.access.unwrap_or_default();
    Ok(WriteImage {
        disk: selector(wire.disk),
        urls: std::iter::once(wire.url).chain(wire.mirrors).collect(),
        proof,
        format: Some(wire.format).filter(|f| !f.is_empty()),
        access: ImageAccess {
            ca_certificates: access.ca_certificates,
            proxy: Some(access.proxy).filter(|p| !p.is_empty()),
            authorization: access.authorization.map(authorization).transpose().within("access.authorization")?,
        },
        keep: wire.keep,
        read_back,
    })
}

/// Exactly one of the two. With neither or both, the image's server would get unintended credentials.
fn authorization(wire: v1::ImageAuthorization) -> Result<ImageAuthorization, ConvertError> {
    let v1::ImageAuthorization { username, password, token } = wire;
    match (username.is_empty(), token.is_empty()) {
        (false, true) => Ok(ImageAuthorization::Basic { username, password: Secret::new(password) }),
        (true, false) if password.is_empty() => Ok(ImageAuthorization::Bearer(Secret::new(token))),
        _ => Err(ConvertError::missing("username or token")),
    }
}

/// Exactly one proof, in the first agents' two fields or in the `oneof`. Absent, or of a kind that only a newer agent knows:
/// refused; an image is never taken unproven by mistake.
fn proof(stored: &str, waived: bool, newer: Option<v1::write_image::Proof>) -> Result<ImageProof, ConvertError> {
    use v1::write_image::Proof as Wire;
    let must = |field: &str, text: &str| -> Result<Digest, ConvertError> {
        digest(field, text)?.ok_or_else(|| ConvertError::missing(field))
    };
    match (digest("digest", stored)?, waived, newer) {
        (Some(digest), false, None) => Ok(ImageProof::Stored(digest)),
        (None, true, None) => Ok(ImageProof::Waived),
        (Some(_), true, _) => Err(ConvertError::new("digest_waived", "a digest is given as well")),
        (None, false, None) => Err(ConvertError::missing("digest")),
        (Some(_), false, Some(_)) | (None, true, Some(_)) => {
            Err(ConvertError::new("proof", "digest or digest_waived is given as well"))
        }
        (None, false, Some(proof)) => Ok(match proof {
            Wire::StoredDigest(text) => ImageProof::Stored(must("stored_digest", &text)?),
            Wire::RawDigest(text) => ImageProof::Raw(must("raw_digest", &text)?),
            Wire::Sums(sums) => ImageProof::Sums {
                url: url(sums.url).within("sums")?,
                signature: sums.signature.map(signature).transpose().within("sums.signature")?,
            },
            Wire::Signature(wire) => ImageProof::Signed(signature(wire).within("signature")?),
            Wire::Index(index) => {
                ImageProof::Index { url: url(index.url).within("index")?, digest: must("index.digest", &index.digest)? }
            }
            Wire::Pinned(v1::ImagePinned {}) => ImageProof::Pinned,
            Wire::Waived(v1::ImageWaived {}) => ImageProof::Waived,
        }),
    }
}

fn url(text: String) -> Result<String, ConvertError> {
    if text.is_empty() { Err(ConvertError::missing("url")) } else { Ok(text) }
}

fn signature(wire: v1::ImageSignature) -> Result<ImageSignature, ConvertError> {
    if wire.key.is_empty() {
        return Err(ConvertError::missing("key"));
    }
    Ok(ImageSignature { url: url(wire.url)?, key: wire.key })
}

#[cfg(test)]
mod tests {
    use v1::write_image::Proof as Wire;

    use super::*;

    fn sum() -> String {
        format!("sha256:{}", "0a".repeat(32))
    }

    fn wire(proof: Option<Wire>) -> v1::WriteImage {
        v1::WriteImage { url: "http://h/i".into(), proof, ..v1::WriteImage::default() }
    }

    #[test]
    fn everything_that_can_be_asked_arrives() {
        let signature = v1::ImageSignature { url: "http://h/s".into(), key: "RW".into() };
        let signed = ImageSignature { url: "http://h/s".into(), key: "RW".into() };
        let digest: Digest = sum().parse().unwrap();
        let (url, sums) = ("http://h/f".to_owned(), Some(signature.clone()));
        for (proof, arrives) in [
            (Wire::StoredDigest(sum()), ImageProof::Stored(digest)),
            (Wire::RawDigest(sum()), ImageProof::Raw(digest)),
            (
                Wire::Sums(v1::ImageSums { url: url.clone(), signature: sums }),
                ImageProof::Sums { url: url.clone(), signature: Some(signed.clone()) },
            ),
            (Wire::Signature(signature), ImageProof::Signed(signed)),
            (
                Wire::Index(v1::ImageIndex { url: url.clone(), digest: sum() }),
                ImageProof::Index { url: url.clone(), digest },
            ),
            (Wire::Pinned(v1::ImagePinned {}), ImageProof::Pinned),
            (Wire::Waived(v1::ImageWaived {}), ImageProof::Waived),
        ] {
            let got = write_image(v1::WriteImage {
                mirrors: vec!["http://g/i".into()],
                keep: vec!["data".into()],
                verify: v1::Verify::ReadBack.into(),
                access: Some(v1::ImageAccess {
                    ca_certificates: vec!["PEM".into()],
                    proxy: "http://p:1".into(),
                    authorization: Some(v1::ImageAuthorization { token: "tok".into(), ..Default::default() }),
                }),
                ..wire(Some(proof))
            })
            .unwrap();
            assert_eq!(got.proof, arrives);
            assert_eq!(got.urls, ["http://h/i", "http://g/i"]);
            assert!(got.read_back && got.keep == ["data"]);
            assert_eq!((got.access.ca_certificates.len(), got.access.proxy.as_deref()), (1, Some("http://p:1")));
            assert_eq!(got.access.authorization, Some(ImageAuthorization::Bearer(Secret::new("tok"))));
            assert!(!format!("{got:?}").contains("tok"), "{got:?}");
        }
    }

    #[test]
    fn a_proof_that_is_missing_double_or_unknown_is_refused() {
        let old = |digest: &str, waived| v1::WriteImage {
            digest: digest.into(),
            digest_waived: waived,
            ..wire(Some(Wire::Pinned(v1::ImagePinned {})))
        };
        for (wire, field) in [
            // Also what an agent finds that does not know the kind of proof: prost leaves an unknown case out.
            (wire(None), "digest"),
            (old(&sum(), false), "proof"),
            (old("", true), "proof"),
            (wire(Some(Wire::RawDigest(String::new()))), "raw_digest"),
            (wire(Some(Wire::StoredDigest("sha1:00".into()))), "stored_digest"),
            (
                wire(Some(Wire::Index(v1::ImageIndex { url: "http://h/x".into(), digest: String::new() }))),
                "index.digest",
            ),
            (wire(Some(Wire::Sums(v1::ImageSums::default()))), "sums.url"),
            (wire(Some(Wire::Signature(v1::ImageSignature { url: "u".into(), key: String::new() }))), "signature.key"),
            (v1::WriteImage { verify: 99, ..wire(Some(Wire::Pinned(v1::ImagePinned {}))) }, "verify"),
        ] {
            let problem = write_image(wire).unwrap_err().to_problem();
            assert_eq!(problem.subject, field);
        }
    }
}
