//! What the stages saw of the whole image, and whether it matches what was stated: the only way to a commit.

use landfall_api::Digest;

use super::Expectation;
use crate::WriteError;

/// What a drained pipeline knows about its input. Only the stages make one, at their regular end.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(super) stored: u64,
    /// How many the server had announced.
    pub(super) announced: Option<u64>,
    pub(super) digest: Option<Digest>,
    pub(super) raw: u64,
    pub(super) raw_digest: Option<Digest>,
    /// Every chunk was compared with its digest.
    pub(super) chunks: bool,
    /// Whether the signature holds, and why not.
    pub(super) signed: Option<Result<(), String>>,
}

impl Evidence {
    /// Every chunk of an index was proven by itself.
    pub(super) fn by_chunks(raw: u64) -> Self {
        Self { stored: 0, announced: None, digest: None, raw, raw_digest: None, chunks: true, signed: None }
    }
    pub(super) fn raw_bytes(&self) -> u64 {
        self.raw
    }
    /// Input drained to its end, length equal, decoder finished, digest equal; in the order that names the cause rather
    /// than its consequence.
    pub(super) fn check(&self, expectation: Expectation<'_>, least_raw: u64, image: &str) -> Result<(), WriteError> {
        let truncated = |reason| Err(WriteError::Truncated { subject: image.into(), reason });
        if let Some(announced) = self.announced.filter(|announced| *announced != self.stored) {
            return truncated(format!("the server sent {} bytes but announced {announced}", self.stored));
        }
        if self.raw < least_raw {
            return truncated(format!("it holds {} bytes, but its partitions end at {least_raw}", self.raw));
        }
        let (expected, found) = match expectation {
            Expectation::Stored(expected) => (expected, self.digest),
            Expectation::Raw(expected) => (expected, self.raw_digest),
            Expectation::Signed(_) => {
                let held = self.signed.clone().unwrap_or_else(|| Err("it was not checked".into()));
                return held.map_err(|reason| WriteError::BadSignature { subject: image.into(), reason });
            }
            Expectation::Index(_) if self.chunks => return Ok(()),
            Expectation::Index(_) => {
                return Err(WriteError::Internal("the image was not compared with its index".into()));
            }
            Expectation::Waived => return Ok(()),
        };
        match found {
            Some(actual) if actual == expected => Ok(()),
            Some(actual) => Err(WriteError::DigestMismatch { url: image.into(), expected, actual }),
            None => Err(WriteError::Internal("the image was not hashed".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATED: Digest = Digest::from_sha256([1; 32]);
    const OTHER: Digest = Digest::from_sha256([2; 32]);

    fn whole() -> Evidence {
        let (stored, raw) = (10, 20);
        let (digest, raw_digest) = (Some(STATED), Some(STATED));
        Evidence { stored, announced: Some(stored), digest, raw, raw_digest, chunks: true, signed: Some(Ok(())) }
    }

    #[test]
    fn each_part_of_the_evidence_is_needed() {
        let judge = |evidence: &Evidence, expectation| evidence.check(expectation, 20, "image");
        for expectation in [Expectation::Stored(STATED), Expectation::Raw(STATED), Expectation::Waived] {
            assert!(judge(&whole(), expectation).is_ok());
            for cut in [Evidence { announced: Some(11), ..whole() }, Evidence { raw: 19, ..whole() }] {
                let refused = judge(&cut, expectation);
                assert!(matches!(refused, Err(WriteError::Truncated { .. })), "{cut:?}: {refused:?}");
            }
        }
        for (digest, raw_digest, expectation) in [
            (Some(OTHER), Some(STATED), Expectation::Stored(STATED)),
            (Some(STATED), Some(OTHER), Expectation::Raw(STATED)),
        ] {
            let refused = judge(&Evidence { digest, raw_digest, ..whole() }, expectation);
            assert!(matches!(refused, Err(WriteError::DigestMismatch { .. })), "{refused:?}");
        }
        let unseen = Evidence { digest: None, raw_digest: None, ..whole() };
        for expectation in [Expectation::Stored(STATED), Expectation::Raw(STATED)] {
            assert!(matches!(judge(&unseen, expectation), Err(WriteError::Internal(_))), "not hashed");
        }
    }
}
