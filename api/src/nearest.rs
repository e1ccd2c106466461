//! "Did you mean": the known name nearest to what was written.

/// How many letters differ: one for each that is added, left out, replaced, or swapped with its neighbour.
pub fn edit_distance(a: &str, b: &str) -> usize {
    strsim::damerau_levenshtein(a, b)
}

/// The nearest of `known`, if it is near enough to be a probable typo.
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |s: &str| s.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    let written = plain(written);
    // A third of the letters may differ: enough for a slip or a plural, too little for another word.
    let limit = (written.len() / 3).max(1);
    known
        .iter()
        .map(|name| (edit_distance(&written, &plain(name)), *name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["macs", "smbiosUuid", "serial"];
        assert_eq!(nearest("mac", &known), Some("macs"));
        assert_eq!(nearest("smbios_uuid", &known), Some("smbiosUuid"));
        assert_eq!(nearest("seriel", &known), Some("serial"));
        assert_eq!(nearest("hostname", &known), None);
        assert_eq!(nearest("", &known), None);
    }
}
