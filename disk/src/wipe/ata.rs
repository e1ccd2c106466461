//! ATA through the kernel's SCSI translation: what IDENTIFY says, security erase and sanitize. Numbers are those of ATA
//! Command Set 4 (ACS-4) and SCSI/ATA Translation 4 (SAT-4).

use std::time::Duration;

use super::follow::{Follow, State};
use super::method::{Abilities, Method, Sanitize};
use crate::commands::ata::{Protocol, Registers, returned, send};
use crate::commands::{Commands, Refused};

/// A command that only asks.
const ASK: Duration = Duration::from_secs(30);
/// The largest disks take more than a day; the kernel counts milliseconds in 32 bits.
const ERASE_LIMIT: Duration = Duration::from_secs(48 * 3600);
/// The password under which an erasure runs. It is no secret: it has a value that every later attempt knows, so that a disk
/// whose erasure a power cut interrupted, and which is locked then, can be unlocked and erased again.
const PASSWORD: &[u8; 8] = b"landfall";

const IDENTIFY: u8 = 0xEC;
const SANITIZE: u8 = 0xB4;
const SET_PASSWORD: u8 = 0xF1;
const UNLOCK: u8 = 0xF2;
const ERASE_PREPARE: u8 = 0xF3;
const ERASE_UNIT: u8 = 0xF4;
const DISABLE_PASSWORD: u8 = 0xF6;

/// The words of IDENTIFY DEVICE that matter here.
#[derive(Debug, Clone, Copy)]
struct Identity {
    /// Word 59: bit 12 sanitize, 13 crypto scramble, 14 overwrite, 15 block erase.
    sanitize: u16,
    /// Word 89 and word 90: how long erase and enhanced erase take.
    times: [u16; 2],
    /// Word 128: bit 0 supported, 1 enabled, 2 locked, 3 frozen, 5 enhanced erase.
    security: u16,
}

impl Identity {
    const fn security(self, bit: u16) -> bool {
        self.security >> bit & 1 == 1
    }

    /// Minutes; 0 if the disk does not say. With bit 15 set the other 15 count two minutes each, else the low 8.
    fn minutes(self, enhanced: bool) -> u32 {
        let word = self.times[usize::from(enhanced)];
        let units = if word >> 15 == 1 { word & 0x7FFF } else { word & 0xFF };
        u32::from(units) * 2
    }
}

/// What this disk supports.
pub(super) fn abilities(disk: &dyn Commands, found: &mut Abilities) -> Result<(), Refused> {
    let identity = identify(disk)?;
    let mut sanitizes = identity.sanitize >> 12 & 1 == 1;
    if sanitizes {
        // Its status shows the end, so that a sanitize whose status does not get through is not begun.
        match status(disk) {
            Ok(Status { frozen: false, .. }) => {}
            Ok(_) => {
                sanitizes = false;
                found
                    .limits
                    .push("its sanitize is frozen: turn the machine off and on, or plug the disk in again".into());
            }
            Err(Refused::Answer(words)) => {
                sanitizes = false;
                found.limits.push(words);
            }
            Err(error) => return Err(error),
        }
    }
    let sanitize =
        |bit: u16, kind| (sanitizes && identity.sanitize >> bit & 1 == 1).then_some(Method::AtaSanitize(kind));
    let erases = identity.security(0) && !identity.security(3);
    if identity.security(0) && !erases {
        found.limits.push(
            "its ATA security is frozen, as many firmwares leave it: turn the machine off and on, or plug the disk in \
             again, and look for a setting of the firmware that does not freeze disks"
                .into(),
        );
    }
    let erase = |enhanced| erases.then(|| Method::AtaErase { enhanced, minutes: identity.minutes(enhanced) });
    // The last alone leaves sectors that the disk has replaced.
    found.methods.extend(sanitize(15, Sanitize::Block));
    found.methods.extend(erase(true).filter(|_| identity.security(5)));
    found.methods.extend(sanitize(14, Sanitize::Overwrite));
    found.methods.extend(erase(false));
    found.methods.extend(sanitize(13, Sanitize::Crypto));
    Ok(())
}

