//! The records of an extended (pax) header, read strictly: one that the parser passes over could hide what another parser sees.

use std::collections::HashSet;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};

use crate::{Fault, acl};

/// Records whose value must be a number, because the parser that we use takes any other value for an absent one.
const NUMBERS: [(&str, &[u8]); 9] = [
    ("size", b"size"),
    ("uid", b"uid"),
    ("gid", b"gid"),
    ("GNU.sparse.offset", b"GNU.sparse.offset"),
    ("GNU.sparse.numbytes", b"GNU.sparse.numbytes"),
    ("GNU.sparse.size", b"GNU.sparse.size"),
    ("GNU.sparse.realsize", b"GNU.sparse.realsize"),
    ("GNU.sparse.major", b"GNU.sparse.major"),
    ("GNU.sparse.minor", b"GNU.sparse.minor"),
];
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The most extended attributes of an entry: the kernel lists names of 64 KiB together, and real files have a few.
const MAX_ATTRIBUTES: usize = 1000;

/// An extended attribute: its name with the name space, and its value.
pub(crate) type Attribute = (Vec<u8>, Vec<u8>);

/// A key and a value.
pub(crate) type Record<'a> = (&'a [u8], &'a [u8]);

/// Seconds since 1970 and nanoseconds.
pub(crate) type Time = (i64, u32);

/// What the records say beside what the parser makes of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) mtime: Option<Time>,
    /// In the order in which they are to be set.
    pub(crate) attributes: Vec<Attribute>,
    /// It is one of a sparse file.
    pub(crate) sparse: bool,
    /// It is one of a sparse file whose map stands before its content.
    pub(crate) map_in_content: bool,
    /// It states the size of the content.
    pub(crate) size: bool,
}

/// Every record of a header: its key and its value.
///
/// # Errors
/// [`Fault::Header`] for anything that is not a whole list of them.
pub(crate) fn records(mut data: &[u8]) -> Result<Vec<Record<'_>>, Fault> {
    let mut records = Vec::new();
    while !data.is_empty() {
        let digits = data.iter().position(|byte| *byte == b' ').filter(|digits| (1..=10).contains(digits));
        let length = digits.and_then(|digits| number(&data[..digits])).and_then(|length| usize::try_from(length).ok());
        let (Some(digits), Some(length)) = (digits, length) else { return Err(Fault::Header) };
        let record = data.get(digits + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or(Fault::Header)?;
        let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0).ok_or(Fault::Header)?;
        records.push((&record[..equals], &record[equals + 1..]));
        data = &data[length..];
    }
    Ok(records)
}

/// # Errors
/// [`Fault`] for a record that is invalid or not supported.
pub(crate) fn extra(data: &[u8]) -> Result<Extra, Fault> {
    let mut extra = Extra::default();
    let mut known = HashSet::new();
    let mut version = (None, None);
    let (mut of_libarchive, mut acls) = (Vec::new(), Vec::new());
    for (key, value) in records(data)? {
        if let Some((name, _)) = NUMBERS.iter().find(|(_, bytes)| *bytes == key) {
            let number = number(value).ok_or(Fault::Record(name))?;
            match *name {
                "size" => extra.size = true,
                "GNU.sparse.major" => version.0 = Some(number),
                "GNU.sparse.minor" => version.1 = Some(number),
                _ => {}
            }
        }
        extra.sparse |= key.starts_with(b"GNU.sparse.");
        if key == b"mtime" {
            extra.mtime = Some(time(value).ok_or(Fault::Record("mtime"))?);
        } else if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            let name = checked(keyword_decoded(name))?;
            known.insert(name.clone());
            extra.attributes.push((name, value.to_vec()));
        } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            of_libarchive.push((checked(percent_decoded(name)?)?, base64_decoded(value)?));
        } else if key == b"SCHILY.acl.access" {
            acls.push((ACCESS, value));
        } else if key == b"SCHILY.acl.default" {
            acls.push((DEFAULT, value));
        } else if key == b"RHT.security.selinux" {
            known.insert(b"security.selinux".to_vec());
            extra.attributes.push((b"security.selinux".to_vec(), [value, b"\0"].concat()));
        } else if key == b"SCHILY.acl.ace" {
            return Err(Fault::Unsupported("SCHILY.acl.ace"));
        }
    }
    extra.map_in_content = match version {
        (None | Some(0), _) => false,
        (Some(1), Some(0)) => true,
        _ => return Err(Fault::Unsupported("GNU.sparse.major")),
    };
    // Both are written for one attribute; and the numbers of the attribute itself come before the names of its text.
    for (name, value) in of_libarchive {
        if known.insert(name.clone()) {
            extra.attributes.push((name, value));
        }
    }
    for (name, text) in acls {
        if !known.contains(name)
            && let Some(list) = acl::encoded(text)?
        {
            known.insert(name.to_vec());
            extra.attributes.push((name.to_vec(), list));
        }
    }
    if extra.attributes.len() > MAX_ATTRIBUTES {
        return Err(Fault::Attributes(MAX_ATTRIBUTES));
    }
    Ok(extra)
}

