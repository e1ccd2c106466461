//! Pools: which machines a pool claims, installs anew and releases. Pure: the caller reads the documents and makes the steps.
//!
//! A machine's own document says which pool has it ([`PoolClaim`](landfall_api::PoolClaim)), so that none is in two. A pool claims machines on
//! which nothing is known to be installed, and no person stands behind such a workflow: its agent writes blank disks alone. Installed machines
//! are wiped and installed anew in the name of the person who requested what the pool's document says.

mod member;
mod plan;
#[cfg(test)]
mod tests;

pub use member::{Member, carries_system, is_free, state};
pub use plan::{Plan, Seen, Step, orphaned, plan};
