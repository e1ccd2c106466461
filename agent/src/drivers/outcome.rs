//! What became of the modules that fit a device, for devices that have no driver in the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use landfall_api::ModuleName;

use super::loads::{self, State};
use super::missing;

/// By what the kernel looks for a driver by (the modalias). The agent loads drivers for one machine, from its first moment on, and the
/// facts are gathered far from there.
static OUTCOMES: Mutex<BTreeMap<String, Vec<Outcome>>> = Mutex::new(BTreeMap::new());

/// A module that fits a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) module: ModuleName,
    /// Whether the kernel's command line keeps it from being loaded.
    pub(super) blocked: bool,
}

/// Notes the modules that fit a device. Those of the boot image stay noted when the tools layer is searched too and has none.
pub(super) fn note(alias: String, outcomes: Vec<Outcome>) {
    let mut all = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = all.entry(alias).or_default();
    if !outcomes.is_empty() {
        *noted = outcomes;
    }
}

/// Why a device has no driver.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Undriven {
    /// In a sentence. Empty where this agent loads no drivers, or has not come to the device yet.
    pub(crate) problem: String,
    /// Modules that fit and that the boot image lacks.
    pub(crate) missing: Vec<String>,
}

/// Why a device with this modalias has no driver.
pub(crate) fn why_undriven(alias: &str) -> Undriven {
    let outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner).get(alias).cloned();
    let Some(outcomes) = outcomes else { return Undriven::default() };
    let missing = missing::modules(alias);
    Undriven { problem: sentence(&outcomes, &missing), missing }
}

fn sentence(outcomes: &[Outcome], missing: &[String]) -> String {
    let part = |Outcome { module, blocked }: &Outcome| {
        let what = match loads::state(module) {
            _ if *blocked => "is not loaded: the kernel's command line blocks it".to_owned(),
            Some(State::Loading) => "is still being loaded".to_owned(),
            Some(State::Refused(why)) => format!("is not loaded: {why}"),
            Some(State::Crashed) => "crashed while it was loaded; the kernel's log says where".to_owned(),
            Some(State::Loaded { .. }) | None => {
                "is loaded, and does not drive it; the kernel's log says why".to_owned()
            }
        };
        format!("module {} {what}", module.as_str())
    };
    let mut parts: Vec<_> = outcomes.iter().map(part).collect();
    match (outcomes, missing) {
        ([], []) => parts.push("no module of the boot image fits".to_owned()),
        (_, []) => {}
        (_, some) => parts.push(format!("the boot image lacks a module that fits: {}", some.join(" or "))),
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use super::*;
    use crate::drivers::loads::Purpose;

    #[test]
    fn missing_refused_and_idle_drivers_differ() {
        assert_eq!(why_undriven("pci:v0000DEADd0000BEEF"), Undriven::default());
        let lacks = |outcomes: &[Outcome]| sentence(outcomes, &["igc".into(), "igd".into()]);
        assert_eq!(lacks(&[]), "the boot image lacks a module that fits: igc or igd");
        let outcome = |name: &str, blocked| Outcome { module: ModuleName::new(name), blocked };
        let load = |name: &str, inserted: fn() -> io::Result<bool>| {
            let _state =
                loads::load(&ModuleName::new(name), Purpose::default(), &[], Duration::from_secs(60), inserted);
        };
        load("ice", || Ok(true));
        load("refused_one", || Err(io::Error::other("ENOMEM")));
        load("crashing", || panic!("as expected"));
        let idle = "module ice is loaded, and does not drive it; the kernel's log says why";
        assert_eq!(lacks(&[outcome("ice", false)]), format!("{idle}; {}", lacks(&[])));
        for (outcomes, said) in [
            (vec![], "no module of the boot image fits"),
            (vec![outcome("refused_one", false)], "module refused_one is not loaded: ENOMEM"),
            (
                vec![outcome("crashing", false)],
                "module crashing crashed while it was loaded; the kernel's log says where",
            ),
            (vec![outcome("blocked", true)], "module blocked is not loaded: the kernel's command line blocks it"),
            (vec![outcome("ice", false)], idle),
            (vec![], idle),
        ] {
            note("pci:v00008086d00001593".into(), outcomes);
            assert_eq!(why_undriven("pci:v00008086d00001593").problem, said);
        }
    }
}
