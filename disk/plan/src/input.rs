//! What a plan is made from, beside the layout.

use landfall_api::DiskFacts;
use uuid::Uuid;

/// A disk that a selector of the layout chose.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanDisk {
    /// What the agent saw of it.
    pub disk: DiskFacts,
    /// Of its partitions those that the layout preserves, as they stand in its table.
    pub kept: Vec<KeptPartition>,
}

/// A partition that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPartition {
    /// Its name in the table.
    pub name: String,
    /// Its number, from 1.
    pub number: u32,
    /// Its type.
    pub kind: Uuid,
    /// Its own GUID (PARTUUID).
    pub guid: Uuid,
    /// First sector.
    pub first: u64,
    /// Last sector, inclusive.
    pub last: u64,
}

/// The machine's processor: a root partition's type says for which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Architecture {
    /// That of the running program.
    pub const fn of_this_program() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 }
    }
}
