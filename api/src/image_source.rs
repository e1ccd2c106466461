//! An image, resolved: where it is, the one thing that proves it, how it is stored, how its servers are asked.
//!
//! A template's [`ImageSpec`] has a field for each kind of proof, because people write it. Agent, coordinator and disk
//! library use [`ImageSource`], in which exactly one proof exists.

use crate::{
    AccessSpec, AuthorizationSpec, Digest, ImageFormat, ImageSpec, ImageTable, IndexSpec, SecretText, SignatureSpec,
    SumsSpec,
};

/// A disk image that can be fetched and proven.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageSource {
    /// `http://`, `https://`, `file:` or `oci://`; never empty. Each has the same content; they are tried in this order.
    pub urls: Vec<String>,
    /// What proves it.
    pub proof: ImageProof,
    /// `None`: by content. Content that disagrees is refused.
    pub format: Option<ImageFormat>,
    /// It has no partition table, and that is meant. Otherwise it must have one.
    pub no_table: bool,
    /// How its servers are asked.
    pub access: ImageAccess,
}

/// What proves that an image is the one meant.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageProof {
    /// Digest of the stored bytes (the file behind the URL).
    Stored(Digest),
    /// Digest of the raw bytes (what the stored bytes decode to).
    Raw(Digest),
    /// A file of checksums that lists the image's file name. Without a signature it proves that nothing was cut or altered
    /// on the way, not who made the image.
    Sums(SumsSpec),
    /// A detached signature of the stored bytes.
    Signed(SignatureSpec),
    /// An index with the digest of every chunk. Chunks are verified before they are written.
    Index(IndexSpec),
    /// The URLs themselves: each is an OCI reference by digest.
    Pinned,
    /// The template says, in so many words, that nothing proves it.
    Waived,
}

impl ImageProof {
    /// What the receipt names the image by: the digest that was stated, whatever it is of.
    pub const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Stored(digest) | Self::Raw(digest) | Self::Index(IndexSpec { digest, .. }) => Some(*digest),
            Self::Sums(_) | Self::Signed(_) | Self::Pinned | Self::Waived => None,
        }
    }
}

/// How an image's servers are asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageAccess {
    /// Certificate authorities to trust besides the public ones, PEM.
    pub ca_certificates: Vec<String>,
    /// `http://host:port` of a proxy. `None`: none, whatever the environment says.
    pub proxy: Option<String>,
    /// Sent to the hosts of the image's own URLs, never to another host that one of them redirects to.
    pub authorization: Option<ImageAuthorization>,
}

/// The credentials for an image's servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageAuthorization {
    /// RFC 7617.
    Basic {
        /// The user's name.
        username: String,
        /// The password.
        password: SecretText,
    },
    /// RFC 6750.
    Bearer(
        /// The token.
        SecretText,
    ),
}

/// An [`ImageSpec`] that names no image, or not exactly one proof of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImageSourceError {
    /// `url` or one of `mirrors` is empty.
    #[error("an image's URL is empty")]
    NoUrl,
    /// Nothing proves the image.
    #[error(
        "nothing proves the image; give one of digest, rawDigest, sums, signature, index and digestWaived, or pin every \
         URL as oci://…@sha256:…"
    )]
    NoProof,
    /// More than one of the fields that prove an image is given.
    #[error("{0} proofs of the image are given; give exactly one")]
    SeveralProofs(usize),
    /// `authorization` has neither a user name nor a token, or both.
    #[error("authorization has neither or both of username and token; give username and password, or token alone")]
    Authorization,
}

impl TryFrom<ImageSpec> for ImageSource {
    type Error = ImageSourceError;

    fn try_from(spec: ImageSpec) -> Result<Self, ImageSourceError> {
        let pinned = spec.is_pinned();
        let ImageSpec {
            url,
            mirrors,
            digest,
            raw_digest,
            sums,
            signature,
            index,
            digest_waived,
            format,
            table,
            access,
        } = spec;
        let urls: Vec<String> = std::iter::once(url).chain(mirrors).collect();
        if urls.iter().any(String::is_empty) {
            return Err(ImageSourceError::NoUrl);
        }
        let mut stated: Vec<ImageProof> = Vec::new();
        stated.extend(digest.map(ImageProof::Stored));
        stated.extend(raw_digest.map(ImageProof::Raw));
        stated.extend(sums.map(ImageProof::Sums));
        stated.extend(signature.map(ImageProof::Signed));
        stated.extend(index.map(ImageProof::Index));
        stated.extend(digest_waived.then_some(ImageProof::Waived));
        let count = stated.len();
        let proof = match stated.pop() {
            Some(proof) if count == 1 => proof,
            Some(_) => return Err(ImageSourceError::SeveralProofs(count)),
            None if pinned => ImageProof::Pinned,
            None => return Err(ImageSourceError::NoProof),
        };
        let access = access.map(ImageAccess::try_from).transpose()?.unwrap_or_default();
        Ok(Self { urls, proof, format, no_table: table == Some(ImageTable::None), access })
    }
}

