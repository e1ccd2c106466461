//! Which disk the command line selects, and whether it may be overwritten.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use landfall_api::{DiskFacts, DiskSelector, ErrorCode, Problem};
use landfall_disk::Disk;

use super::Stop;

/// Exactly one disk, by a path or by expressions.
pub(super) fn choose(wanted: &[String]) -> Result<DiskFacts, Stop> {
    // A path may hold a `=` (names below /dev/disk do); no field of a disk begins like one.
    let is_path = |text: &&String| text.starts_with(['/', '.']) || !text.contains('=');
    if let Some(path) = wanted.iter().find(is_path) {
        if wanted.len() > 1 {
            return Err(Stop::Use(format!("--disk {path} is a path and must be the only --disk; remove the others")));
        }
        return at(Path::new(path));
    }
    let mut fields = BTreeMap::new();
    for text in wanted {
        let (field, expression) = text.split_once('=').unwrap_or((text, ""));
        if fields.insert(field.to_owned(), serde_json::Value::from(expression)).is_some() {
            return Err(Stop::Use(format!("--disk names {field} twice; join the conditions into one expression")));
        }
    }
    let selector = DiskSelector(fields);
    selector.validate().map_err(|e| Stop::Use(format!("--disk: {e}")))?;
    let disks = landfall_disk::list_disks().map_err(|e| {
        Problem::new(ErrorCode::DeviceIo, e.to_string()).caused_by(&e).hint("check that /sys is mounted")
    })?;
    Ok(Disk::select(&selector, &disks).map_err(|e| e.problem())?.clone())
}

fn at(path: &Path) -> Result<DiskFacts, Stop> {
    landfall_disk::disk_at(path).map_err(|e| {
        let hint = "state a whole disk (lsblk -d lists them), an existing regular file, or FIELD=EXPRESSION";
        let problem = Problem::new(ErrorCode::NoDiskMatches, e.to_string()).caused_by(&e).hint(hint);
        problem.at(path.display().to_string()).into()
    })
}

/// Asks on stderr, so that stdout stays the report's.
pub(super) fn confirm(disk: &DiskFacts, device: &Path, keep: &[String]) -> Result<(), Stop> {
    if !std::io::stdin().is_terminal() {
        return Err(Stop::NotConfirmed("cannot ask for confirmation without a terminal; add --yes".into()));
    }
    let names = [disk.id.model.as_str(), disk.id.serial.as_str()].join(" ");
    let what = format!("{} ({}, {} MiB)", device.display(), names.trim(), disk.id.size_bytes >> 20).replace("(, ", "(");
    let but = if keep.is_empty() { String::new() } else { format!(" but {}", keep.join(", ")) };
    eprint!("All data on {what}{but} will be lost. Type yes to continue: ");
    // If the terminal is gone, no answer comes either.
    std::io::stderr().flush().unwrap_or_default();
    let mut answer = String::new();
    match std::io::stdin().read_line(&mut answer) {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        Ok(_) => Err(Stop::NotConfirmed("not confirmed; nothing was written".into())),
        Err(e) => Err(Stop::NotConfirmed(format!("cannot read the answer: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(wanted: &[&str]) -> Result<DiskFacts, Stop> {
        choose(&wanted.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_file_name_may_contain_an_equals_sign() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a=b");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let disk = choice(&[path.to_str().unwrap()]).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(disk.id.size_bytes, 1 << 20);
    }

    #[test]
    fn what_names_no_disk_is_refused_with_what_to_write() {
        assert!(matches!(choice(&["/no/such/disk"]), Err(Stop::Failed(p)) if p.hint.contains("FIELD=EXPRESSION")));
        for (wanted, said) in [
            (&["serial=a", "serial=b"][..], "twice"),
            (&["/dev/null", "serial=b"], "must be the only --disk"),
            (&["colour=red"], "is not a disk field"),
            (&["size=>=big"], "is not a size"),
        ] {
            assert!(matches!(choice(wanted), Err(Stop::Use(text)) if text.contains(said)), "{wanted:?}");
        }
    }
}
