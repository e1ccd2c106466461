//! NVMe: what the controller says it can, format and sanitize. Numbers are those of the NVM Express base specification 2.0
//! and its NVM command set 1.0.

use std::time::Duration;

use super::follow::{Follow, State};
use super::method::{Abilities, Method, NvmeFormat, Sanitize};
use crate::commands::{Commands, NvmeAdmin, Refused};

/// Identify: 06h. Get Log Page: 02h. Format NVM: 80h. Sanitize: 84h.
const IDENTIFY: u8 = 0x06;
const GET_LOG_PAGE: u8 = 0x02;
const FORMAT: u8 = 0x80;
const SANITIZE: u8 = 0x84;
/// Identify returns that much.
const PAGE: usize = 4096;
/// A command that only asks is answered at once.
const ASK: Duration = Duration::from_secs(30);
/// A format may take as long as writing the whole disk.
const FORMAT_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Bytes of Identify Controller.
mod controller {
    /// Who else hangs on the subsystem; bit 1: two or more controllers, bit 2: virtual functions.
    pub(super) const CMIC: usize = 76;
    /// Optional admin commands; bit 1: Format NVM, bit 3: namespace management.
    pub(super) const OACS: usize = 256;
    /// Bits 0 and 1: format and secure erase affect every namespace; bit 2: cryptographic erase.
    pub(super) const FNA: usize = 524;
    /// Sanitize; bit 0: crypto erase, bit 1: block erase, bit 2: overwrite.
    pub(super) const SANICAP: usize = 328;
}
/// Bytes of Identify Namespace.
mod namespace {
    /// Format in use; bits 3:0 and 6:5 its number, bit 4 metadata within the data.
    pub(super) const FLBAS: usize = 26;
    /// Protection; bits 2:0 its type, bit 3 at the start of the metadata.
    pub(super) const DPS: usize = 29;
}

/// What this disk supports.
pub(super) fn abilities(disk: &dyn Commands, found: &mut Abilities) -> Result<(), Refused> {
    let number = disk.namespace()?;
    let controller = identify(disk, 0, 1)?;
    let (oacs, fna, sanicap) =
        (controller[controller::OACS], controller[controller::FNA], controller[controller::SANICAP]);
    // Sanitize erases every namespace, and so does format on some controllers. A controller that manages namespaces (bit 3)
    // lists those as well that hang on another controller.
    let list = identify(disk, 0, if oacs >> 3 & 1 == 1 { 0x10 } else { 2 })?;
    let others = list.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let others: Vec<u32> = others.take_while(|it| *it != 0).filter(|it| *it != number).collect();
    // A controller that does not manage namespaces lists its own alone, and says whether there are other controllers.
    let hidden = oacs >> 3 & 1 == 0 && controller[controller::CMIC] & 0b110 != 0;
    let alone = others.is_empty() && !hidden;
    let sanitizes = [(Sanitize::Block, 1), (Sanitize::Overwrite, 2), (Sanitize::Crypto, 0)];
    let sanitizes = sanitizes.into_iter().filter(|(_, bit)| sanicap >> bit & 1 == 1).map(|(kind, _)| kind);
    let format = (oacs >> 1 & 1 == 1).then(|| identify(disk, number, 0)).transpose()?;
    let format_touches_others = fna & 0b11 != 0 && !alone;
    if !alone && (sanicap & 0b111 != 0 || (format.is_some() && format_touches_others)) {
        let others: Vec<String> = others.iter().map(u32::to_string).collect();
        let which = match others.as_slice() {
            [] => "what another controller of the same disk has".to_owned(),
            others => format!("its other namespaces ({})", others.join(", ")),
        };
        found.limits.push(format!("the controller's erasure would also erase {which}, so that it is not used"));
    }
    let sanitizes: Vec<Method> = sanitizes.filter(|_| alone).map(Method::NvmeSanitize).collect();
    let formats = format.filter(|_| !format_touches_others).map(|namespace| keep(&namespace));
    let formats = formats.into_iter().flat_map(|keep| {
        let crypto = (fna >> 2 & 1 == 1).then_some(NvmeFormat { crypto: true, keep });
        [Some(NvmeFormat { crypto: false, keep }), crypto]
    });
    // Overwriting wears a flash medium: the last choice.
    let (overwrite, erase): (Vec<Method>, Vec<Method>) =
        sanitizes.into_iter().partition(|method| *method == Method::NvmeSanitize(Sanitize::Overwrite));
    found.methods.extend(erase);
    found.methods.extend(formats.flatten().map(Method::NvmeFormat));
    found.methods.extend(overwrite);
    Ok(())
}

/// The bits of Format's double word 10 by which the namespace keeps its format.
fn keep(namespace: &[u8]) -> u32 {
    let (flbas, dps) = (u32::from(namespace[namespace::FLBAS]), u32::from(namespace[namespace::DPS]));
    let (low, high) = (flbas & 0xF, flbas >> 5 & 0b11);
    let (metadata_within, protection, at_start) = (flbas >> 4 & 1, dps & 0b111, dps >> 3 & 1);
    low | metadata_within << 4 | protection << 5 | at_start << 8 | high << 12
}

/// Formats the namespace. Blocks until the controller has done it.
pub(super) fn format(disk: &dyn Commands, format: NvmeFormat) -> Result<(), Refused> {
    // Secure erase setting: 1 user data, 2 the key.
    let setting = if format.crypto { 2 } else { 1 };
    let dwords = [format.keep | setting << 9, 0];
    done(
        disk.nvme(NvmeAdmin { opcode: FORMAT, namespace: disk.namespace()?, dwords }, &mut [], FORMAT_LIMIT)?,
        "format",
    )
}

