//! Names of entries, as places below the root.

use crate::Fault;

/// The longest name, bytes: the kernel's PATH_MAX without the final NUL.
pub(crate) const MAX_NAME: usize = 4095;
/// The longest part of a name, bytes: what every file system of Linux takes.
const MAX_PART: usize = 255;
/// The most parts of a name. Real trees have some tens; what walks a tree keeps one descriptor open for each.
pub(crate) const MAX_DEPTH: usize = 256;

/// A place below the root: parts between slashes, none of them empty, `.` or `..`. The root itself is empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    /// Takes an absolute name as one below the root.
    ///
    /// # Errors
    /// [`Fault`] for what leads upwards, and for what no file system takes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        if bytes.len() > MAX_NAME {
            return Err(Fault::LongName);
        }
        if bytes.contains(&0) {
            return Err(Fault::ZeroByte);
        }
        let mut name = Vec::with_capacity(bytes.len());
        let mut depth = 0;
        for part in bytes.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err(Fault::Upwards),
                _ if part.len() > MAX_PART => return Err(Fault::LongPart),
                _ => {}
            }
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(Fault::Deep);
            }
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(part);
        }
        Ok(Self(name))
    }

    /// Without a leading slash.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory it is in, and its last part, which is empty for the root.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[], &self.0),
        }
    }
}

/// What a person reads in place of a name: one line, of bounded length.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 300;
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text.chars().take(MOST).flat_map(escaped).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let plain = (!c.is_control()).then_some(c);
    plain.into_iter().chain(c.is_control().then(|| c.escape_default()).into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_and_dotted_names_are_places_below_the_root() {
        for (text, place) in
            [("./etc//passwd", "etc/passwd"), ("/etc/passwd", "etc/passwd"), ("./", ""), ("/", ""), ("a/./b/", "a/b")]
        {
            assert_eq!(Name::parse(text.as_bytes()).unwrap().bytes(), place.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_leads_upwards_or_fits_nowhere_is_refused() {
        let long = format!("a/{}", "b".repeat(256));
        let deep = "a/".repeat(257);
        let longest = "a".repeat(4096);
        for (text, fault) in [
            ("../etc/passwd", Fault::Upwards),
            ("a/..", Fault::Upwards),
            ("/../a", Fault::Upwards),
            ("a\0b", Fault::ZeroByte),
            (&long, Fault::LongPart),
            (&deep, Fault::Deep),
            (&longest, Fault::LongName),
        ] {
            assert_eq!(Name::parse(text.as_bytes()), Err(fault), "{text}");
        }
        assert!(Name::parse("a/".repeat(256).as_bytes()).is_ok());
    }

    #[test]
    fn a_name_is_its_directory_and_its_last_part() {
        assert_eq!(Name::parse(b"usr/lib/x").unwrap().split(), (&b"usr/lib"[..], &b"x"[..]));
        assert_eq!(Name::parse(b"/").unwrap().split(), (&b""[..], &b""[..]));
    }

    #[test]
    fn shown_names_are_one_line_of_bounded_length() {
        assert_eq!(shown(b"a\nb\x1b[2J\xff"), "a\\nb\\u{1b}[2J\u{fffd}");
        assert_eq!(shown(&[b'x'; 1000]).chars().count(), 301);
    }
}
