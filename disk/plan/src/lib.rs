//! What a storage layout comes to on given disks. [`plan`] computes partition tables, the steps that build RAID, LVM,
//! encryption and file systems on them, the mounts in their order, and the texts that the installed system needs of all this.
//!
//! It is pure: the same input gives the same result, with every GUID and UUID derived from a seed. So a dry run, an
//! installation, its repetition after a power cut, and every later action see one plan.

mod error;
mod ids;
mod input;
mod kinds;
mod mounts;
mod names;
mod partitions;
mod place;
mod plan;
mod show;
mod stack;
mod step;
mod texts;
mod words;

pub use error::PlanError;
pub use ids::seed;
pub use input::{Architecture, KeptPartition, PlanDisk};
pub use kinds::PartitionType;
pub use mounts::{Mount, Source, Swap};
pub use names::volume_name;
pub use partitions::{DiskPlan, Origin, PlannedPartition};
pub use plan::{Plan, plan};
pub use step::{Device, FileSystemId, GroupMember, RaidMetadata, Step, VolumeSize};
pub use texts::{Texts, md_uuid};
