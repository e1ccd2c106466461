//! From what a request states as proof to what the stages can check: files of checksums, signatures and indexes are
//! fetched and judged here, before the first write.

mod signature;
mod sums;

use std::sync::atomic::AtomicBool;

use landfall_api::{Digest, IndexSpec, SumsSpec};

pub use signature::{DetachedSignature, SignatureVerifier};

pub(crate) use sums::digest_of;

use crate::pipeline::Hasher;
use crate::source::{Locator, fetch_whole, name_of, proven_layer, shown_name, shown_text};
use crate::{Access, Defect, Image, LogLevel, MAX_INDEX_BYTES, Observer, Proof, Signature, WriteError};

/// The largest file of checksums, bytes: some ten thousand lines.
const SUMS_MAX: u64 = 1 << 20;
/// The largest file of signatures, bytes.
const SIGNATURE_MAX: u64 = 64 * 1024;

/// What the stages check an image against.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Resolved {
    /// The digest of the stored bytes.
    Stored(Digest),
    /// The digest of the raw bytes.
    Raw(Digest),
    /// A signature of the stored bytes.
    Signed(DetachedSignature),
    /// An index that its digest proved.
    Index {
        /// The index.
        bytes: Vec<u8>,
        /// Its digest.
        digest: Digest,
    },
    /// Nothing.
    Waived,
}

impl Resolved {
    /// The digest that names the image, where there is one.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Self::Stored(digest) | Self::Raw(digest) | Self::Index { digest, .. } => Some(*digest),
            Self::Signed(_) | Self::Waived => None,
        }
    }
}

/// Fetches what proves the image and looks whether it is itself proven.
///
/// A pinned `oci://…@sha256:…` is a proof: the digest of the manifest proves the digest of the layer. It counts where the
/// request states that very digest as the image's, or waives any other proof.
///
/// # Errors
/// [`WriteError`]: what fetching says, [`WriteError::BadSignature`], [`WriteError::DigestMismatch`], and
/// [`WriteError::BadFormat`] for a file of checksums without the image or an index that is too large.
pub fn resolve(image: &Image, observer: &dyn Observer, stop: &AtomicBool) -> Result<Resolved, WriteError> {
    match &image.proof {
        Proof::Stored(digest) => match layer_of(image, Some(digest), observer, stop)? {
            Some(layer) => Ok(Resolved::Stored(layer)),
            None => Ok(Resolved::Stored(*digest)),
        },
        Proof::Raw(digest) => Ok(Resolved::Raw(*digest)),
        Proof::Pinned => layer_of(image, None, observer, stop)?.map(Resolved::Stored).ok_or_else(|| {
            let reason = "it has no digest, and none of its URLs is oci:// and pinned by @sha256:, so nothing proves \
                it"
            .into();
            WriteError::BadFormat { subject: name_of(image).into(), reason, defect: Defect::Beside }
        }),
        Proof::Waived => Ok(layer_of(image, None, observer, stop)?.map_or(Resolved::Waived, Resolved::Stored)),
        Proof::Sums(SumsSpec { url, signature }) => from_sums(image, url, signature.as_ref(), observer, stop),
        Proof::Signed(signature) => {
            let signature = fetch_signature(image, signature, name_of(image), observer, stop)?;
            let refuse = |reason| WriteError::BadSignature { subject: shown_name(image), reason };
            signature.can_stream().map_err(refuse)?;
            Ok(Resolved::Signed(signature))
        }
        Proof::Index(IndexSpec { url, digest }) => {
            let bytes = fetch(image, url, MAX_INDEX_BYTES, observer, stop)?;
            let mut hasher = Hasher::like(digest);
            hasher.update(&bytes);
            let actual = hasher.finish();
            if actual != *digest {
                return Err(WriteError::DigestMismatch { url: shown_text(url), expected: *digest, actual });
            }
            Ok(Resolved::Index { bytes, digest: *digest })
        }
    }
}

/// The digest of the layer behind the first `oci:` URL that answers and is pinned, to `stated` if something is stated.
fn layer_of(
    image: &Image, stated: Option<&Digest>, observer: &dyn Observer, stop: &AtomicBool,
) -> Result<Option<Digest>, WriteError> {
    let mut pinned = Vec::new();
    for url in &image.urls {
        if let Locator::Oci(reference) = Locator::parse(url)?
            && reference.pinned().is_some_and(|pin| stated.is_none_or(|stated| stated == pin))
        {
            pinned.push(reference);
        }
    }
    let mut first = None;
    for reference in &pinned {
        match proven_layer(reference, pinned.len() > 1, &image.access, observer, stop) {
            Ok(layer) => return Ok(Some(layer)),
            Err(error @ WriteError::Cancelled { .. }) => return Err(error),
            // Any registry is good enough: its answer is checked against the pinned digest.
            Err(error) => first = first.or(Some(error)),
        }
    }
    first.map_or(Ok(None), Err)
}

fn from_sums(
    image: &Image, url: &str, signature: Option<&Signature>, observer: &dyn Observer, stop: &AtomicBool,
) -> Result<Resolved, WriteError> {
    let bad = |reason: String| WriteError::BadFormat { subject: shown_text(url), reason, defect: Defect::Beside };
    let names = image.urls.iter().filter_map(|url| Locator::parse(url).ok()?.file_name());
    let name = names.into_iter().next().ok_or_else(|| {
        bad("the image's URL has no file name at its end, so no line of the checksum file can match".into())
    })?;
    let bytes = fetch(image, url, SUMS_MAX, observer, stop)?;
    match signature {
        Some(stated) => {
            let signature = fetch_signature(image, stated, url, observer, stop)?;
            let refuse = |reason| WriteError::BadSignature { subject: shown_text(url), reason };
            signature.check(&bytes).map_err(refuse)?;
            let line = format!("the signature of {} is valid ({})", shown_text(url), signature.description());
            observer.log(LogLevel::Info, &line);
        }
        None => {
            let line = format!(
                "{} is not signed: it protects against accidental damage, but does not prove who made the image",
                shown_text(url)
            );
            observer.log(LogLevel::Warn, &line);
        }
    }
    sums::digest_of(&bytes, &name).map(Resolved::Stored).map_err(bad)
}

fn fetch_signature(
    image: &Image, stated: &Signature, subject: &str, observer: &dyn Observer, stop: &AtomicBool,
) -> Result<DetachedSignature, WriteError> {
    let bytes = fetch(image, &stated.url, SIGNATURE_MAX, observer, stop)?;
    DetachedSignature::read(&stated.key, &bytes)
        .map_err(|reason| WriteError::BadSignature { subject: shown_text(subject), reason })
}

/// A small file beside the image. Its server gets the credentials only if it is one of the image's own servers.
fn fetch(
    image: &Image, url: &str, limit: u64, observer: &dyn Observer, stop: &AtomicBool,
) -> Result<Vec<u8>, WriteError> {
    let server = Locator::parse(url)?.server().map(|server| server.origin());
    let own = |url: &String| Locator::parse(url).ok().and_then(|own| own.server()).map(|own| own.origin());
    let is_own = server.is_some() && image.urls.iter().any(|url| own(url) == server);
    let access =
        Access { authorization: image.access.authorization.clone().filter(|_| is_own), ..image.access.clone() };
    fetch_whole(url, &access, limit, observer, stop)
}
