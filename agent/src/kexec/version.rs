//! The order of kernel versions: Debian's order of versions (deb-version(7)), which other distributions' names fit as well.

use std::cmp::Ordering;

/// Which of two versions is the newer. A `~` sorts before the end, letters before other signs, numbers by value. What
/// upstream calls `-rc` comes before the release.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.replace("-rc", "~rc"), b.replace("-rc", "~rc"));
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while !a.is_empty() || !b.is_empty() {
        let order = compare_text(&mut a, &mut b).then_with(|| number(&mut a).cmp(&number(&mut b)));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Compares and takes off everything up to the next digit of both.
fn compare_text(a: &mut &[u8], b: &mut &[u8]) -> Ordering {
    let text = |rest: &[u8]| rest.first().filter(|c| !c.is_ascii_digit()).copied();
    loop {
        let (left, right) = (text(a), text(b));
        let order = weight(left).cmp(&weight(right));
        if order.is_ne() || left.is_none() {
            return order;
        }
        (*a, *b) = (a.get(1..).unwrap_or_default(), b.get(1..).unwrap_or_default());
    }
}

fn weight(sign: Option<u8>) -> i32 {
    match sign {
        Some(b'~') => -1,
        None => 0,
        Some(c) if c.is_ascii_alphabetic() => c.into(),
        Some(c) => i32::from(c) + 256,
    }
}

/// Takes off the number at the front; its digits without leading zeroes, longer ones greater.
fn number<'v>(rest: &mut &'v [u8]) -> (usize, &'v [u8]) {
    let (digits, after) = rest.split_at(rest.iter().take_while(|c| c.is_ascii_digit()).count());
    *rest = after;
    let digits = digits.get(digits.iter().take_while(|c| **c == b'0').count()..).unwrap_or_default();
    (digits.len(), digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_in_debians_order() {
        let sorted = [
            "0-rescue-0123456789abcdef", "5.14.0-362.el9.x86_64", "5.14.0-427.el9.x86_64", "6.1.0-9-amd64",
            "6.1.0-35-amd64", "6.1.0-35-cloud-amd64", "6.2~rc1", "6.2-rc2", "6.2", "6.2.0", "6.10.0-061000-generic",
            "6.12.12+bpo-amd64", "linux",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} and {b}");
            }
        }
        assert_eq!(compare("6.01", "6.1"), Ordering::Equal);
    }
}
