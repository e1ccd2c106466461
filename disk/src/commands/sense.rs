//! Sense data: what a SCSI command that did not simply succeed says of itself. Numbers are those of SCSI Primary Commands 5
//! (SPC-5).

use super::ScsiEnd;

/// A status byte: sense data say more.
pub(crate) const CHECK_CONDITION: u8 = 2;

/// The parts of sense data that matter here.
pub(crate) struct Sense {
    pub(crate) key: u8,
    pub(crate) code: u8,
    pub(crate) qualifier: u8,
    /// Of 65536.
    pub(crate) progress: u16,
}

impl Sense {
    pub(crate) fn of(sense: &[u8]) -> Option<Self> {
        let byte = |n: usize| sense.get(n).copied().unwrap_or_default();
        match byte(0) & 0x7F {
            0x70 | 0x71 => Some(Self {
                key: byte(2) & 0xF,
                code: byte(12),
                qualifier: byte(13),
                progress: u16::from_be_bytes([byte(16), byte(17)]),
            }),
            0x72 | 0x73 => {
                // A sense key specific descriptor (02h) has the progress at its bytes 5 and 6.
                let mut rest = sense.get(8..).unwrap_or_default();
                let mut progress = 0;
                while let [kind, length, ..] = *rest {
                    if let (2, [_, _, _, _, _, high, low, ..]) = (kind, rest) {
                        progress = u16::from_be_bytes([*high, *low]);
                    }
                    rest = rest.get(2 + usize::from(length)..).unwrap_or_default();
                }
                Some(Self { key: byte(1) & 0xF, code: byte(2), qualifier: byte(3), progress })
            }
            _ => None,
        }
    }
}

/// Whether a command ended well: GOOD, or with sense data that names no fault.
pub(crate) fn without_fault(end: &ScsiEnd) -> bool {
    match end.status {
        0 => true,
        CHECK_CONDITION => Sense::of(&end.sense).is_some_and(|sense| sense.key <= 1),
        _ => false,
    }
}

/// Status and sense in words.
pub(crate) fn sense_words(end: &ScsiEnd) -> String {
    match Sense::of(&end.sense) {
        Some(Sense { key, code, qualifier, .. }) => format!("sense key {key:#x}, code {code:#04x}/{qualifier:#04x}"),
        None => format!("status {:#04x} without sense data", end.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_from_both_formats_of_sense() {
        let fixed = [0x70, 0, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, 4, 0x1B, 0, 0x80, 0x12, 0x34];
        let descriptors = [0x72, 2, 4, 0x1B, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 0x12, 0x34, 0];
        for sense in [&fixed[..], &descriptors[..]] {
            let sense = Sense::of(sense).unwrap();
            assert_eq!((sense.key, sense.code, sense.qualifier, sense.progress), (2, 4, 0x1B, 0x1234));
        }
    }
}
