//! What an installed system mounts by units of systemd, beside its `fstab` (systemd.mount(5), systemd.automount(5)). Those count that
//! an administrator has enabled; drop-ins of units and those that generators make do not.

use std::{collections::BTreeMap, io};

use super::fstab::{Line, put};
use super::tree::Tree;

/// Where enabled units are linked from.
pub(super) const ENABLED: &str = "/etc/systemd/system";
/// Where units are, in the order in which systemd looks.
const UNITS: [&str; 3] = [ENABLED, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];

/// Adds the lines of the units that any target wants. Where fstab has one for the same place, the unit counts.
///
/// # Errors
/// The kernel's.
pub(super) fn add_to(lines: &mut Vec<Line>, tree: &Tree) -> io::Result<()> {
    let folders = tree.names(ENABLED)?;
    for folder in folders.iter().filter(|name| name.ends_with(".wants") || name.ends_with(".requires")) {
        for name in tree.names(&format!("{ENABLED}/{folder}"))? {
            // An automatic mount is that of the unit with its name.
            let stem = name.strip_suffix(".mount").or_else(|| name.strip_suffix(".automount"));
            let Some(stem) = stem else { continue };
            let text = unit(tree, &format!("{stem}.mount"))?;
            if let Some(line) = text.as_deref().and_then(parse) {
                put(lines, line);
            }
        }
    }
    Ok(())
}

/// The text of a unit; `None`: there is none, or it is masked.
fn unit(tree: &Tree, name: &str) -> io::Result<Option<String>> {
    for folder in UNITS {
        let path = format!("{folder}/{name}");
        match tree.read_text(&path) {
            Ok(None) if !tree.has(&path) => {}
            // A link to /dev/null, which is not there, or no file.
            Ok(None) => return Ok(None),
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => {
                return Ok(None);
            }
            text => return text,
        }
    }
    Ok(None)
}

fn parse(text: &str) -> Option<Line> {
    let text = text.replace("\\\n", " ");
    let (mut section, mut fields) = ("", BTreeMap::new());
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if section == "Mount"
            && let Some((key, value)) = line.split_once('=')
        {
            fields.insert(key.trim_end(), value.trim_start().replace("%%", "%"));
        }
    }
    let field = |name: &str| fields.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let options = field("Options").unwrap_or_default();
    let mut line = Line::of(field("What")?, field("Where")?, field("Type").unwrap_or("auto"), options)?;
    // It says something to the readers of fstab alone.
    line.options.retain(|option| option != "noauto");
    Some(line)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use proptest::prelude::*;

    use super::*;

    const UNIT: &str = "# of the site\n[Unit]\nWhat=nothing\n[Mount]\nWhat=/dev/disk/by-uuid/ab\nWhere=/srv//data/\n\
        Type = xfs\nOptions=noatime,\\\nnoauto\n[Install]\nWantedBy=local-fs.target\n";

    #[test]
    fn a_unit_says_what_a_line_of_fstab_says() {
        let line = parse(UNIT).unwrap();
        assert_eq!(
            (line.point.as_str(), line.kind.as_str(), line.source.to_string().as_str()),
            ("/srv/data", "xfs", "UUID=ab")
        );
        assert!(line.at_boot() && line.has("noatime") && !line.has("noauto"), "{line:?}");
        for text in ["", "[Mount]\nWhat=/dev/vda1\n", "[Mount]\nWhat=a\nWhere=none\n", "What=a\nWhere=/b\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn only_enabled_units_count_and_before_fstab() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let unit = |what: &str, at: &str| format!("[Mount]\nWhat={what}\nWhere={at}\n");
        put("usr/lib/systemd/system/srv.mount", &unit("UUID=1", "/srv"));
        put("etc/systemd/system/opt.mount", &unit("UUID=2", "/opt"));
        put("usr/lib/systemd/system/var-lib-x.mount", &unit("UUID=3", "/var/lib/x"));
        put("usr/lib/systemd/system/home.mount", &unit("UUID=4", "/home"));
        let wants = root.path().join("etc/systemd/system/local-fs.target.wants");
        fs::create_dir_all(&wants).unwrap();
        for name in ["srv.mount", "opt.automount", "home.mount", "gone.mount", "some.service"] {
            symlink(format!("/usr/lib/systemd/system/{name}"), wants.join(name)).unwrap();
        }
        // Masked.
        symlink("/dev/null", root.path().join("etc/systemd/system/home.mount")).unwrap();
        let tree = Tree::open(root.path()).unwrap();
        let mut lines = super::super::fstab::parse("UUID=9 /srv ext4\nUUID=8 /boot ext4\n");
        add_to(&mut lines, &tree).unwrap();
        let mut found: Vec<_> = lines.iter().map(|line| (line.point.as_str(), line.source.to_string())).collect();
        found.sort();
        let expected = [("/boot", "UUID=8"), ("/opt", "UUID=2"), ("/srv", "UUID=1")];
        assert_eq!(found, expected.map(|(at, what)| (at, what.to_owned())));
    }

    proptest! {
        #[test]
        fn any_text_is_a_place_in_the_tree_or_none(text in "(?s).{0,200}") {
            for text in [text.clone(), format!("[Mount]\n{text}"), format!("[Mount]\nWhat=a\nWhere={text}")] {
                if let Some(line) = parse(&text) {
                    prop_assert!(line.point.starts_with('/') && !line.point.split('/').any(|part| part == ".."));
                }
            }
        }
    }
}
