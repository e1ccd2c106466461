//! Which way led to the agent on machines of one model and firmware: the next such machine tries it first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_api::{BmcStatus, BootWay};

/// A model of computer with a version of its firmware.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Model {
    manufacturer: String,
    model: String,
    firmware: String,
}

impl Model {
    /// That of a machine, if its BMC says which.
    fn of(status: &BmcStatus) -> Option<Self> {
        let system = status.system.as_ref().filter(|system| !system.model.is_empty())?;
        let (manufacturer, model) = (system.manufacturer.clone(), system.model.clone());
        Some(Self { manufacturer, model, firmware: system.firmware.clone() })
    }
}

/// What has worked, by the machine's name: each machine's own status has it, so that it is known again after a restart.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<String, (Model, BootWay)>>);

impl Known {
    /// Takes in what a machine's status says.
    pub(super) fn note(&self, machine: &str, status: &BmcStatus) {
        let mut all = self.all();
        match (Model::of(status), status.worked) {
            (Some(model), Some(way)) => drop(all.insert(machine.to_owned(), (model, way))),
            _ => drop(all.remove(machine)),
        }
    }

    /// The machine has no BMC any more.
    pub(super) fn forget(&self, machine: &str) {
        self.all().remove(machine);
    }

    /// Puts the way first that led to the agent on most machines of the same model and firmware; of equals the one that is tried first anyway.
    pub(super) fn order(&self, status: &BmcStatus, ways: &mut [BootWay]) {
        let Some(model) = Model::of(status) else { return };
        let led: Vec<_> = self.all().values().filter(|(known, _)| *known == model).map(|(_, way)| *way).collect();
        let votes = |way: &BootWay| led.iter().filter(|one| *one == way).count();
        if let Some(best) = (0..ways.len()).rev().max_by_key(|at| votes(&ways[*at])).filter(|at| votes(&ways[*at]) > 0)
        {
            ways[..=best].rotate_right(1);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, (Model, BootWay)>> {
        // Every change of it is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::BmcSystem;

    use super::*;

    fn status(model: &str, firmware: &str, worked: Option<BootWay>) -> BmcStatus {
        let system = BmcSystem { model: model.into(), firmware: firmware.into(), ..BmcSystem::default() };
        BmcStatus { system: Some(system), worked, ..BmcStatus::default() }
    }

    #[test]
    fn what_led_most_machines_of_a_model_comes_first() {
        use BootWay::{OwnOrder, PxeContinuous, PxeOnce, VirtualMedia};
        let known = Known::default();
        for (machine, model, firmware, worked) in [
            ("a", "Anvil", "1", Some(PxeContinuous)),
            ("b", "Anvil", "1", Some(VirtualMedia)),
            ("c", "Anvil", "1", Some(VirtualMedia)),
            ("d", "Anvil", "2", Some(OwnOrder)),
            ("e", "", "1", Some(OwnOrder)),
            ("f", "Anvil", "1", None),
        ] {
            known.note(machine, &status(model, firmware, worked));
        }
        let order = |model: &str, firmware: &str, ways: &[BootWay]| {
            let mut ways = ways.to_vec();
            known.order(&status(model, firmware, None), &mut ways);
            ways
        };
        let all = [PxeOnce, PxeContinuous, VirtualMedia, OwnOrder];
        assert_eq!(order("Anvil", "1", &all), [VirtualMedia, PxeOnce, PxeContinuous, OwnOrder]);
        assert_eq!(order("Anvil", "2", &all), [OwnOrder, PxeOnce, PxeContinuous, VirtualMedia]);
        for (model, firmware) in [("Anvil", "3"), ("Hammer", "1"), ("", "1")] {
            assert_eq!(order(model, firmware, &all), all, "{model} {firmware}");
        }
        assert_eq!(order("Anvil", "2", &[PxeOnce]), [PxeOnce], "a way that may not be tried");
        // Of equals the usual order decides; what has failed since, or has gone, does not count.
        known.note("c", &status("Anvil", "1", None));
        assert_eq!(order("Anvil", "1", &all), [PxeContinuous, PxeOnce, VirtualMedia, OwnOrder]);
        known.forget("a");
        assert_eq!(order("Anvil", "1", &all), [VirtualMedia, PxeOnce, PxeContinuous, OwnOrder]);
    }
}
