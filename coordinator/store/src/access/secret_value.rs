//! Values that only their holder may know: made by chance, compared in constant time.

use landfall_api::{ErrorCode, Problem};
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

/// 256 random bits, in hex.
///
/// # Errors
/// [`Problem`] with code `Internal` if the system gives none.
pub fn random() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Problem::new(ErrorCode::Internal, "the system gave no random numbers"))?;
    Ok(hex::encode(bytes))
}

/// Whether two values are equal, in a time that tells nothing but their lengths.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_values_are_the_same() {
        let value = random().unwrap();
        assert_eq!((value.len(), value == random().unwrap()), (64, false));
        assert!(same(value.as_bytes(), value.clone().as_bytes()) && same(b"", b""));
        for other in [&value[1..], "", &format!("{value}0"), &value.replace(&value[63..], "x")] {
            assert!(!same(value.as_bytes(), other.as_bytes()), "{other}");
        }
    }
}
