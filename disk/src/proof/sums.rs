//! Files of checksums: `sha256sum`'s and `sha512sum`'s own format, and BSD's.
//!
//! Lines that are neither are passed over: comments, other functions, the armour of a clearsigned file (which proves
//! nothing here; a signature is stated and fetched apart).

use landfall_api::Digest;

/// How many names an error lists.
const LISTED: usize = 6;

/// The digest of the file called `name`; SHA-512 where there are both.
///
/// # Errors
/// A clause that reads well after "… is not a usable image: ", with what is there instead.
pub(crate) fn digest_of(bytes: &[u8], name: &str) -> Result<Digest, String> {
    let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').filter_map(entry).collect();
    // The very name if it is there, else the same file name in some folder.
    let exact = |listed: &str| listed.strip_prefix("./").unwrap_or(listed) == name;
    let in_folder = |listed: &str| listed.rsplit('/').next() == Some(name);
    let found = |fits: &dyn Fn(&str) -> bool| -> Vec<Digest> {
        lines.iter().filter(|(listed, _)| fits(listed)).map(|(_, digest)| *digest).collect()
    };
    let mut digests = found(&exact);
    if digests.is_empty() {
        digests = found(&in_folder);
    }
    digests.sort_unstable();
    digests.dedup();
    let (long, short): (Vec<_>, Vec<_>) = digests.into_iter().partition(|digest| matches!(digest, Digest::Sha512(_)));
    match (long.as_slice(), short.as_slice()) {
        ([_, _, ..], _) | (_, [_, _, ..]) => Err(format!("it lists {name} more than once, with different digests")),
        ([only], _) | ([], [only]) => Ok(*only),
        ([], []) if lines.is_empty() => Err("it lists no sha256 or sha512 checksum".into()),
        ([], []) => {
            let names: Vec<_> = lines.iter().take(LISTED).map(|(name, _)| shortened(name)).collect();
            let more = lines.len().saturating_sub(LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(format!("it does not list {name}; it lists {}{more}", names.join(", ")))
        }
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(80).map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// Name and digest of one line.
fn entry(line: &[u8]) -> Option<(String, Digest)> {
    let line = std::str::from_utf8(line).ok()?;
    let line = line.strip_suffix('\r').unwrap_or(line);
    // A line that starts with a backslash has a name with escapes in it.
    let (escaped, line) = line.strip_prefix('\\').map_or((false, line), |rest| (true, rest));
    let (name, digest) = bsd(line).or_else(|| gnu(line))?;
    let name = if escaped { unescape(name)? } else { name.to_owned() };
    (!name.is_empty()).then_some((name, digest))
}

/// `hash  name` or `hash *name`.
fn gnu(line: &str) -> Option<(&str, Digest)> {
    let (hash, rest) = line.split_once(' ')?;
    let name = rest.strip_prefix([' ', '*'])?;
    Some((name, Digest::from_hex(hash).ok()?))
}

/// `SHA256 (name) = hash`; a name may hold `) = ` itself.
fn bsd(line: &str) -> Option<(&str, Digest)> {
    let (function, rest) = line.split_once(" (")?;
    let (name, hash) = rest.rsplit_once(") = ")?;
    let digest = Digest::from_hex(hash.trim_end()).ok()?;
    let fits = match digest {
        Digest::Sha256(_) => function == "SHA256",
        Digest::Sha512(_) => function == "SHA512",
    };
    fits.then_some((name, digest))
}

fn unescape(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        out.push(match char {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(digit: char, length: usize) -> String {
        std::iter::repeat_n(digit, length).collect()
    }

    fn of(text: &str, name: &str) -> Result<String, String> {
        digest_of(text.as_bytes(), name).map(|digest| digest.to_string())
    }

    #[test]
    fn every_way_to_write_a_line_is_read() {
        let (a, b) = (hash('a', 64), hash('b', 128));
        for (text, name) in [
            (format!("{a}  disk.img\n"), "disk.img"),
            (format!("{a} *disk.img\r\n"), "disk.img"),
            (format!("{}  ./disk.img", a.to_uppercase()), "disk.img"),
            (format!("{a}  images/disk.img\n"), "disk.img"),
            (format!("\\{a}  a\\\\b\\nc\n"), "a\\b\nc"),
            (format!("SHA256 (a) = b) = {a}\n"), "a) = b"),
            (format!("# no\n-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{a}  x y\n"), "x y"),
            (format!("MD5 (x) = {}\n{}  x\n{a}  x\n", hash('c', 32), hash('c', 40)), "x"),
        ] {
            assert_eq!(of(&text, name).unwrap(), format!("sha256:{a}"), "{text}");
        }
        assert_eq!(of(&format!("{a}  x\n{b}  x\n"), "x").unwrap(), format!("sha512:{b}"), "the longer one");
        assert_eq!(of(&format!("SHA512 (x) = {b}"), "x").unwrap(), format!("sha512:{b}"));
    }

    #[test]
    fn a_missing_or_ambiguous_name_lists_the_names_found() {
        let (a, b) = (hash('a', 64), hash('b', 64));
        assert!(of(&format!("{a}  other.img\n"), "disk.img").unwrap_err().contains("other.img"));
        assert!(of("nothing", "disk.img").unwrap_err().contains("no sha256"));
        for text in [format!("{a}  x\n{b}  x\n"), format!("{a}  one/x\n{b}  two/x\n")] {
            assert!(of(&text, "x").unwrap_err().contains("more than once"));
        }
        assert!(of(&format!("{a}  x\n{a}  x\n"), "x").is_ok(), "twice the same is no contradiction");
        assert!(of(&format!("{a}  x\n{b}  two/x\n"), "x").is_ok(), "the very name goes before one in a folder");
        assert!(of(&format!("{a}  notx\n"), "x").is_err(), "the end of a name is not the name");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "(SHA256 \\()?[\\\\a-f0-9 ()=*]{0,100}") {
            // Only a panic would fail this test.
            let _ = (digest_of(&bytes, "x"), digest_of(text.as_bytes(), "x"));
        }
    }
}
