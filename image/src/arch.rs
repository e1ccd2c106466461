//! The processors that boot images are for, as their files name them.

use std::fmt;

use object::read::elf::FileHeader as _;
use object::{Endianness, elf, pe};

use crate::pe::{Headers, MACHINE, half};

/// A processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// Of an ELF file of 64 bits: a program, a library, a module. `None`: it is none, or for another processor.
    pub fn of_elf(file: &[u8]) -> Option<Self> {
        let header = elf::FileHeader64::<Endianness>::parse(file).ok()?;
        match header.e_machine(header.endian().ok()?) {
            elf::EM_X86_64 => Some(Self::X86_64),
            elf::EM_AARCH64 => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Of an EFI program: a stub, or a kernel that firmware can start. `None`: it is none, or for another processor.
    pub fn of_program(file: &[u8]) -> Option<Self> {
        match pe::Machine(half(file, Headers::read(file)?.at + MACHINE)?) {
            pe::IMAGE_FILE_MACHINE_AMD64 => Some(Self::X86_64),
            pe::IMAGE_FILE_MACHINE_ARM64 => Some(Self::Arm64),
            _ => None,
        }
    }

    /// As Rust names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// systemd's stub for a unified kernel image, by the name that every distribution gives it.
    pub const fn stub(self) -> &'static str {
        match self {
            Self::X86_64 => "linuxx64.efi.stub",
            Self::Arm64 => "linuxaa64.efi.stub",
        }
    }
}

/// As people name it.
impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86-64",
            Self::Arm64 => "arm64",
        })
    }
}
