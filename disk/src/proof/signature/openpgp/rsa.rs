//! The public half of RSA, with PKCS #1 version 1.5 padding (RFC 8017 section 8.2.2).
//!
//! ring verifies RSA too, but only over a message that is in memory whole, and an image is larger than memory. The long
//! numbers are `crypto-bigint`'s: the stable `rsa` crate would bring a second `digest` and a second `rand_core`. All numbers
//! here are public, so the time they take gives nothing away. The padding is made and compared whole, never parsed.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};

/// DER of `DigestInfo` up to the digest, RFC 8017 section 9.2, note 1.
const SHA256: &[u8] = &[0x30, 0x31, 0x30, 0x0d, 0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];
const SHA512: &[u8] = &[0x30, 0x51, 0x30, 0x0d, 0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 3, 4, 2, 3, 5, 0, 4, 0x40];

/// Whether `signature` is one of `digest` (of SHA-256 or SHA-512) by this key. The numbers are big-endian, without leading
/// zeroes; an even modulus, and one too short for the padding, verifies nothing.
pub(super) fn verify(modulus: &[u8], exponent: u64, digest: &[u8], signature: &[u8]) -> bool {
    let Some(expected) = padded(digest, modulus.len()) else { return false };
    let n = BoxedUint::from_be_slice_vartime(modulus);
    let bits = n.bits_precision();
    let number = |bytes| BoxedUint::from_be_slice(bytes, bits).ok().filter(|number| *number < n);
    let (Some(signature), Some(expected)) = (number(signature), number(&expected)) else { return false };
    let Some(odd) = Odd::new(n.clone()).into_option() else { return false };
    let power = BoxedMontyForm::new(signature, &BoxedMontyParams::new_vartime(odd)).pow(&BoxedUint::from(exponent));
    power.retrieve() == expected
}

/// EMSA-PKCS1-v1_5: what the signature's power must be, `length` bytes.
fn padded(digest: &[u8], length: usize) -> Option<Vec<u8>> {
    let kind = match digest.len() {
        32 => SHA256,
        64 => SHA512,
        _ => return None,
    };
    let filling = length.checked_sub(3 + kind.len() + digest.len()).filter(|n| *n >= 8)?;
    Some([&[0, 1], vec![0xff; filling].as_slice(), &[0], kind, digest].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// With the exponent 1 the padded digest is its own signature: no private key is needed to try the comparison.
    #[test]
    fn only_the_whole_padding_below_the_modulus_verifies() {
        for (digest, other) in [(vec![7; 32], vec![8; 32]), (vec![7; 64], vec![8; 64])] {
            // 257 bytes: the limbs are not filled.
            let modulus = [&[0x01][..], &[0xff; 256]].concat();
            let signature = padded(&digest, modulus.len()).unwrap();
            assert!(verify(&modulus, 1, &digest, &signature));
            assert!(verify(&modulus, 1, &digest, &signature[1..]), "without its leading zero");
            assert!(!verify(&modulus, 1, &other, &signature));
            for at in 0..signature.len() {
                let mut wrong = signature.clone();
                wrong[at] ^= 1;
                assert!(!verify(&modulus, 1, &digest, &wrong), "byte {at}");
            }
            let sum = BoxedUint::from_be_slice_vartime(&signature) + BoxedUint::from_be_slice_vartime(&modulus);
            assert!(!verify(&modulus, 1, &digest, &sum.to_be_bytes()), "the same number modulo n, but not below it");
            let mut even = modulus.clone();
            even[256] = 0xfe;
            assert!(!verify(&even, 1, &digest, &signature));
        }
    }

    proptest! {
        #[test]
        fn no_numbers_make_it_panic(n in prop::collection::vec(any::<u8>(), 0..300), s in prop::collection::vec(any::<u8>(), 0..40), e: u64) {
            prop_assert!(!verify(&n, e % 70_000, &[7; 32], &s));
        }
    }
}
