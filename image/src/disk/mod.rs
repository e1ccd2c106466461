//! A GPT disk image that boots on BIOS and on UEFI, assembled from parts. One for 4Kn disks boots on UEFI alone: its boot
//! code and its BIOS boot partition are empty.
//!
//! | from | to | what |
//! |---|---|---|
//! | LBA 0 | | protective MBR with GRUB's boot.img |
//! | LBA 1 | 1 MiB | partition table; the rest is left free for Landfall's receipt |
//! | 1 MiB | 2 MiB | BIOS boot partition: GRUB's core.img |
//! | 2 MiB | … | EFI system partition |
//! | … | … | root file system, typed by architecture so that it is found without a label |
//! | … | end − 1 MiB | `/var`, if it has a file system of its own |

pub mod assemble;
pub mod filesystem;
pub mod grub;
pub mod layout;
pub mod seed;
pub mod tools;

pub use assemble::{AssembleError, Assembled, Recipe, assemble};