/// Sanitizes the subsystem, and waits for the end.
pub(super) fn sanitize(disk: &dyn Commands, kind: Sanitize, follow: &Follow<'_>) -> Result<(), Refused> {
    // Sanitize action: 2 block erase, 3 overwrite, 4 crypto erase. Bit 3 (AUSE): a failure does not lock the disk for ever.
    // Bits 7:4: one pass.
    let action = match kind {
        Sanitize::Block => 2,
        Sanitize::Overwrite => 3 | 1 << 4,
        Sanitize::Crypto => 4,
    };
    let command = NvmeAdmin { opcode: SANITIZE, namespace: 0, dwords: [action | 1 << 3, 0] };
    done(disk.nvme(command, &mut [], ASK)?, "sanitize")?;
    follow.to_end(|| {
        Ok(match status(disk)? {
            (UNDER_WAY, part) => State::UnderWay(part),
            // 1: completed; 4: completed without deallocation.
            (1 | 4, _) => State::Ended,
            (other, _) => State::Failed(format!("its sanitize status is {other} after the sanitize was started")),
        })
    })
}

/// How much is done of a sanitize that is under way, of 65536.
pub(super) fn under_way(disk: &dyn Commands) -> Result<Option<u64>, Refused> {
    Ok(Some(status(disk)?).filter(|(state, _)| *state == UNDER_WAY).map(|(_, part)| part))
}

/// The status of a sanitize that is under way.
const UNDER_WAY: u8 = 2;

/// Status of the most recent sanitize, and how much of it is done, of 65536.
fn status(disk: &dyn Commands) -> Result<(u8, u64), Refused> {
    let mut log = [0; 512];
    // Log page 81h; the number of double words, minus one, in the upper half.
    let dwords = [0x81 | (log.len() as u32 / 4 - 1) << 16, 0];
    let command = NvmeAdmin { opcode: GET_LOG_PAGE, namespace: u32::MAX, dwords };
    done(disk.nvme(command, &mut log, ASK)?, "log page of sanitize")?;
    Ok((log[2] & 0b111, u64::from(u16::from_le_bytes([log[0], log[1]]))))
}

fn identify(disk: &dyn Commands, namespace: u32, structure: u32) -> Result<Vec<u8>, Refused> {
    let mut page = vec![0; PAGE];
    let command = NvmeAdmin { opcode: IDENTIFY, namespace, dwords: [structure, 0] };
    done(disk.nvme(command, &mut page, ASK)?, "identify")?;
    Ok(page)
}

fn done(status: u16, what: &str) -> Result<(), Refused> {
    if status == 0 {
        Ok(())
    } else {
        Err(Refused::Answer(format!("the controller refuses {what} with status {status:#x}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::scripted::{Scripted, Step};

    const AT_ONCE: Follow<'static> = Follow { pause: Duration::ZERO, heard: &|_| () };

    #[test]
    fn a_format_keeps_block_size_and_protection() {
        let disk = Scripted::nvme(0b10, 0b100, 0, &[1]);
        let kept = keep(&identify(&disk, 1, 0).unwrap());
        format(&disk, NvmeFormat { crypto: true, keep: kept }).unwrap();
        let sent = NvmeAdmin { opcode: 0x80, namespace: 1, dwords: [0x1 | 1 << 5 | 2 << 9, 0] };
        assert_eq!(*disk.nvme.lock().unwrap(), [sent]);
        // Format 18 (2, and 1 in the upper bits), metadata within the data, protection type 3 at the start of the metadata.
        let mut namespace = vec![0; PAGE];
        (namespace[26], namespace[29]) = (1 << 5 | 1 << 4 | 2, 1 << 3 | 3);
        assert_eq!(keep(&namespace), 1 << 12 | 1 << 8 | 3 << 5 | 1 << 4 | 2);
    }

    #[test]
    fn a_sanitize_is_followed_to_its_end() {
        let steps = [Step::UnderWay(1000), Step::UnderWay(65000), Step::Done];
        let disk = Scripted::nvme(0, 0, 0b111, &[1]).with_steps(&steps);
        let heard = std::cell::RefCell::new(Vec::new());
        let follow = Follow { pause: Duration::ZERO, heard: &|part| heard.borrow_mut().push(part) };
        sanitize(&disk, Sanitize::Block, &follow).unwrap();
        assert_eq!(heard.into_inner(), [1000, 65000]);
        // Action 2, and the disk may leave a failure.
        assert_eq!(*disk.nvme.lock().unwrap(), [NvmeAdmin { opcode: 0x84, namespace: 0, dwords: [0b1010, 0] }]);
        for (kind, word) in [(Sanitize::Overwrite, 0b1_1011), (Sanitize::Crypto, 0b1100)] {
            let disk = Scripted::nvme(0, 0, 0b111, &[1]).with_steps(&[Step::Done]);
            sanitize(&disk, kind, &AT_ONCE).unwrap();
            assert_eq!(disk.nvme.lock().unwrap()[0].dwords, [word, 0]);
        }
    }

    #[test]
    fn a_failed_sanitize_is_no_success() {
        let disk = Scripted::nvme(0, 0, 0b111, &[1]).with_steps(&[Step::Failed]);
        sanitize(&disk, Sanitize::Block, &AT_ONCE).unwrap_err();
        // A controller that forgot it: never sanitized.
        let disk = Scripted::nvme(0, 0, 0b111, &[1]);
        sanitize(&disk, Sanitize::Block, &AT_ONCE).unwrap_err();
        let disk = Scripted::nvme(0, 0, 0b111, &[1]).with_steps(&[Step::Done]).refusing(SANITIZE);
        let refused = sanitize(&disk, Sanitize::Block, &AT_ONCE).unwrap_err();
        assert!(refused.to_string().contains("0x4002"), "{refused}");
    }
}