/// Unlocks a disk that an interrupted erasure of Landfall left locked, and takes the password from it: locked, it refuses every
/// read and write. Whether it did.
///
/// # Errors
/// [`Refused`]: the password is another one, or the disk does not answer.
pub(super) fn unlock(disk: &dyn Commands) -> Result<bool, Refused> {
    // A SCSI disk knows no IDENTIFY, and a disk that does not answer fails at the first read.
    if !identify(disk).is_ok_and(|identity| identity.security(2)) {
        return Ok(false);
    }
    send(disk, Registers { command: UNLOCK, ..Registers::default() }, &mut password(false), Protocol::PioOut, ASK)
        .map_err(|refused| {
            let why = format!("it is locked with a password that is not Landfall's ({refused}): unlock it first");
            Refused::Answer(why)
        })?;
    without_password(disk)?;
    Ok(true)
}

/// Takes the password from the disk, if it still has one: with it the disk would be locked at its next start.
fn without_password(disk: &dyn Commands) -> Result<(), Refused> {
    if !identify(disk)?.security(1) {
        return Ok(());
    }
    let disable = Registers { command: DISABLE_PASSWORD, ..Registers::default() };
    send(disk, disable, &mut password(false), Protocol::PioOut, ASK).map(drop).map_err(|refused| {
        Refused::Answer(format!(
            "it keeps the password \"landfall\" and is locked at its next start ({refused}): remove the password with hdparm \
             --security-disable landfall"
        ))
    })
}

/// Security erase. Blocks until the disk has done it, which may take a day.
pub(super) fn erase(disk: &dyn Commands, enhanced: bool) -> Result<(), Refused> {
    let set = Registers { command: SET_PASSWORD, ..Registers::default() };
    let prepare = Registers { command: ERASE_PREPARE, ..Registers::default() };
    let unit = Registers { command: ERASE_UNIT, ..Registers::default() };
    let erased = send(disk, set, &mut password(false), Protocol::PioOut, ASK)
        .and_then(|_| send(disk, prepare, &mut [], Protocol::NoData, ASK))
        .and_then(|_| send(disk, unit, &mut password(enhanced), Protocol::PioOut, ERASE_LIMIT));
    // An erasure that succeeded has removed the password.
    match (erased, without_password(disk)) {
        (Ok(_), freed) => freed,
        (Err(failed), Ok(())) => Err(failed),
        (Err(failed), Err(kept)) => Err(Refused::Answer(format!("{failed}; {kept}"))),
    }
}

/// Sanitizes the disk, and waits for the end.
pub(super) fn sanitize(disk: &dyn Commands, kind: Sanitize, follow: &Follow<'_>) -> Result<(), Refused> {
    // The keys keep a stray command from doing it. Bit 4 of the count: a failure does not lock the disk for ever; its low bits:
    // one pass. The pattern of the overwrite is zero.
    let (features, count, lba) = match kind {
        Sanitize::Crypto => (0x11, 0x10, 0x4372_7970),
        Sanitize::Block => (0x12, 0x10, 0x426B_4572),
        Sanitize::Overwrite => (0x14, 0x11, 0x4F57_0000_0000),
    };
    let command = Registers { command: SANITIZE, features, count, lba };
    send(disk, command, &mut [], Protocol::Answer, ASK)?;
    follow.to_end(|| {
        let now = status(disk)?;
        Ok(if now.under_way {
            State::UnderWay(now.part)
        } else if now.completed {
            State::Ended
        } else {
            State::Failed("the sanitize ended, and the disk does not report that it completed".into())
        })
    })
}

/// How much is done of a sanitize that is under way, of 65536.
pub(super) fn under_way(disk: &dyn Commands) -> Result<Option<u64>, Refused> {
    if identify(disk)?.sanitize >> 12 & 1 == 0 {
        return Ok(None);
    }
    Ok(Some(status(disk)?).filter(|state| state.under_way).map(|state| state.part))
}

struct Status {
    completed: bool,
    under_way: bool,
    frozen: bool,
    /// Of 65536.
    part: u64,
}

/// SANITIZE STATUS EXT.
fn status(disk: &dyn Commands) -> Result<Status, Refused> {
    let command = Registers { command: SANITIZE, ..Registers::default() };
    let end = send(disk, command, &mut [], Protocol::Answer, ASK)?;
    let Some(back) = returned(&end.sense) else {
        return Err(Refused::Answer("the adapter does not pass the disk's sanitize status on".into()));
    };
    let bit = |n: u16| back.count >> n & 1 == 1;
    Ok(Status { completed: bit(15), under_way: bit(14), frozen: bit(13), part: back.lba & 0xFFFF })
}

