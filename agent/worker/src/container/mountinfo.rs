//! The mounts of this process' namespace. (proc(5), `/proc/pid/mountinfo`.)

use std::{ffi::OsString, fs, io, os::unix::ffi::OsStringExt as _, path::PathBuf};

use nix::mount::MsFlags;

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its own options, those of its file system apart.
    pub(super) flags: MsFlags,
}

/// In the order in which they were mounted.
pub(super) fn read() -> io::Result<Vec<Point>> {
    Ok(of(&fs::read("/proc/self/mountinfo")?))
}

fn of(text: &[u8]) -> Vec<Point> {
    let point = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(4);
        let path = PathBuf::from(OsString::from_vec(plain(fields.next()?)));
        let options = fields.next()?.split(|byte| *byte == b',');
        Some(Point { path, flags: options.fold(MsFlags::empty(), |all, option| all | flag(option)) })
    };
    text.split(|byte| *byte == b'\n').filter_map(point).collect()
}

fn flag(option: &[u8]) -> MsFlags {
    match option {
        b"ro" => MsFlags::MS_RDONLY,
        b"nosuid" => MsFlags::MS_NOSUID,
        b"nodev" => MsFlags::MS_NODEV,
        b"noexec" => MsFlags::MS_NOEXEC,
        b"noatime" => MsFlags::MS_NOATIME,
        b"nodiratime" => MsFlags::MS_NODIRATIME,
        b"relatime" => MsFlags::MS_RELATIME,
        _ => MsFlags::empty(),
    }
}

/// Blanks, tabs, line ends and backslashes are written as three octal digits.
fn plain(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_flags_of_mounts_are_read() {
        let text = b"22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
            30 22 0:5 / /mnt/a\\040b\\134 ro,nosuid,nodev,noexec - proc proc rw\nbroken\n";
        let points = of(text);
        assert_eq!(points[0], Point { path: "/".into(), flags: MsFlags::MS_RELATIME });
        let inert = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        assert_eq!(points[1], Point { path: "/mnt/a b\\".into(), flags: inert });
        assert_eq!(points.len(), 2);
    }
}
