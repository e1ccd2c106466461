//! ATA commands through the kernel's SCSI translation. Numbers are those of SCSI/ATA Translation 4 (SAT-4).

use std::time::Duration;

use super::sense::{sense_words, without_fault};
use super::{Commands, Refused, ScsiEnd, Transfer};

/// ATA PASS-THROUGH (16).
const PASS_THROUGH: u8 = 0x85;

/// A command's registers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Registers {
    pub(crate) command: u8,
    pub(crate) features: u16,
    pub(crate) count: u16,
    /// 48 bits.
    pub(crate) lba: u64,
}

/// How it passes data: a protocol of SAT-4 and the flags of byte 2.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Protocol {
    NoData,
    /// One sector from the disk.
    PioIn,
    /// One sector to the disk.
    PioOut,
    /// No data, 48 bits, and the registers afterwards.
    Answer,
    /// The same with 28 bits.
    ShortAnswer,
}

pub(crate) fn send(
    disk: &dyn Commands, registers: Registers, data: &mut [u8], protocol: Protocol, limit: Duration,
) -> Result<ScsiEnd, Refused> {
    // Byte 1: protocol in bits 4:1, 48 bits in bit 0. Byte 2: bit 5 the registers are wanted afterwards, bit 3 from the disk,
    // bit 2 in blocks, bits 1:0 as many as the count says.
    let (protocol_and_width, flags) = match protocol {
        Protocol::NoData => (3 << 1, 0),
        Protocol::PioIn => (4 << 1, 0b1110),
        Protocol::PioOut => (5 << 1, 0b0110),
        Protocol::Answer => (3 << 1 | 1, 0b10_0000),
        Protocol::ShortAnswer => (3 << 1, 0b10_0000),
    };
    let count = if matches!(protocol, Protocol::PioOut) { 1 } else { registers.count };
    let (features, count, lba) = (registers.features.to_be_bytes(), count.to_be_bytes(), registers.lba.to_le_bytes());
    let command = [
        PASS_THROUGH, protocol_and_width, flags, features[0], features[1], count[0], count[1], lba[3], lba[0], lba[4],
        lba[1], lba[5], lba[2], 0, registers.command, 0,
    ];
    let transfer = match protocol {
        Protocol::NoData | Protocol::Answer | Protocol::ShortAnswer => Transfer::None,
        Protocol::PioIn => Transfer::In(data),
        Protocol::PioOut => Transfer::Out(data),
    };
    let end = disk.scsi(&command, transfer, limit)?;
    let failed = match returned(&end.sense) {
        // Bit 0 of the status register: error; bit 5: device fault.
        Some(back) => back.status & 0b10_0001 != 0,
        None => !without_fault(&end),
    };
    if failed {
        return Err(Refused::Answer(format!(
            "it refuses ATA command {:#04x}: {}",
            registers.command,
            sense_words(&end)
        )));
    }
    Ok(end)
}

/// Registers after a command, from the ATA status return descriptor.
pub(crate) struct Returned {
    pub(crate) count: u16,
    pub(crate) lba: u64,
    status: u8,
}

/// The lower 24 bits of the address that a command returned, also from sense data of the fixed format, which hold no more (SAT-4, ATA
/// PASS-THROUGH: bytes 9 to 11, with additional sense code 00h/1Dh).
pub(crate) fn returned_lba(sense: &[u8]) -> Option<u64> {
    if let Some(whole) = returned(sense) {
        return Some(whole.lba & 0xFF_FFFF);
    }
    let fixed = sense.get(..14).filter(|sense| sense[0] & 0x7F == 0x70 && sense[12..14] == [0x00, 0x1D])?;
    Some(fixed[9..12].iter().rev().fold(0, |lba, byte| lba << 8 | u64::from(*byte)))
}

pub(crate) fn returned(sense: &[u8]) -> Option<Returned> {
    // Descriptor format; the descriptors begin at byte 8.
    let mut rest = sense.get(8..).filter(|_| sense[0] & 0x7F == 0x72)?;
    while let [kind, length, ..] = *rest {
        let (descriptor, after) = rest.split_at_checked(2 + usize::from(length))?;
        if kind == 0x09 && descriptor.len() >= 14 {
            let d = descriptor;
            let lba = [d[7], d[9], d[11], d[6], d[8], d[10], 0, 0];
            let count = u16::from_be_bytes([d[4], d[5]]);
            return Some(Returned { count, lba: u64::from_le_bytes(lba), status: d[13] });
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_sense_return_the_address() {
        let descriptor = [0x72, 1, 0, 0x1D, 0, 0, 0, 14, 9, 12, 0, 0, 0, 0, 0, 1, 0, 0xF4, 0, 0x2C, 0, 0x50];
        let fixed = [0x70, 0, 1, 0, 0x50, 0, 0, 10, 0, 1, 0xF4, 0x2C, 0, 0x1D, 0, 0, 0, 0];
        assert_eq!([&descriptor[..], &fixed[..]].map(returned_lba), [Some(0x2C_F401); 2]);
        let other = [0x70, 0, 1, 0, 0x50, 0, 0, 10, 0, 1, 0xF4, 0x2C, 0x5D, 0x10, 0, 0, 0, 0];
        assert_eq!([&other[..], &fixed[..13], &[]].map(returned_lba), [None; 3]);
        assert!(returned(&fixed).is_none(), "it holds eight bits of the count, and an erasure needs all");
    }
}
