//! The processors that machines boot with, as iPXE names them.

/// What a machine can execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86, whatever its firmware is.
    X86_64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// iPXE's `${buildarch}`, or the word that the DHCP answer gave it. An iPXE too old to fill in a setting sends nothing, or
    /// the setting's name: those are all for x86. So is one for BIOS, which says `i386` on 64-bit machines too. `None`: any
    /// other, for which there is no boot image.
    pub fn of_ipxe(word: &str) -> Option<Self> {
        match word {
            "" | "i386" | "x86_64" => Some(Self::X86_64),
            "arm64" => Some(Self::Arm64),
            word if word.starts_with('$') => Some(Self::X86_64),
            _ => None,
        }
    }

    /// As people name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86-64",
            Self::Arm64 => "arm64",
        }
    }

    /// How the names of its files end.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::X86_64 => "",
            Self::Arm64 => "-arm64",
        }
    }
}
