//! Reading what the kernel lists.

use super::ActiveMount;

/// The mounts of `/proc/self/mountinfo` (proc(5)).
pub(super) fn mounts(mountinfo: &str) -> Vec<ActiveMount> {
    let mount = |line: &str| {
        // 36 35 98:0 /root /mount/point options … - type source options
        let mut fields = line.split(' ');
        let (number, at) = (fields.nth(2)?, fields.nth(1)?);
        let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
        Some(ActiveMount { number: number.into(), source: unescaped(source), at: unescaped(at) })
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// The paths of `/proc/swaps`.
pub(super) fn swaps(text: &str) -> Vec<String> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(unescaped).collect()
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescaped(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