/// What a header for the whole archive may say without a change of any entry.
///
/// # Errors
/// [`Fault`] for a record that would change entries.
pub(crate) fn check_global(data: &[u8]) -> Result<(), Fault> {
    const CHANGE: [(&str, &[u8]); 11] = [
        ("path", b"path"),
        ("linkpath", b"linkpath"),
        ("size", b"size"),
        ("uid", b"uid"),
        ("gid", b"gid"),
        ("mtime", b"mtime"),
        ("GNU.sparse", b"GNU.sparse."),
        ("SCHILY.xattr", b"SCHILY.xattr."),
        ("SCHILY.acl", b"SCHILY.acl."),
        ("LIBARCHIVE.xattr", b"LIBARCHIVE.xattr."),
        ("RHT.security", b"RHT.security."),
    ];
    let fits = |key: &[u8], known: &[u8]| if known.ends_with(b".") { key.starts_with(known) } else { key == known };
    for (key, _) in records(data)? {
        if let Some((name, _)) = CHANGE.iter().find(|(_, known)| fits(key, known)) {
            return Err(Fault::Unsupported(name));
        }
    }
    Ok(())
}

/// Digits alone.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Seconds since 1970, with a sign and decimals if need be.
fn time(text: &[u8]) -> Option<Time> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |text| (true, text));
    let (whole, decimals) = match text.iter().position(|byte| *byte == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let seconds = i64::try_from(number(whole)?).ok()?;
    if !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nanos = (0..9).fold(0, |nanos, at| nanos * 10 + u32::from(decimals.get(at).map_or(0, |digit| digit - b'0')));
    Some(match (negative, nanos) {
        (false, nanos) => (seconds, nanos),
        (true, 0) => (-seconds, 0),
        (true, nanos) => (-seconds - 1, 1_000_000_000 - nanos),
    })
}

fn checked(name: Vec<u8>) -> Result<Vec<u8>, Fault> {
    if name.is_empty() || name.contains(&0) { Err(Fault::Record("xattr name")) } else { Ok(name) }
}

/// GNU tar encodes the two characters that a key cannot have, and no others.
fn keyword_decoded(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, after @ ..] = rest {
        let (byte, left) = match rest {
            [b'%', b'2', b'5', left @ ..] => (b'%', left),
            [b'%', b'3', b'D', left @ ..] => (b'=', left),
            _ => (*first, after),
        };
        decoded.push(byte);
        rest = left;
    }
    decoded
}

/// libarchive encodes bytes of an attribute's name that are not printable, and `=` and `%`.
fn percent_decoded(name: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, after @ ..] = rest {
        if let (b'%', [high, low, after @ ..]) = (first, after) {
            let digit = |byte: &u8| char::from(*byte).to_digit(16);
            let byte = digit(high).zip(digit(low)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
            decoded.push(byte.ok_or(Fault::Record("LIBARCHIVE.xattr"))?);
            rest = after;
        } else {
            decoded.push(*first);
            rest = after;
        }
    }
    Ok(decoded)
}

