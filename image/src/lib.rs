//! Packs the boot image and assembles and inspects OS disk images.
//!
//! Six products, all made without a running target system and without trusting file times or orders:
//!
//! - the **initramfs** a machine netboots: the agent as `/init` and the few drivers of a *profile*, taken from an
//!   unpacked Debian kernel package ([`kernel`], [`initramfs`]); same input, same bytes;
//! - the **disk image** the agent writes: a GPT disk that boots on BIOS and UEFI alike ([`disk`]), zstd-compressed,
//!   with its digest;
//! - the **packed image** and its index ([`pack`]), of which the agent fetches, proves and decodes any part alone;
//! - the **unified kernel image** ([`uki`]): kernel, initramfs and command line as one program for UEFI;
//!   [`sign`] signs it for Secure Boot;
//! - the **boot medium** ([`iso`]): both as an ISO for CDs, virtual CDs and USB sticks;
//! - the **tools layer** ([`tools`]): the worker and Debian's programs, for the actions that need them.
//!
//! [`inspect`] reads any of them and shows what it contains.

pub mod arch;
pub mod cpio;
pub mod digest;
pub mod disk;
pub mod drives;
pub mod initramfs;
pub mod inspect;
pub mod iso;
pub mod kernel;
pub mod output;
pub mod pack;
mod pe;
pub mod sign;
pub mod tools;
pub mod uki;
