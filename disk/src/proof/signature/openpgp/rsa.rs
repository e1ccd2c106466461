//! The public half of RSA, with PKCS #1 version 1.5 padding (RFC 8017 section 8.2.2).
//!
//! ring verifies RSA too, but only over a message that is in memory whole; an image passes by. Only public numbers are
//! touched here, so time tells nobody anything. The padding is made and compared whole, never parsed.

use std::cmp::Ordering;

/// DER of `DigestInfo` up to the digest, RFC 8017 section 9.2, note 1.
const SHA256: &[u8] = &[0x30, 0x31, 0x30, 0x0d, 0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20];
const SHA512: &[u8] = &[0x30, 0x51, 0x30, 0x0d, 0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 3, 4, 2, 3, 5, 0, 4, 0x40];

/// Whether `signature` is one of `digest` (of SHA-256 or SHA-512) by this key. The modulus is odd and has 256 octets or
/// more.
pub(super) fn verify(modulus: &[u8], exponent: u64, digest: &[u8], signature: &[u8]) -> bool {
    let kind = match digest.len() {
        32 => SHA256,
        64 => SHA512,
        _ => return false,
    };
    let Some(filling) = modulus.len().checked_sub(3 + kind.len() + digest.len()).filter(|n| *n >= 8) else {
        return false;
    };
    let expected = [&[0, 1], vec![0xff; filling].as_slice(), &[0], kind, digest].concat();
    let (n, s) = (limbs(modulus), limbs(signature));
    compare(&s, &n) == Ordering::Less && compare(&power(&s, exponent, &n), &limbs(&expected)) == Ordering::Equal
}

/// Lowest first.
fn limbs(bytes: &[u8]) -> Vec<u64> {
    let limb = |chunk: &[u8]| chunk.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    bytes.rchunks(8).map(limb).collect()
}

fn compare(a: &[u64], b: &[u64]) -> Ordering {
    let limb = |of: &[u64], at: usize| of.get(at).copied().unwrap_or(0);
    let places = (0..a.len().max(b.len())).rev();
    places.map(|at| limb(a, at).cmp(&limb(b, at))).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// `base` to the power of `exponent`, modulo `n`; `base` is less than `n`.
fn power(base: &[u64], exponent: u64, n: &[u64]) -> Vec<u64> {
    let mut base = base.to_vec();
    base.resize(n.len(), 0);
    let mut out = base.clone();
    // From the second highest bit down.
    for bit in (0..exponent.max(1).ilog2()).rev() {
        out = multiply(&out, &out, n);
        if exponent >> bit & 1 == 1 {
            out = multiply(&out, &base, n);
        }
    }
    out
}

/// `a * b` modulo `n`, by doubling and adding: slow (a fraction of a millisecond) and plain. Both have as many limbs as
/// `n` and are less than it.
fn multiply(a: &[u64], b: &[u64], n: &[u64]) -> Vec<u64> {
    let mut out = vec![0; n.len()];
    for limb in a.iter().rev() {
        for bit in (0..64).rev() {
            let double = out.clone();
            add(&mut out, &double, n);
            if limb >> bit & 1 == 1 {
                add(&mut out, b, n);
            }
        }
    }
    out
}

/// `a += b` modulo `n`.
fn add(a: &mut [u64], b: &[u64], n: &[u64]) {
    let mut carry = false;
    for (a, b) in a.iter_mut().zip(b) {
        let (sum, over) = a.overflowing_add(*b);
        let (sum, over_again) = sum.overflowing_add(u64::from(carry));
        (*a, carry) = (sum, over || over_again);
    }
    if carry || compare(a, n) != Ordering::Less {
        let mut borrow = false;
        for (a, n) in a.iter_mut().zip(n) {
            let (rest, under) = a.overflowing_sub(*n);
            let (rest, under_again) = rest.overflowing_sub(u64::from(borrow));
            (*a, borrow) = (rest, under || under_again);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn powers_are_those_of_plain_arithmetic(base: u64, exponent in 1_u64..200, n in 3_u64..) {
            let n = n | 1;
            let base = base % n;
            let plain = (0..exponent).fold(1_u128, |product, _| product * u128::from(base) % u128::from(n));
            prop_assert_eq!(u128::from(power(&[base], exponent, &[n])[0]), plain);
        }

        /// (x·2^64 + y)² modulo a Mersenne number is known without long arithmetic of our own.
        #[test]
        fn two_limbs_multiply_as_one_wide_number(a in 0_u128..(1 << 63), b in 0_u128..(1 << 63)) {
            let n = (1_u128 << 127) - 1;
            let split = |x: u128| vec![x as u64, (x >> 64) as u64];
            prop_assert_eq!(multiply(&split(a), &split(b), &split(n)), split(a * b % n));
        }

        #[test]
        fn no_numbers_make_it_panic(n in prop::collection::vec(any::<u8>(), 0..300), s in prop::collection::vec(any::<u8>(), 0..40), e: u64) {
            prop_assert!(!verify(&n, e % 70_000, &[7; 32], &s));
        }
    }
}
