//! The record of tests that passed with one set of programs, so that a long run can be resumed: a test's name a line.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

/// The names in a record; none if there is no such file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(record: &Path) -> anyhow::Result<Vec<String>> {
    match std::fs::read_to_string(record) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", record.display())),
    }
}

/// Adds a name to a record, in one write: tests end side by side.
///
/// # Errors
/// The file cannot be written.
pub(super) fn add(record: &Path, name: &str) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", record.display());
    let mut file = OpenOptions::new().create(true).append(true).open(record).with_context(cannot)?;
    file.write_all(format!("{name}\n").as_bytes()).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let record = dir.path().join("record");
        assert!(read(&record).unwrap().is_empty());
        add(&record, "one").unwrap();
        add(&record, "two").unwrap();
        assert_eq!(read(&record).unwrap(), ["one", "two"]);
    }
}
