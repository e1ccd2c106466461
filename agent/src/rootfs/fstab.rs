//! What an installed system's `fstab` says: which file system it mounts where, and how. A pure parser; the rules are those of
//! util-linux and systemd.

use std::fmt;

/// One line that mounts a file system at a place of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// What is mounted.
    pub(super) source: Source,
    /// Where: absolute, without a trailing slash; `/` is the root itself.
    pub(super) point: String,
    /// The file system's kind as written; `auto` where nothing is.
    pub(super) kind: String,
    /// The options, in their order.
    pub(super) options: Vec<String>,
}

/// What a line mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A name that a device carries.
    Tag(Tag, String),
    /// A path or another text, as written.
    Other(String),
}

/// By which of its names a device is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    /// The file system's UUID.
    Uuid,
    /// The file system's label.
    Label,
    /// The partition's GUID.
    PartUuid,
    /// The partition's name.
    PartLabel,
}

const TAGS: [(&str, Tag); 4] =
    [("UUID", Tag::Uuid), ("LABEL", Tag::Label), ("PARTUUID", Tag::PartUuid), ("PARTLABEL", Tag::PartLabel)];

impl Source {
    fn parse(text: &str) -> Self {
        let named = |tag: &str, value: &str| {
            let tag = TAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(tag))?.1;
            Some(Self::Tag(tag, value.trim_matches('"').to_owned()))
        };
        let link = |text: &str| text.strip_prefix("/dev/disk/by-").and_then(|rest| rest.split_once('/')).map(both);
        let tag = text.split_once('=').map(both).or_else(|| link(text));
        tag.and_then(|(tag, value)| named(&tag, &value)).unwrap_or_else(|| Self::Other(text.to_owned()))
    }
}

fn both((a, b): (&str, &str)) -> (String, String) {
    // udev writes what a link's name cannot hold as \x20.
    (a.to_owned(), b.replace("\\x20", " ").replace("\\x2f", "/"))
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag, value) => {
                let name = TAGS.iter().find(|(_, of)| of == tag).map_or("", |(name, _)| name);
                write!(f, "{name}={value}")
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Line {
    /// The line with these four fields; `None`: it mounts nothing in the tree.
    pub(super) fn of(source: &str, point: &str, kind: &str, options: &str) -> Option<Self> {
        let options =
            options.split(',').map(str::trim).filter(|option| !option.is_empty()).map(str::to_owned).collect();
        Some(Self { source: Source::parse(source), point: normal(point)?, kind: kind.to_owned(), options })
    }

    /// The value of an option such as `subvol=@`.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether an option without a value stands there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }

    /// Whether the running system has it mounted without a person's doing.
    pub(super) fn at_boot(&self) -> bool {
        !self.has("noauto") || self.has("x-systemd.automount")
    }

    /// The btrfs subvolume it states, as a mount option.
    pub(super) fn subvolume(&self) -> Option<String> {
        ["subvol", "subvolid"].iter().find_map(|name| Some(format!("{name}={}", self.option(name)?)))
    }
}

/// The lines that mount something in the tree, in their order. Of several at one place only the last: it hides the others.
pub(super) fn parse(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines().filter_map(line) {
        put(&mut lines, line);
    }
    lines
}

/// Adds a line, in place of one at the same place.
pub(super) fn put(lines: &mut Vec<Line>, line: Line) {
    lines.retain(|other| other.point != line.point);
    lines.push(line);
}

fn line(text: &str) -> Option<Line> {
    let text = text.trim_start();
    let mut fields = text.split_whitespace().map(unescaped);
    let source = fields.next().filter(|_| !text.starts_with('#'))?;
    let point = fields.next()?;
    let kind = fields.next().unwrap_or_else(|| "auto".into());
    Line::of(&source, &point, &kind, &fields.next().unwrap_or_default())
}

/// An absolute path in its shortest form; `None` for what is no place in the tree, such as swap's `none`. A path with `..`
/// is none either: systemd refuses it.
fn normal(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.contains(&"..")).then(|| format!("/{}", parts.join("/")))
}

