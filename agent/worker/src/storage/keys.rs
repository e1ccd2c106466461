//! Passphrases that a person can type when the installed system starts.

use std::collections::BTreeMap;

use landfall_api::{ErrorCode, Problem, SecretText};
use landfall_disk::{available_memory, total_memory};
use landfall_plan::Step;

use crate::Failure;

/// What cryptsetup takes from a terminal, bytes (cryptsetup --help, "Maximum interactive passphrase length").
const MAX: usize = 512;
/// What the derivation of a key takes at most, bytes: argon2id's memory by cryptsetup's default for LUKS2. It takes no more than
/// half of the machine's memory either.
const DERIVATION: u64 = 1 << 30;

/// The passphrase of this name. An end of line at its end, which a secret from a file has, is no part of it: none can be typed.
///
/// # Errors
/// It is missing, or no terminal takes it.
pub(super) fn passphrase(keys: &BTreeMap<String, SecretText>, name: &str) -> Result<SecretText, Failure> {
    let refused = |what: &str, hint: &str| {
        let message = format!("the key {name} of the storage layout {what}");
        Failure::last(Problem::new(ErrorCode::InvalidDocument, message).hint(hint))
    };
    let text = keys.get(name).map(SecretText::expose).unwrap_or_default();
    let typed = text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if typed.is_empty() {
        Err(refused("is missing or empty", "state it in storage.keys"))
    } else if typed.len() > MAX || typed.contains(char::is_control) {
        let hint = format!("use a secret of one line, of 1 to {MAX} bytes without control characters");
        Err(refused("cannot be typed as a passphrase", &hint))
    } else {
        Ok(SecretText::new(typed))
    }
}

/// Whether all keys of these steps can be used: what is found later is found when the disks are destroyed.
///
/// # Errors
/// As of [`passphrase`]; or too little memory is free to encrypt with one.
pub(super) fn check(steps: &[Step], keys: &BTreeMap<String, SecretText>) -> Result<(), Failure> {
    let mut used = steps.iter().filter_map(|step| match step {
        Step::Encrypt { key, .. } => Some(key),
        _ => None,
    });
    let Some(first) = used.next() else { return Ok(()) };
    std::iter::once(first).chain(used).try_for_each(|key| passphrase(keys, key).map(drop))?;
    suffices(total_memory(), available_memory())
}

/// Whether a key can be derived in the memory that is free. Where the kernel does not say, it is tried.
fn suffices(total: Option<u64>, available: Option<u64>) -> Result<(), Failure> {
    let needed = total.map_or(DERIVATION, |total| DERIVATION.min(total / 2));
    let Some(available) = available.filter(|available| *available < needed) else { return Ok(()) };
    let message = format!(
        "cryptsetup takes up to {} MiB of memory for a key, and {} MiB are free; nothing was written",
        needed >> 20,
        available >> 20
    );
    let hint = "give the machine more memory, or remove encrypt from the layout";
    Err(Failure::last(Problem::new(ErrorCode::NotEnoughMemory, message).hint(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        let keys = [("disk".to_owned(), SecretText::new(text))].into();
        let found = passphrase(&keys, "disk");
        found.map(|key| key.expose().to_owned()).map_err(|failure| failure.problem.to_string())
    }

    #[test]
    fn an_end_of_line_is_no_part_of_a_passphrase() {
        for text in ["geheim", "geheim\n", "geheim\r\n"] {
            assert_eq!(of(text).as_deref(), Ok("geheim"), "{text:?}");
        }
        assert_eq!(of(" two words ").as_deref(), Ok(" two words "));
    }

    #[test]
    fn a_key_needs_half_of_the_memory_or_a_gib() {
        const MIB: u64 = 1 << 20;
        let said = |total: Option<u64>, available: Option<u64>| {
            suffices(total.map(|n| n * MIB), available.map(|n| n * MIB)).map_err(|failure| failure.problem.message)
        };
        for (total, available) in [(Some(512), Some(256)), (Some(16384), Some(1024)), (None, None), (Some(512), None)] {
            assert_eq!(said(total, available), Ok(()), "{total:?} {available:?}");
        }
        assert!(said(Some(512), Some(255)).unwrap_err().contains("256 MiB of memory for a key, and 255 MiB are free"));
        assert!(said(None, Some(1023)).unwrap_err().contains("1024 MiB"));
    }

    #[test]
    fn what_no_terminal_takes_is_refused_and_not_shown() {
        let long = "geheim".repeat(100);
        for text in ["", "\n", "geheim\n\n", "ge\theim", "geheim\0", &long] {
            let refused = of(text).unwrap_err();
            assert!(refused.contains("the key disk") && !refused.contains("geheim"), "{text:?}: {refused}");
        }
        assert!(passphrase(&BTreeMap::new(), "disk").is_err());
    }
}
