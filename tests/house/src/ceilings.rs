//! How much is still allowed of what should not be: `ceilings.toml`, by top folder. Ceilings only fall: a check fails where a
//! count is above its ceiling, and `LANDFALL_HOUSE_LOWER=1` writes the counts that are below theirs.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::Context as _;

/// A count, or a ceiling, for each top folder; a folder without an entry has 0.
pub type Counts = BTreeMap<String, usize>;

fn path() -> PathBuf {
    crate::tree::home().join("ceilings.toml")
}

fn read() -> anyhow::Result<BTreeMap<String, Counts>> {
    let text = fs::read_to_string(path()).with_context(|| format!("cannot read {}", path().display()))?;
    toml::from_str(&text).with_context(|| format!("{} is invalid", path().display()))
}

/// Each folder's count that is above its ceiling, as a sentence; empty if none is.
pub fn above(what: &str, counts: &Counts, ceilings: &Counts) -> Vec<String> {
    counts
        .iter()
        .filter_map(|(folder, count)| {
            let ceiling = ceilings.get(folder).copied().unwrap_or_default();
            (*count > ceiling).then(|| format!("{folder}: {count} {what}, at most {ceiling} are allowed"))
        })
        .collect()
}

/// The ceilings once they are lowered to the counts; none rises, and those that reach 0 go.
pub fn lowered(counts: &Counts, ceilings: &Counts) -> Counts {
    ceilings
        .iter()
        .map(|(folder, ceiling)| (folder.clone(), counts.get(folder).copied().unwrap_or_default().min(*ceiling)))
        .filter(|(_, ceiling)| *ceiling > 0)
        .collect()
}

/// Compares counts with the table `table` of `ceilings.toml`, lowering it if that is asked for.
///
/// # Errors
/// A count is above its ceiling, or the file cannot be read or written.
pub fn check(table: &str, counts: &Counts) -> anyhow::Result<()> {
    let mut all = read()?;
    let ceilings = all.entry(table.to_owned()).or_default();
    let above = above(table, counts, ceilings);
    anyhow::ensure!(above.is_empty(), "{}", above.join("\n"));
    let lower = lowered(counts, ceilings);
    let total: usize = counts.values().sum();
    println!("ok   {table}: {total}, at most {}", ceilings.values().sum::<usize>());
    if lower != *ceilings {
        if std::env::var_os("LANDFALL_HOUSE_LOWER").is_some() {
            *ceilings = lower;
            let text = format!("{HEADER}\n{}", toml::to_string(&all)?);
            fs::write(path(), text).with_context(|| format!("cannot write {}", path().display()))?;
        } else {
            println!(
                "     lower the ceilings: LANDFALL_HOUSE_LOWER=1 cargo test -p landfall-house -- --test-threads 1"
            );
        }
    }
    Ok(())
}

const HEADER: &str = "# How much is still allowed, by top folder (see src/ceilings.rs). Numbers only fall.\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<const N: usize>(pairs: [(&str, usize); N]) -> Counts {
        pairs.map(|(folder, count)| (folder.to_owned(), count)).into()
    }

    #[test]
    fn a_count_above_its_ceiling_is_named() {
        let found = above("words", &counts([("a", 2), ("b", 1), ("c", 1)]), &counts([("a", 2), ("b", 0)]));
        assert_eq!(found, ["b: 1 words, at most 0 are allowed", "c: 1 words, at most 0 are allowed"]);
    }

    #[test]
    fn ceilings_only_fall() {
        let lower = lowered(&counts([("a", 1), ("b", 5)]), &counts([("a", 2), ("b", 3), ("c", 4)]));
        assert_eq!(lower, counts([("a", 1), ("b", 3)]));
    }
}
