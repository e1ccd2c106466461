//! Paths that the documentation names.

use std::{collections::BTreeSet, path::Path};

/// Endings that make a word in code style a file of this repository. Other files the documentation names (`ca.pem`) are the
/// reader's own.
const ENDINGS: [&str; 6] = [".rs", ".md", ".proto", ".service", "Cargo.toml", "/"];

/// The paths that a page of Markdown names: link targets, words in code style that are paths, and `scripts/…` commands.
pub fn named(page: &str, tops: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let target = link.split('#').next().unwrap_or_default();
        if !target.is_empty() && !target.contains(':') {
            found.insert(format!("link:{target}"));
        }
    }
    for command in page.split("./scripts/").skip(1) {
        let name: String = command.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
        found.insert(format!("scripts/{name}"));
    }
    let mut fenced = false;
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // Every second piece stands between back-ticks.
            found.extend(line.split('`').skip(1).step_by(2).filter_map(|code| path(code, tops)));
        }
    }
    found
}

/// The path in a word of code style, if it is one of this repository's.
fn path(code: &str, tops: &BTreeSet<String>) -> Option<String> {
    let code = code.strip_prefix("./").unwrap_or(code);
    let characters = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if code.starts_with('/') || code == "/" || !code.chars().all(characters) {
        return None;
    }
    let top = code.split_once('/').is_some_and(|(top, _)| tops.contains(top));
    (top || ENDINGS.iter().any(|ending| code.ends_with(ending))).then(|| code.to_owned())
}

/// Whether the repository has what `page` names as `named`: a link's target from the page's folder; anything else from the
/// root, or as the end of some path, because the overview shortens paths it has just given in full.
pub fn exists(root: &Path, page: &str, named: &str, all: &BTreeSet<String>) -> bool {
    if let Some(target) = named.strip_prefix("link:") {
        return root.join(page).parent().is_some_and(|folder| folder.join(target).exists());
    }
    let wanted = named.trim_end_matches('/');
    root.join(wanted).exists() || all.iter().any(|path| path.ends_with(&format!("/{wanted}")))
}

/// Every file and folder, relative to the root, of which `files` are the files.
pub fn with_folders<'a>(files: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for file in files {
        let mut path = file.as_str();
        while all.insert(path.to_owned())
            && let Some((folder, _)) = path.rsplit_once('/')
        {
            path = folder;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_code_and_commands_are_found() {
        let tops = BTreeSet::from(["disk".to_owned()]);
        let page = "See [a](a.md#x), [b](https://b), `disk/src/x.rs`, `y.rs`, `ca.pem`, `/etc/z.rs`, `disk/tests`, `a b.rs`.\n```\n`q.rs`\n./scripts/test --full\n```\n";
        let expected = ["link:a.md", "disk/src/x.rs", "y.rs", "disk/tests", "scripts/test"];
        assert_eq!(named(page, &tops), expected.map(str::to_owned).into());
    }

    #[test]
    fn a_shortened_path_must_end_a_real_one() {
        let all = with_folders(["a/src/boot/dhcp/mod.rs".to_owned()].iter());
        let exists = |named| exists(Path::new("/nonexistent"), "docs/p.md", named, &all);
        assert!(exists("boot/dhcp/") && exists("dhcp/mod.rs"));
        assert!(!exists("oot/dhcp/") && !exists("dhcp/x.rs") && !exists("link:mod.rs"));
    }
}