/// libarchive leaves the padding out.
fn base64_decoded(value: &[u8]) -> Result<Vec<u8>, Fault> {
    const ANY: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&alphabet::STANDARD, ANY);
    engine.decode(value).map_err(|_| Fault::Record("LIBARCHIVE.xattr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = key.len() + value.len() + 3;
        let length = (rest..).find(|length| length.to_string().len() + rest == *length).unwrap();
        [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
    }

    #[test]
    fn records_hold_any_bytes_and_end_where_they_say() {
        let data = [record("a", b"1\n2=3\0"), record("b", b"")].concat();
        assert_eq!(records(&data).unwrap(), [(&b"a"[..], &b"1\n2=3\0"[..]), (b"b", b"")]);
        for bad in
            [&b"6 a=1"[..], b"6 a=1x", b"a=1\n", b"7 a=1\n", b"5 ab\n", b"4 =\n", b"-6 a=1\n", b"0 ", b"6 a=1\n "]
        {
            assert_eq!(records(bad), Err(Fault::Header), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn times_have_signs_and_nanoseconds() {
        for (text, expected) in [
            ("12", Some((12, 0))),
            ("12.5", Some((12, 500_000_000))),
            ("12.0000000019", Some((12, 1))),
            ("-1.25", Some((-2, 750_000_000))),
            ("-1", Some((-1, 0))),
            ("", None),
            ("1e3", None),
            ("1.-5", None),
            ("9223372036854775808", None),
        ] {
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn attributes_come_from_every_writers_records() {
        let data = [
            record("LIBARCHIVE.xattr.user.a%3Db", b"AQI"),
            record("LIBARCHIVE.xattr.user.c", b"AQI="),
            record("SCHILY.xattr.user.c", b"\n\0"),
            record("RHT.security.selinux", b"u:r:t"),
            record("SCHILY.acl.access", b"user::rw-,group::r--,other::---"),
        ]
        .concat();
        let attributes = extra(&data).unwrap().attributes;
        let value = |name: &str| &attributes.iter().find(|(known, _)| known == name.as_bytes()).unwrap().1;
        assert_eq!(value("user.a=b"), &[1, 2]);
        assert_eq!(value("user.c"), b"\n\0");
        assert_eq!(value("security.selinux"), b"u:r:t\0");
        assert_eq!(value("system.posix_acl_access").len(), 4 + 3 * 8);
        assert_eq!(attributes.len(), 4);
    }

    #[test]
    fn names_are_decoded_as_gnu_tar_encodes_them() {
        let names = |key: &str| extra(&record(key, b"x")).unwrap().attributes.remove(0).0;
        assert_eq!(names("SCHILY.xattr.user.a%3Db%25c%3dd%41%"), b"user.a=b%c%3dd%41%");
        assert_eq!(names("SCHILY.xattr.user.%253D"), b"user.%3D");
    }

    #[test]
    fn more_attributes_than_any_file_has_are_refused() {
        let of = |count: usize| {
            let records = (0..count).map(|n| record(&format!("LIBARCHIVE.xattr.user.{n}"), b""));
            extra(&records.collect::<Vec<_>>().concat()).map(|extra| extra.attributes.len())
        };
        assert_eq!((of(1000), of(1001)), (Ok(1000), Err(Fault::Attributes(1000))));
    }

    #[test]
    fn the_numbers_of_a_list_come_before_its_names() {
        let data =
            [record("SCHILY.acl.access", b"user:anna:rwx"), record("SCHILY.xattr.system.posix_acl_access", b"x")];
        assert_eq!(extra(&data.concat()).unwrap().attributes, [(ACCESS.to_vec(), b"x".to_vec())]);
        assert_eq!(extra(&data[0]), Err(Fault::AclName("anna".into())));
    }

    #[test]
    fn values_that_a_parser_may_pass_over_are_refused() {
        for (key, name, _) in NUMBERS.map(|(name, bytes)| (name, name, bytes)) {
            assert_eq!(extra(&record(key, b"-1")), Err(Fault::Record(name)));
            assert_eq!(extra(&record(key, b"")), Err(Fault::Record(name)));
        }
        assert_eq!(extra(&record("mtime", b"now")), Err(Fault::Record("mtime")));
        assert_eq!(extra(&record("SCHILY.xattr.", b"x")), Err(Fault::Record("xattr name")));
        assert_eq!(extra(&record("SCHILY.acl.ace", b"x")), Err(Fault::Unsupported("SCHILY.acl.ace")));
        assert_eq!(extra(&record("GNU.sparse.major", b"2")), Err(Fault::Unsupported("GNU.sparse.major")));
        assert_eq!(extra(&record("LIBARCHIVE.xattr.a%4x", b"")), Err(Fault::Record("LIBARCHIVE.xattr")));
    }

    #[test]
    fn a_global_header_may_comment_and_change_nothing() {
        assert_eq!(check_global(&record("comment", b"0123")), Ok(()));
        assert_eq!(check_global(&record("uid", b"0")), Err(Fault::Unsupported("uid")));
        assert_eq!(check_global(&record("SCHILY.xattr.user.a", b"0")), Err(Fault::Unsupported("SCHILY.xattr")));
        assert_eq!(check_global(b"x"), Err(Fault::Header));
    }
}
