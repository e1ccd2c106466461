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

/// Letters and digits of a [`password`].
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// As many as every BMC takes (IPMI 1.5).
const LENGTH: usize = 16;

/// 16 letters and digits by chance, 95 random bits. A capital letter, a small one and a digit are among them: some BMCs demand it.
///
/// # Errors
/// [`Problem`] with code `Internal` if the system gives none.
pub fn password() -> Result<String, Problem> {
    loop {
        let bytes = hex::decode(random()?).unwrap_or_default();
        // Four times all of them: each is as likely as the others.
        let even = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < 4 * LETTERS.len());
        let text: String = even.map(|byte| char::from(LETTERS[byte % LETTERS.len()])).take(LENGTH).collect();
        if text.len() == LENGTH && has_every_kind(&text) {
            return Ok(text);
        }
    }
}

fn has_every_kind(text: &str) -> bool {
    [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit].iter().all(|is| text.bytes().any(|b| is(&b)))
}

/// Whether two values are equal, in a time that tells nothing but their lengths.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_differ_and_have_letters_of_every_kind() {
        let all: std::collections::HashSet<String> = (0..200).map(|_| password().unwrap()).collect();
        assert_eq!(all.len(), 200);
        for one in all {
            let is_plain = one.len() == 16 && one.bytes().all(|byte| byte.is_ascii_alphanumeric());
            assert!(is_plain && has_every_kind(&one), "{one}");
        }
    }

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
