//! Types of partitions.

use landfall_api::PartitionRole;
use uuid::Uuid;

use crate::input::Architecture;

/// A partition's type in both kinds of tables, with a name for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionType {
    /// In a GPT.
    pub gpt: Uuid,
    /// In a table of the old kind.
    pub mbr: u8,
    /// For people.
    pub name: &'static str,
}

impl PartitionType {
    /// Whether firmware starts what is on it, or a boot loader does.
    pub(crate) fn starts(&self) -> bool {
        [ESP, BIOS_BOOT, BOOT, ROOT_X86_64, ROOT_AARCH64].contains(self)
    }
}

const fn kind(gpt: u128, mbr: u8, name: &'static str) -> PartitionType {
    PartitionType { gpt: Uuid::from_u128(gpt), mbr, name }
}

// UEFI 2.10, table 5.7 (esp); the UAPI group's Discoverable Partitions Specification for the rest, but for BIOS boot (GRUB's
// manual), RAID, LVM and LUKS (util-linux, include/pt-gpt-partnames.h).
const ESP: PartitionType = kind(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, 0xef, "EFI system partition");
const BIOS_BOOT: PartitionType = kind(0x21686148_6449_6e6f_744e_656564454649, 0, "BIOS boot");
const BOOT: PartitionType = kind(0xbc13c2ff_59e6_4262_a352_b275fd6f7172, 0x83, "boot");
const ROOT_X86_64: PartitionType = kind(0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, 0x83, "root");
const ROOT_AARCH64: PartitionType = kind(0xb921b045_1df0_41c3_af44_4c6f280d3fae, 0x83, "root");
const HOME: PartitionType = kind(0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, 0x83, "home");
const SRV: PartitionType = kind(0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, 0x83, "srv");
// Not the type "var": systemd mounts that only on the machine whose id its GUID was made from.
const SWAP: PartitionType = kind(0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, 0x82, "swap");
const DATA: PartitionType = kind(0x0fc63daf_8483_4772_8e79_3d69d8477de4, 0x83, "Linux data");
pub(crate) const RAID: PartitionType = kind(0xa19d880f_05fc_4d3b_a006_743f0f84911e, 0xfd, "RAID member");
pub(crate) const LVM: PartitionType = kind(0xe6d6d379_f507_44c2_a23c_238f2a3df928, 0x8e, "LVM");
pub(crate) const LUKS: PartitionType = kind(0xca7d7ccb_63ed_4c53_861c_1742536059cc, 0x83, "LUKS");

/// The type of a partition with this role.
pub(crate) const fn of_role(role: PartitionRole, architecture: Architecture) -> PartitionType {
    match (role, architecture) {
        (PartitionRole::Esp, _) => ESP,
        (PartitionRole::BiosBoot, _) => BIOS_BOOT,
        (PartitionRole::Boot, _) => BOOT,
        (PartitionRole::Root, Architecture::X86_64) => ROOT_X86_64,
        (PartitionRole::Root, Architecture::Aarch64) => ROOT_AARCH64,
        (PartitionRole::Home, _) => HOME,
        (PartitionRole::Srv, _) => SRV,
        (PartitionRole::Swap, _) => SWAP,
        (PartitionRole::Var | PartitionRole::Data, _) => DATA,
    }
}

/// Whether a BIOS is to start from it, of a table of the old kind.
pub(crate) const fn starts(role: PartitionRole) -> bool {
    matches!(role, PartitionRole::Boot | PartitionRole::Root)
}
