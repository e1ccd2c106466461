//! Plain words, and names of tests that are short enough to read.

use crate::{ceilings::Counts, tree::folder};
use std::collections::BTreeMap;

/// Words that hide the actor, or that only this project once used.
const AVOIDED: [&str; 6] = ["nobody", "somebody", "whoever", "whomever", "told", "thereof"];
/// This file has to name them.
const EXCEPT: &str = "tests/house/src/words.rs";
/// What a test's name may have.
pub const MAX_NAME_WORDS: usize = 10;

/// The avoided words in a text, however they are written; a part of an identifier between underscores is a word.
pub fn avoided(text: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| AVOIDED.iter().any(|avoided| word.eq_ignore_ascii_case(avoided)))
        .count()
}

/// The avoided words in each top folder's files.
pub fn count(texts: &BTreeMap<String, String>) -> Counts {
    sum(texts.iter().filter(|(path, _)| *path != EXCEPT).map(|(path, text)| (path, avoided(text))))
}

/// The names of tests that have more than [`MAX_NAME_WORDS`] words.
pub fn long_names(source: &str) -> Vec<&str> {
    let mut lines = source.lines().map(str::trim);
    let mut names = Vec::new();
    while let Some(line) = lines.next() {
        if !(line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
            continue;
        }
        // Other attributes and comments may stand between.
        let name = lines.by_ref().find_map(|line| {
            let (_, rest) = line.split_once("fn ")?;
            rest.split(['(', '<']).next()
        });
        names.extend(name.filter(|name| name.split('_').count() > MAX_NAME_WORDS));
    }
    names
}

/// The tests with long names in each top folder.
pub fn count_long_names(texts: &BTreeMap<String, String>) -> Counts {
    sum(texts.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| (path, long_names(text).len())))
}

/// The files of Rust in each top folder that have more than `most` lines.
pub fn count_long_files(texts: &BTreeMap<String, String>, most: usize) -> Counts {
    let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
    sum(rust.map(|(path, text)| (path, usize::from(text.lines().count() > most))))
}

fn sum<'a>(counts: impl Iterator<Item = (&'a String, usize)>) -> Counts {
    let mut sums = Counts::new();
    for (path, count) in counts.filter(|(_, count)| *count > 0) {
        *sums.entry(folder(path).to_owned()).or_default() += count;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_in_prose_and_identifiers_but_not_inside_words() {
        assert_eq!(avoided("Nobody told us; fn is_told() and `told`."), 4);
        assert_eq!(avoided("untold nobodys"), 0);
    }

    #[test]
    fn a_test_name_of_eleven_words_is_long() {
        let source = "#[test]\nfn a_b_c_d_e_f_g_h_i_j() {}\n#[tokio::test(start_paused = true)]\n#[allow(x)]\nasync fn a_b_c_d_e_f_g_h_i_j_k() {}\n";
        assert_eq!(long_names(source), ["a_b_c_d_e_f_g_h_i_j_k"]);
    }
}
