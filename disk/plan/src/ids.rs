//! Identities: each follows from the seed and from what it is of.

use uuid::Uuid;

/// The seed of the plan of a workflow's action at `index`: two actions of one list make different identities.
pub fn seed(workflow: Uuid, index: u32) -> Uuid {
    Uuid::new_v5(&workflow, format!("storage/{index}").as_bytes())
}

/// Makes identities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids(pub(crate) Uuid);

impl Ids {
    /// The one of this thing. UUID version 5 (RFC 9562, section 5.5) in the seed's name space.
    pub(crate) fn of(self, thing: &str) -> Uuid {
        Uuid::new_v5(&self.0, thing.as_bytes())
    }

    /// The first 32 bits, for what has no room for more; never zero, which means "none" in a table of the old kind.
    pub(crate) fn short(self, thing: &str) -> u32 {
        let [a, b, c, d, ..] = *self.of(thing).as_bytes();
        u32::from_be_bytes([a, b, c, d]).max(1)
    }
}
