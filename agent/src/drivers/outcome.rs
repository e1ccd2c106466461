//! What became of the modules that fit a device, for devices that have no driver in the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use landfall_api::ModuleName;

/// By what the kernel looks for a driver by (the modalias). The agent loads drivers for one machine, from its first moment on, and the
/// facts are gathered far from there.
static OUTCOMES: Mutex<BTreeMap<String, Vec<Outcome>>> = Mutex::new(BTreeMap::new());

/// A module that fits a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) module: ModuleName,
    /// Why it is not loaded; `None`: it is.
    pub(super) refused: Option<String>,
}

/// Notes the modules that fit a device. Those of the boot image stay noted when the tools layer is searched too and has none.
pub(super) fn note(alias: String, outcomes: Vec<Outcome>) {
    let mut all = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = all.entry(alias).or_default();
    if !outcomes.is_empty() {
        *noted = outcomes;
    }
}

/// Why a device with this modalias has no driver; empty where this agent loads none, or has not come to it yet.
pub(crate) fn why_undriven(alias: &str) -> String {
    OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner).get(alias).map(|all| sentence(all)).unwrap_or_default()
}

fn sentence(outcomes: &[Outcome]) -> String {
    let part = |outcome: &Outcome| match &outcome.refused {
        Some(why) => format!("module {} is not loaded: {why}", outcome.module.as_str()),
        None => {
            format!("module {} is loaded, and does not drive it; the kernel's log says why", outcome.module.as_str())
        }
    };
    match outcomes {
        [] => "no module of the boot image fits".to_owned(),
        some => some.iter().map(part).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_refused_and_idle_drivers_differ() {
        assert_eq!(why_undriven("pci:v0000DEADd0000BEEF"), "");
        let outcome = |name: &str, refused: Option<&str>| Outcome {
            module: ModuleName::new(name),
            refused: refused.map(str::to_owned),
        };
        for (outcomes, said) in [
            (vec![], "no module of the boot image fits"),
            (vec![outcome("ice", Some("ENOMEM"))], "module ice is not loaded: ENOMEM"),
            (vec![outcome("ice", None)], "module ice is loaded, and does not drive it; the kernel's log says why"),
            (vec![], "module ice is loaded, and does not drive it; the kernel's log says why"),
        ] {
            note("pci:v00008086d00001593".into(), outcomes);
            assert_eq!(why_undriven("pci:v00008086d00001593"), said);
        }
    }
}
