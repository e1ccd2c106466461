//! The coordinators that answer people, firmware and installed systems.

use std::sync::{Arc, Mutex, PoisonError};

use landfall_coordinator::engine::Engine;
use landfall_sim::chance::Chance;

use super::flag::Flag;

/// Each by the number of its life.
#[derive(Clone)]
pub(crate) struct Up {
    engines: Flag<Vec<(u64, Engine)>>,
    chance: Arc<Mutex<Chance>>,
}

impl Up {
    pub(crate) fn new(chance: Chance) -> Self {
        Self { engines: Flag::new(Vec::new()), chance: Arc::new(Mutex::new(chance)) }
    }

    pub(crate) fn add(&self, life: u64, engine: Engine) {
        let mut engines = self.engines.get();
        engines.push((life, engine));
        self.engines.set(engines);
    }

    pub(crate) fn remove(&self, life: u64) {
        let mut engines = self.engines.get();
        engines.retain(|(of, _)| *of != life);
        self.engines.set(engines);
    }

    /// That one's engine.
    pub(crate) fn of(&self, life: u64) -> Option<Engine> {
        self.engines.get().into_iter().find(|(of, _)| *of == life).map(|(_, engine)| engine)
    }

    /// One of them.
    pub(crate) fn any(&self) -> Option<Engine> {
        let mut engines = self.engines.get();
        if engines.is_empty() {
            return None;
        }
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let place = if engines.len() > 1 { chance.below(engines.len() as u64) } else { 0 };
        Some(engines.swap_remove(usize::try_from(place).unwrap()).1)
    }

    /// The same, as soon as there is one.
    pub(crate) async fn wait(&self) -> Engine {
        loop {
            self.engines.until(|engines| !engines.is_empty()).await;
            if let Some(engine) = self.any() {
                return engine;
            }
        }
    }
}
