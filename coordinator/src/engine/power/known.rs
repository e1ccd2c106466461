//! Which way led to the agent on machines of one model and firmware: the next such machine tries it first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
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

/// What led to a machine's agent.
struct Led {
    model: Model,
    way: BootWay,
    /// When.
    at: Option<Timestamp>,
}

/// What has worked, by the machine's name: each machine's own status has it, so that it is known again after a restart.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<String, Led>>);

impl Known {
    /// Takes in what a machine's status says.
    pub(super) fn note(&self, machine: &str, status: &BmcStatus) {
        let mut all = self.all();
        match (Model::of(status), status.worked) {
            (Some(model), Some(way)) => {
                let heard =
                    status.attempts.iter().rev().find(|attempt| attempt.failure.is_none() && attempt.ended.is_some());
                // The next workflow forgets when that was.
                let before = all.get(machine).filter(|led| led.way == way).and_then(|led| led.at);
                let at = heard.and_then(|attempt| attempt.ended).or(before);
                all.insert(machine.to_owned(), Led { model, way, at });
            }
            _ => drop(all.remove(machine)),
        }
    }

    /// The machine has no BMC any more.
    pub(super) fn forget(&self, machine: &str) {
        self.all().remove(machine);
    }

    /// Puts the way first that led to the agent on a machine of the same model and firmware the last time: networks change, and what has
    /// led to it most often may not lead to it any more.
    pub(super) fn order(&self, status: &BmcStatus, ways: &mut [BootWay]) {
        let Some(model) = Model::of(status) else { return };
        let all = self.all();
        let newest = all.values().filter(|led| led.model == model).max_by_key(|led| led.at);
        if let Some(at) = newest.and_then(|led| ways.iter().position(|way| *way == led.way)) {
            ways[..=at].rotate_right(1);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Led>> {
        // Every change of it is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::BmcSystem;
    use landfall_machine::power::{self, Outcome, Step};
    use uuid::Uuid;

    use super::*;

    /// A machine whose agent came by that way at that second.
    fn status(model: &str, firmware: &str, worked: Option<(BootWay, i64)>) -> BmcStatus {
        let system = BmcSystem { model: model.into(), firmware: firmware.into(), ..BmcSystem::default() };
        let mut status = BmcStatus { system: Some(system), ..BmcStatus::default() };
        if let Some((way, at)) = worked {
            power::begin(&mut status, Uuid::nil(), way, Timestamp::UNIX_EPOCH);
            power::note(&mut status, &Step::On, Timestamp::UNIX_EPOCH);
            power::end(&mut status, Outcome::Heard, Timestamp::from_second(at).unwrap());
        }
        status
    }

    #[test]
    fn the_last_success_of_a_model_comes_first() {
        use BootWay::{OwnOrder, PxeContinuous, PxeOnce, VirtualMedia};
        let known = Known::default();
        for (machine, model, firmware, worked) in [
            ("a", "Anvil", "1", Some((PxeContinuous, 1))),
            ("b", "Anvil", "1", Some((PxeContinuous, 2))),
            ("c", "Anvil", "1", Some((VirtualMedia, 3))),
            ("d", "Anvil", "2", Some((OwnOrder, 4))),
            ("e", "", "1", Some((OwnOrder, 5))),
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
        // The next workflow of the machine has begun, and nothing is known of it yet.
        let mut begun = status("Anvil", "1", Some((VirtualMedia, 3)));
        power::begin(&mut begun, Uuid::from_u128(8), VirtualMedia, Timestamp::UNIX_EPOCH);
        known.note("c", &begun);
        assert_eq!(order("Anvil", "1", &all), [VirtualMedia, PxeOnce, PxeContinuous, OwnOrder]);
        // What has failed since, or has gone, does not count.
        known.note("c", &status("Anvil", "1", None));
        assert_eq!(order("Anvil", "1", &all), [PxeContinuous, PxeOnce, VirtualMedia, OwnOrder]);
        known.forget("a");
        known.forget("b");
        assert_eq!(order("Anvil", "1", &all), all);
    }
}
