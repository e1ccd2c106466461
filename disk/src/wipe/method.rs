//! By which command a disk reaches a level. Pure.

use landfall_api::WipeLevel;

/// What erases a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Nothing: signatures alone are cleared.
    Signatures,
    /// The kernel's discard.
    Discard,
    /// Zeroes.
    Zero,
    /// Sanitize of NVMe: the whole subsystem.
    NvmeSanitize(Sanitize),
    /// Format of one NVMe namespace, with its present format.
    NvmeFormat(NvmeFormat),
    /// Sanitize of ATA.
    AtaSanitize(Sanitize),
    /// Security erase of ATA.
    AtaErase {
        /// Also sectors that the disk has replaced.
        enhanced: bool,
        /// What the disk says it takes, minutes; 0: nothing is known.
        minutes: u32,
    },
    /// Sanitize of SCSI.
    ScsiSanitize(Sanitize),
}

/// What a sanitize does. All three standards have the same three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sanitize {
    /// Erases the blocks of the medium.
    Block,
    /// Writes over the medium.
    Overwrite,
    /// Forgets the key.
    Crypto,
}

/// What a format of NVMe is given beside the format to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NvmeFormat {
    /// Forget the key in place of erasing the data.
    pub(crate) crypto: bool,
    /// The bits of double word 10 that keep block size, metadata and protection information as they are.
    pub(crate) keep: u32,
}

impl Method {
    /// In words, for reports.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Signatures => "signatures cleared",
            Self::Discard => "discard",
            Self::Zero => "zeroes",
            Self::NvmeSanitize(Sanitize::Block) => "NVMe sanitize: block erase",
            Self::NvmeSanitize(Sanitize::Overwrite) => "NVMe sanitize: overwrite",
            Self::NvmeSanitize(Sanitize::Crypto) => "NVMe sanitize: crypto erase",
            Self::NvmeFormat(NvmeFormat { crypto: false, .. }) => "NVMe format: user data erase",
            Self::NvmeFormat(NvmeFormat { crypto: true, .. }) => "NVMe format: cryptographic erase",
            Self::AtaSanitize(Sanitize::Block) => "ATA sanitize: block erase",
            Self::AtaSanitize(Sanitize::Overwrite) => "ATA sanitize: overwrite",
            Self::AtaSanitize(Sanitize::Crypto) => "ATA sanitize: crypto scramble",
            Self::AtaErase { enhanced: false, .. } => "ATA security erase",
            Self::AtaErase { enhanced: true, .. } => "ATA enhanced security erase",
            Self::ScsiSanitize(Sanitize::Block) => "SCSI sanitize: block erase",
            Self::ScsiSanitize(Sanitize::Overwrite) => "SCSI sanitize: overwrite",
            Self::ScsiSanitize(Sanitize::Crypto) => "SCSI sanitize: cryptographic erase",
        }
    }

    /// The level that it reaches.
    pub(crate) const fn level(self) -> WipeLevel {
        match self {
            Self::Signatures => WipeLevel::Signatures,
            Self::Discard => WipeLevel::Discard,
            Self::Zero => WipeLevel::Zero,
            Self::NvmeSanitize(Sanitize::Crypto)
            | Self::NvmeFormat(NvmeFormat { crypto: true, .. })
            | Self::AtaSanitize(Sanitize::Crypto)
            | Self::ScsiSanitize(Sanitize::Crypto) => WipeLevel::Cryptographic,
            Self::NvmeSanitize(_)
            | Self::NvmeFormat(_)
            | Self::AtaSanitize(_)
            | Self::AtaErase { .. }
            | Self::ScsiSanitize(_) => WipeLevel::Secure,
        }
    }
}

/// What a disk can do, and why it cannot do more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Each method that it supports; of one level the best first.
    pub(crate) methods: Vec<Method>,
    /// Why it has no more of them, in words; none if there is nothing to say.
    pub(crate) limits: Vec<String>,
}

impl Abilities {
    /// The method for the first of these levels that the disk supports.
    pub(crate) fn choose(&self, level: WipeLevel, fallback: &[WipeLevel]) -> Option<Method> {
        let wanted = std::iter::once(level).chain(fallback.iter().copied());
        wanted.filter_map(|level| self.methods.iter().copied().find(|method| method.level() == level)).next()
    }

    /// The levels that it supports.
    pub(crate) fn levels(&self) -> Vec<WipeLevel> {
        WipeLevel::ALL.into_iter().filter(|level| self.choose(*level, &[]).is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_supported_level_is_chosen() {
        let methods = vec![Method::Signatures, Method::Zero, Method::AtaSanitize(Sanitize::Block)];
        let disk = Abilities { methods, limits: Vec::new() };
        let choose = |level, fallback: &[WipeLevel]| disk.choose(level, fallback).map(Method::level);
        use WipeLevel::{Cryptographic, Discard, Secure, Signatures, Zero};
        assert_eq!(choose(Secure, &[Zero]), Some(Secure));
        assert_eq!(choose(Cryptographic, &[Discard, Zero, Secure]), Some(Zero), "the order is the template's");
        assert_eq!(choose(Discard, &[]), None, "an unsupported level is never replaced by itself");
        assert_eq!(disk.levels(), [Signatures, Zero, Secure]);
    }
}
