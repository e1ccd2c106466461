//! POSIX access control lists: from the text of an archive to the attribute that the kernel takes.
//!
//! The text is of acl(5), long or short, by lines or commas; star and bsdtar add a number as the last part of an entry. The
//! attribute is that of `linux/posix_acl_xattr.h`: a version, then eight bytes an entry, little endian, sorted.

use crate::{Fault, name::shown};

/// `POSIX_ACL_XATTR_VERSION`
const VERSION: u32 = 2;
/// The number of entries that are not about one account: `ACL_UNDEFINED_ID`.
const NO_ID: u32 = u32::MAX;
/// Tags of `linux/posix_acl.h`, in the order in which they must stand: of the owner, a user, the group, a group, the mask, others.
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWN_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// The attribute's value; `None` for a list without entries.
///
/// # Errors
/// [`Fault::Acl`], and [`Fault::AclName`] for an account without a number.
pub(crate) fn encoded(text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    let text = std::str::from_utf8(text).map_err(|_| Fault::Acl(shown(text)))?;
    let lines = text.split(['\n', ',']).map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut entries = lines.filter(|line| !line.is_empty()).map(entry).collect::<Result<Vec<_>, _>>()?;
    if entries.is_empty() {
        return Ok(None);
    }
    entries.sort_by_key(|(tag, _, id)| (*tag, *id));
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Ok(Some(value))
}

fn entry(line: &str) -> Result<(u16, u16, u32), Fault> {
    let bad = || Fault::Acl(shown(line.as_bytes()));
    let parts: Vec<_> = line.split(':').map(str::trim).collect();
    let (kind, account, permissions, number) = match parts.as_slice() {
        // `mask:rwx` and `other:rwx` have no account.
        [kind, permissions] => (*kind, "", *permissions, None),
        [kind, account, permissions] => (*kind, *account, *permissions, None),
        [kind, account, permissions, number] => (*kind, *account, *permissions, Some(*number)),
        _ => return Err(bad()),
    };
    let bits = bits(permissions).ok_or_else(bad)?;
    let id = |account: &str| {
        let stated = number.unwrap_or(account).parse::<u32>().ok().filter(|id| *id != NO_ID);
        stated.ok_or_else(|| Fault::AclName(shown(account.as_bytes())))
    };
    let (tag, id) = match (kind, account) {
        ("user" | "u", "") => (OWNER, NO_ID),
        ("user" | "u", account) => (USER, id(account)?),
        ("group" | "g", "") => (OWN_GROUP, NO_ID),
        ("group" | "g", account) => (GROUP, id(account)?),
        ("mask" | "m", "") => (MASK, NO_ID),
        ("other" | "o", "") => (OTHER, NO_ID),
        _ => return Err(bad()),
    };
    Ok((tag, bits, id))
}

fn bits(text: &str) -> Option<u16> {
    let mut bits = 0;
    for c in text.chars() {
        bits |= match c {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    (!text.is_empty()).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel gave it for the list below.
    const KERNELS: &str = "0200000001000600ffffffff02000700e803000004000400ffffffff08000500d007000010000700ffffffff\
                           20000400ffffffff";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn every_writers_text_gives_the_kernels_attribute() {
        for text in [
            "user::rw-\nuser:1000:rwx\ngroup::r--\ngroup:2000:r-x\nmask::rwx\nother::r--\n",
            "other::r--,mask::rwx,user::rw-,group:2000:r-x,user:1000:rwx,group::r--",
            "user::rw-,user:anna:rwx:1000,group::r--,group:www:r-x:2000,mask::rwx,other::r--",
            "u::rw\nu:1000:rwx #effective:rwx\ng::r\ng:2000:rx\nm:rwx\no:r",
        ] {
            assert_eq!(hex(&encoded(text.as_bytes()).unwrap().unwrap()), KERNELS, "{text}");
        }
        assert_eq!(encoded(b"").unwrap(), None);
    }

    #[test]
    fn names_without_numbers_and_broken_entries_are_refused() {
        assert_eq!(encoded(b"user:anna:rwx"), Err(Fault::AclName("anna".into())));
        for bad in ["user:1000", "user::rwz", "mask:1:rwx", "else::rwx", "user::", "a", "user:1:2:3:4"] {
            assert_eq!(encoded(bad.as_bytes()), Err(Fault::Acl(bad.into())), "{bad}");
        }
    }
}