impl TryFrom<AccessSpec> for ImageAccess {
    type Error = ImageSourceError;

    fn try_from(spec: AccessSpec) -> Result<Self, ImageSourceError> {
        let authorization = spec.authorization.map(ImageAuthorization::try_from).transpose()?;
        Ok(Self { ca_certificates: spec.ca_certificates, proxy: spec.proxy, authorization })
    }
}

impl TryFrom<AuthorizationSpec> for ImageAuthorization {
    type Error = ImageSourceError;

    fn try_from(spec: AuthorizationSpec) -> Result<Self, ImageSourceError> {
        match spec {
            AuthorizationSpec { username: Some(username), password, token: None } => {
                Ok(Self::Basic { username, password: SecretText::new(password.unwrap_or_default()) })
            }
            AuthorizationSpec { username: None, password: None, token: Some(token) } => {
                Ok(Self::Bearer(SecretText::new(token)))
            }
            _ => Err(ImageSourceError::Authorization),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolved(spec: Value) -> Result<ImageSource, ImageSourceError> {
        ImageSource::try_from(serde_json::from_value::<ImageSpec>(spec).unwrap())
    }

    fn sum() -> String {
        format!("sha256:{}", "0a".repeat(32))
    }

    #[test]
    fn each_field_that_proves_becomes_its_proof() {
        let digest: Digest = sum().parse().unwrap();
        let url = || "http://h/f".to_owned();
        let signature = || SignatureSpec { url: url(), key: "RW".into() };
        let signed = json!({"url": url(), "key": "RW"});
        for (field, value, proof) in [
            ("digest", json!(sum()), ImageProof::Stored(digest)),
            ("rawDigest", json!(sum()), ImageProof::Raw(digest)),
            (
                "sums",
                json!({"url": url(), "signature": signed}),
                ImageProof::Sums(SumsSpec { url: url(), signature: Some(signature()) }),
            ),
            ("signature", signed.clone(), ImageProof::Signed(signature())),
            ("index", json!({"url": url(), "digest": sum()}), ImageProof::Index(IndexSpec { url: url(), digest })),
            ("digestWaived", json!(true), ImageProof::Waived),
        ] {
            let source = resolved(json!({"url": "http://h/i", "mirrors": ["http://g/i"], field: value})).unwrap();
            assert_eq!((source.proof, source.urls.len()), (proof, 2));
        }
        let pinned = resolved(json!({"url": format!("oci://r.example/a@{}", sum())})).unwrap();
        assert_eq!(pinned.proof, ImageProof::Pinned);
    }

    #[test]
    fn no_proof_and_two_proofs_are_refused() {
        assert_eq!(resolved(json!({"url": "http://h/i"})), Err(ImageSourceError::NoProof));
        let two = json!({"url": "http://h/i", "digest": sum(), "digestWaived": true});
        assert_eq!(resolved(two), Err(ImageSourceError::SeveralProofs(2)));
        assert_eq!(resolved(json!({"url": "", "digest": sum()})), Err(ImageSourceError::NoUrl));
    }

    #[test]
    fn credentials_are_one_kind_and_never_printed() {
        let asks =
            |who: Value| resolved(json!({"url": "https://h/i", "digest": sum(), "access": {"authorization": who}}));
        let basic = asks(json!({"username": "anna", "password": "geheim"})).unwrap();
        let bearer = asks(json!({"token": "geheim"})).unwrap();
        assert!(matches!(basic.access.authorization, Some(ImageAuthorization::Basic { .. })));
        assert!(matches!(bearer.access.authorization, Some(ImageAuthorization::Bearer(_))));
        assert!(!format!("{basic:?}{bearer:?}").contains("geheim"));
        for neither_or_both in
            [json!({}), json!({"username": "anna", "token": "t"}), json!({"password": "p", "token": "t"})]
        {
            assert_eq!(asks(neither_or_both), Err(ImageSourceError::Authorization));
        }
    }
}