/// With `\040` and the like as what they stand for (fstab(5)).
fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let octal = after.get(..3).filter(|digits| digits.bytes().all(|b| (b'0'..=b'7').contains(&b)));
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii) {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn only(text: &str) -> Line {
        let mut lines = parse(text);
        assert_eq!(lines.len(), 1, "{text}");
        lines.remove(0)
    }

    #[test]
    fn a_line_says_what_is_mounted_where_and_how() {
        let line = only("  UUID=\"ab-1\"\t/var//lib/. btrfs rw,subvol=/@var,subvol=@/var,noatime 0 2");
        assert_eq!(line.source, Source::Tag(Tag::Uuid, "ab-1".into()));
        assert_eq!((line.point.as_str(), line.kind.as_str()), ("/var/lib", "btrfs"));
        assert_eq!((line.option("subvol"), line.option("sub")), (Some("@/var"), None));
        assert_eq!(line.subvolume().as_deref(), Some("subvol=@/var"));
        assert!(line.has("noatime") && !line.has("subvol"));
        assert_eq!(only("LABEL=x / xfs").subvolume(), None);
        assert_eq!(only("/dev/vda2 /boot").kind, "auto");
    }

    #[test]
    fn every_spelling_of_a_name_is_understood() {
        for (text, tag, value) in [
            ("UUID=ab", Tag::Uuid, "ab"),
            ("uuid=ab", Tag::Uuid, "ab"),
            ("LABEL=my\\040disk", Tag::Label, "my disk"),
            ("PARTUUID=\"cd\"", Tag::PartUuid, "cd"),
            ("PARTLABEL=esp", Tag::PartLabel, "esp"),
            ("/dev/disk/by-uuid/ab", Tag::Uuid, "ab"),
            ("/dev/disk/by-label/my\\x20disk", Tag::Label, "my disk"),
            ("/dev/disk/by-partuuid/cd", Tag::PartUuid, "cd"),
            ("/dev/disk/by-partlabel/esp", Tag::PartLabel, "esp"),
        ] {
            assert_eq!(only(&format!("{text} /x ext4")).source, Source::Tag(tag, value.into()), "{text}");
        }
        for text in ["/dev/vda2", "nas:/export", "tmpfs", "/dev/disk/by-path/pci-1", "ID=nvme.1", "overlay=x"] {
            assert_eq!(only(&format!("{text} /x ext4")).source, Source::Other(text.into()));
        }
    }

    #[test]
    fn comments_swap_and_hidden_mounts_do_not_count() {
        let text = "# UUID=0 /boot ext4\n\nUUID=1 none swap sw 0 0\nUUID=2 swap swap\n/dev/sdb1\nUUID=3 /a/../b ext4\n\
                    UUID=4 /boot ext4\nUUID=5 / ext4\nUUID=6 /boot/ xfs\n";
        let found: Vec<_> =
            parse(text).into_iter().map(|line| (line.point, line.source.to_string(), line.kind)).collect();
        let expected = [("/", "UUID=5", "ext4"), ("/boot", "UUID=6", "xfs")];
        assert_eq!(found, expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())));
    }

    #[test]
    fn what_only_a_person_mounts_is_not_there_at_boot() {
        assert!(!only("UUID=1 /srv ext4 noauto").at_boot());
        assert!(only("UUID=1 /srv ext4 noauto,x-systemd.automount").at_boot());
        assert!(only("UUID=1 /srv ext4 nofail").at_boot());
    }

    #[test]
    fn escapes_are_octal_and_others_stay() {
        for (written, meant) in [("a\\040b\\011", "a b\t"), ("\\134040", "\\040"), ("a\\9", "a\\9"), ("\\", "\\")] {
            assert_eq!(unescaped(written), meant);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_to_absolute_unique_places(text in "(?s).{0,300}") {
            let lines = parse(&text);
            for (index, line) in lines.iter().enumerate() {
                prop_assert!(line.point.starts_with('/') && !line.point.split('/').any(|part| part == ".."));
                prop_assert!(lines[..index].iter().all(|other| other.point != line.point));
            }
        }
    }
}
