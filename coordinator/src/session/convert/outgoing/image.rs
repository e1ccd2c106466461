//! `writeImage` to the agent.

use landfall_api::{ImageSpec, SignatureSpec, Verify, WriteImageSpec};
use landfall_proto::v1;

use super::selector;

/// What the first agents know of stays in their fields; fields that they would ignore, and so install wrongly, are sent
/// in a form that they refuse: with a proof that they do not see.
pub(super) fn write_image(spec: WriteImageSpec) -> v1::WriteImage {
    use v1::write_image::Proof;
    let WriteImageSpec { disk, image, keep, verify } = spec;
    let pinned = image.is_pinned();
    let ImageSpec { url, mirrors, digest, raw_digest, sums, signature: signed, index, digest_waived, format, access } =
        image;
    let known_to_all = keep.is_empty() && verify == Verify::None;
    let stored = digest.map(|digest| digest.to_string());
    let mut wire = v1::WriteImage {
        disk: selector(&disk),
        url,
        mirrors,
        format: format.map(|format| format.as_str().to_owned()).unwrap_or_default(),
        keep,
        verify: match verify {
            Verify::None => v1::Verify::Unspecified,
            Verify::ReadBack => v1::Verify::ReadBack,
        }
        .into(),
        access: access.map(|a| v1::ImageAccess {
            ca_certificates: a.ca_certificates,
            proxy: a.proxy.unwrap_or_default(),
            authorization: a.authorization.map(|who| v1::ImageAuthorization {
                username: who.username.unwrap_or_default(),
                password: who.password.unwrap_or_default(),
                token: who.token.unwrap_or_default(),
            }),
        }),
        ..v1::WriteImage::default()
    };
    // Exactly one of them is there: `validate_actions` saw to that when the run was made.
    match stored {
        Some(digest) if known_to_all => wire.digest = digest,
        Some(digest) => wire.proof = Some(Proof::StoredDigest(digest)),
        None if digest_waived && known_to_all => wire.digest_waived = true,
        None if digest_waived => wire.proof = Some(Proof::Waived(v1::ImageWaived {})),
        None => {
            let raw = raw_digest.map(|digest| Proof::RawDigest(digest.to_string()));
            let sums =
                sums.map(|sums| Proof::Sums(v1::ImageSums { url: sums.url, signature: sums.signature.map(signature) }));
            let signed = signed.map(|signed| Proof::Signature(signature(signed)));
            let index =
                index.map(|index| Proof::Index(v1::ImageIndex { url: index.url, digest: index.digest.to_string() }));
            let pinned = pinned.then_some(Proof::Pinned(v1::ImagePinned {}));
            wire.proof = raw.or(sums).or(signed).or(index).or(pinned);
        }
    }
    wire
}

fn signature(spec: SignatureSpec) -> v1::ImageSignature {
    v1::ImageSignature { url: spec.url, key: spec.key }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use v1::write_image::Proof;

    use super::*;

    fn sent(spec: Value) -> v1::WriteImage {
        write_image(serde_json::from_value(spec).unwrap())
    }

    fn sum() -> String {
        format!("sha256:{}", "0a".repeat(32))
    }

    /// What an agent of the first protocol sees of the proof: it refuses a message that has neither.
    fn an_old_agent_refuses(wire: &v1::WriteImage) -> bool {
        wire.digest.is_empty() && !wire.digest_waived
    }

    #[test]
    fn an_old_agent_still_takes_what_it_can_do() {
        let plain = sent(json!({"image": {"url": "http://h/i", "digest": sum(), "mirrors": ["http://g/i"]}}));
        assert_eq!((plain.digest.as_str(), &plain.proof), (sum().as_str(), &None));
        assert_eq!(plain.mirrors, ["http://g/i"]);
        let waived = sent(json!({"image": {"url": "http://h/i", "digestWaived": true}}));
        assert!(waived.digest_waived && waived.proof.is_none());
    }

    #[test]
    fn an_old_agent_refuses_whatever_it_would_pass_over() {
        let signature = json!({"url": "http://h/s", "key": "RW"});
        let image = |field: &str, value: Value| json!({"image": {"url": "http://h/i", field: value}});
        for spec in [
            image("rawDigest", json!(sum())),
            image("sums", json!({"url": "http://h/f", "signature": signature})),
            image("signature", signature),
            image("index", json!({"url": "http://h/x", "digest": sum()})),
            json!({"image": {"url": format!("oci://r/a@{}", sum())}}),
            json!({"keep": ["data"], "image": {"url": "http://h/i", "digest": sum()}}),
            json!({"verify": "readBack", "image": {"url": "http://h/i", "digest": sum()}}),
            json!({"keep": ["data"], "image": {"url": "http://h/i", "digestWaived": true}}),
        ] {
            let wire = sent(spec.clone());
            assert!(an_old_agent_refuses(&wire) && wire.proof.is_some(), "{spec}");
        }
    }

    #[test]
    fn everything_that_a_template_asks_is_on_the_wire() {
        let wire =
            sent(json!({"keep": ["data"], "verify": "readBack", "image": {"url": "http://h/i", "format": "qcow2",
            "index": {"url": "http://h/x", "digest": sum()},
            "access": {"caCertificates": ["PEM"], "proxy": "http://p:1",
                "authorization": {"username": "u", "password": "{{ secrets.a.b }}"}}}}));
        assert_eq!((wire.format.as_str(), wire.verify(), wire.keep.len()), ("qcow2", v1::Verify::ReadBack, 1));
        let access = wire.access.unwrap();
        assert_eq!((access.ca_certificates.len(), access.proxy.as_str()), (1, "http://p:1"));
        let who = access.authorization.unwrap();
        assert_eq!((who.username.as_str(), who.password.as_str(), who.token.as_str()), ("u", "{{ secrets.a.b }}", ""));
        assert_eq!(wire.proof, Some(Proof::Index(v1::ImageIndex { url: "http://h/x".into(), digest: sum() })));
    }
}