fn identify(disk: &dyn Commands) -> Result<Identity, Refused> {
    let mut page = [0; 512];
    send(disk, Registers { command: IDENTIFY, count: 1, ..Registers::default() }, &mut page, Protocol::PioIn, ASK)?;
    let word = |n: usize| u16::from_le_bytes([page[2 * n], page[2 * n + 1]]);
    Ok(Identity { sanitize: word(59), times: [word(89), word(90)], security: word(128) })
}

/// The sector that carries the user password; `enhanced` counts for an erase alone.
fn password(enhanced: bool) -> [u8; 512] {
    let mut sector = [0; 512];
    // Word 0, bit 1: enhanced erase; bit 0 would be the master password. Words 1 to 16: the password.
    sector[0] = u8::from(enhanced) << 1;
    sector[2..2 + PASSWORD.len()].copy_from_slice(PASSWORD);
    sector
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::scripted::{Scripted, Step};

    /// The ATA commands that were sent, with the first bytes of their data.
    fn sent(disk: &Scripted) -> Vec<(u8, Vec<u8>)> {
        let sent = disk.scsi.lock().unwrap();
        sent.iter().map(|(command, data)| (command[14], data.iter().copied().take(10).collect())).collect()
    }

    fn with_password(control: u8) -> Vec<u8> {
        [&[control, 0], &PASSWORD[..]].concat()
    }

    #[test]
    fn an_erase_sets_prepares_and_erases() {
        let disk = Scripted::ata(0, 0b10_0001);
        erase(&disk, true).unwrap();
        let expected =
            [(0xF1, with_password(0)), (0xF3, vec![]), (0xF4, with_password(2))].map(|(code, data)| (code, data));
        assert_eq!(sent(&disk), expected);
    }

    fn codes(disk: &Scripted) -> Vec<u8> {
        sent(disk).iter().map(|(code, _)| *code).collect()
    }

    #[test]
    fn a_disk_locked_by_an_interrupted_erase_is_unlocked() {
        let disk = Scripted::ata(0, 0b0111);
        assert!(unlock(&disk).unwrap());
        assert_eq!(sent(&disk), [(UNLOCK, with_password(0)), (DISABLE_PASSWORD, with_password(0))]);
        assert!(!unlock(&Scripted::ata(0, 0b0001)).unwrap());
        let foreign = Scripted::ata(0, 0b0111).refusing(UNLOCK);
        let refused = unlock(&foreign).unwrap_err().to_string();
        assert!(refused.contains("a password that is not Landfall's"), "{refused}");
        assert_eq!(codes(&foreign), [UNLOCK], "nothing but the attempt to unlock it");
    }

    #[test]
    fn a_failed_erase_leaves_no_password() {
        let disk = Scripted::ata(0, 0b0001).refusing(ERASE_UNIT);
        let refused = erase(&disk, false).unwrap_err().to_string();
        assert!(refused.contains("0xf4"), "{refused}");
        assert_eq!(sent(&disk).last().unwrap(), &(DISABLE_PASSWORD, with_password(0)));
        let stuck = Scripted::ata(0, 0b0001).refusing(ERASE_UNIT).refusing(DISABLE_PASSWORD);
        let refused = erase(&stuck, false).unwrap_err().to_string();
        assert!(refused.contains("--security-disable landfall"), "{refused}");
    }

    #[test]
    fn a_sanitize_carries_its_key_and_is_followed() {
        for (kind, features, lba) in [
            (Sanitize::Crypto, 0x11, [0x70, 0x79, 0x72, 0x43, 0, 0]),
            (Sanitize::Block, 0x12, [0x72, 0x45, 0x6B, 0x42, 0, 0]),
            (Sanitize::Overwrite, 0x14, [0, 0, 0, 0, 0x57, 0x4F]),
        ] {
            let disk = Scripted::ata(0xF << 12, 0).with_steps(&[Step::UnderWay(7), Step::Done]);
            let heard = std::cell::Cell::new(0);
            sanitize(&disk, kind, &Follow { pause: Duration::ZERO, heard: &|part| heard.set(part) }).unwrap();
            assert_eq!(heard.get(), 7);
            let sent = disk.scsi.lock().unwrap();
            let c = &sent[0].0;
            assert_eq!((sent.len(), c[14], c[4]), (1, SANITIZE, features));
            assert_eq!([c[8], c[10], c[12], c[7], c[9], c[11]], lba, "{kind:?}");
        }
        let disk = Scripted::ata(0xF << 12, 0).with_steps(&[Step::Failed]);
        sanitize(&disk, Sanitize::Block, &Follow { pause: Duration::ZERO, heard: &|_| () }).unwrap_err();
    }
}
