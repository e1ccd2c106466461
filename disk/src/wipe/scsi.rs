//! SCSI: whether the disk knows SANITIZE, and SANITIZE. Numbers are those of SCSI Block Commands 4 (SBC-4) and SCSI Primary
//! Commands 5 (SPC-5).

use std::time::Duration;

use super::follow::{Follow, State};
use super::method::{Abilities, Method, Sanitize};
use crate::commands::sense::{CHECK_CONDITION, Sense, sense_words, without_fault};
use crate::commands::{Commands, Refused, ScsiEnd, Transfer};

const SANITIZE: u8 = 0x48;
const TEST_UNIT_READY: u8 = 0x00;
const REQUEST_SENSE: u8 = 0x03;
const MAINTENANCE_IN: u8 = 0xA3;
/// The service action of MAINTENANCE IN that reports commands.
const REPORT_SUPPORTED_OPERATION_CODES: u8 = 0x0C;
const ASK: Duration = Duration::from_secs(30);

/// What this disk supports. One that does not report its commands has none that can be used.
pub(super) fn abilities(disk: &dyn Commands, found: &mut Abilities) -> Result<(), Refused> {
    let mut reports = false;
    for kind in [Sanitize::Block, Sanitize::Overwrite, Sanitize::Crypto] {
        let mut answer = [0; 64];
        let mut command = [0; 12];
        // Reporting option 2: this operation code with this service action.
        command[..6].copy_from_slice(&[MAINTENANCE_IN, REPORT_SUPPORTED_OPERATION_CODES, 2, SANITIZE, 0, action(kind)]);
        command[9] = answer.len() as u8;
        let end = disk.scsi(&command, Transfer::In(&mut answer), ASK)?;
        reports |= without_fault(&end);
        // Bits 2:0: 3 is supported as the standard says.
        if without_fault(&end) && answer[1] & 0b111 == 3 {
            found.methods.push(Method::ScsiSanitize(kind));
        }
    }
    if !reports {
        found.limits.push("the disk, or the adapter before it, does not report which commands it supports".into());
    }
    Ok(())
}

/// Sanitizes the disk, and waits for the end.
pub(super) fn sanitize(disk: &dyn Commands, kind: Sanitize, follow: &Follow<'_>) -> Result<(), Refused> {
    // Bit 7: answer at once. Bit 5: a failure does not lock the disk for ever.
    let mut command = [SANITIZE, 1 << 7 | 1 << 5 | action(kind), 0, 0, 0, 0, 0, 0, 0, 0];
    // One pass, with a pattern of four zero bytes.
    let pattern = [1, 0, 0, 4, 0, 0, 0, 0];
    let data = if kind == Sanitize::Overwrite {
        command[8] = pattern.len() as u8;
        Transfer::Out(&pattern)
    } else {
        Transfer::None
    };
    let end = disk.scsi(&command, data, ASK)?;
    if !without_fault(&end) {
        return Err(Refused::Answer(format!("it refuses the sanitize: {}", sense_words(&end))));
    }
    follow.to_end(|| match state(disk)? {
        // That the sense names no fault is no success yet: the disk must take commands again.
        State::Ended => ready(disk).map(|()| State::Ended),
        state => Ok(state),
    })
}

/// How much is done of a sanitize that is under way, of 65536.
pub(super) fn under_way(disk: &dyn Commands) -> Result<Option<u64>, Refused> {
    Ok(match state(disk)? {
        State::UnderWay(part) => Some(part),
        State::Ended | State::Failed(_) => None,
    })
}

fn ready(disk: &dyn Commands) -> Result<(), Refused> {
    let end = disk.scsi(&[TEST_UNIT_READY, 0, 0, 0, 0, 0], Transfer::None, ASK)?;
    if end.status == 0 { Ok(()) } else { Err(Refused::Answer(format!("it is not ready: {}", sense_words(&end)))) }
}

/// Service actions: 1 overwrite, 2 block erase, 3 cryptographic erase.
const fn action(kind: Sanitize) -> u8 {
    match kind {
        Sanitize::Overwrite => 1,
        Sanitize::Block => 2,
        Sanitize::Crypto => 3,
    }
}

/// What the disk says of itself at this moment.
fn state(disk: &dyn Commands) -> Result<State, Refused> {
    let mut sense = vec![0; 252];
    let length = sense.len() as u8;
    // Byte 1, bit 0: descriptors are understood too.
    let end = disk.scsi(&[REQUEST_SENSE, 1, 0, 0, length, 0], Transfer::In(&mut sense), ASK)?;
    if !without_fault(&end) {
        return Err(Refused::Answer(format!("it does not report its state: {}", sense_words(&end))));
    }
    let said = ScsiEnd { status: CHECK_CONDITION, sense };
    match Sense::of(&said.sense) {
        // 04h/1Bh: not ready, sanitize in progress.
        Some(Sense { key: 2, code: 0x04, qualifier: 0x1B, progress }) => Ok(State::UnderWay(u64::from(progress))),
        // No sense and recovered errors name no failure.
        Some(Sense { key: 0 | 1, .. }) => Ok(State::Ended),
        // Unit attention: a reset of the bus, say; it says nothing of the sanitize.
        None | Some(Sense { key: 6, .. }) => {
            Err(Refused::Answer(format!("it does not report its state: {}", sense_words(&said))))
        }
        Some(_) => Ok(State::Failed(format!("the sanitize failed: {}", sense_words(&said)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::scripted::{Scripted, Step};

    #[test]
    fn a_sanitize_answers_at_once_and_is_followed() {
        for (kind, first, data) in [
            (Sanitize::Block, 0xA2, vec![]),
            (Sanitize::Crypto, 0xA3, vec![]),
            (Sanitize::Overwrite, 0xA1, vec![1, 0, 0, 4, 0, 0, 0, 0]),
        ] {
            let disk = Scripted::scsi(&[]).with_steps(&[Step::UnderWay(300), Step::Done]);
            let heard = std::cell::Cell::new(0);
            sanitize(&disk, kind, &Follow { pause: Duration::ZERO, heard: &|part| heard.set(part) }).unwrap();
            assert_eq!(heard.get(), 300);
            let sent = disk.scsi.lock().unwrap();
            assert_eq!((sent.len(), sent[0].0[0], sent[0].0[1], &sent[0].1), (1, SANITIZE, first, &data));
            assert_eq!(usize::from(sent[0].0[8]), data.len());
        }
    }

    #[test]
    fn a_refused_or_failed_sanitize_is_named() {
        let follow = Follow { pause: Duration::ZERO, heard: &|_| () };
        let disk = Scripted::scsi(&[]).with_steps(&[Step::Failed]);
        let failed = sanitize(&disk, Sanitize::Block, &follow).unwrap_err().to_string();
        assert!(failed.contains("code 0x31/0x03"), "{failed}");
        let disk = Scripted::scsi(&[]).with_steps(&[Step::Done]).refusing(SANITIZE);
        let refused = sanitize(&disk, Sanitize::Block, &follow).unwrap_err().to_string();
        assert!(refused.contains("sense key 0x5, code 0x20"), "{refused}");
    }

    #[test]
    fn a_reset_or_a_disk_not_ready_is_no_end() {
        let follow = Follow { pause: Duration::ZERO, heard: &|_| () };
        let steps = [Step::UnderWay(3), Step::Attention, Step::UnderWay(9), Step::NotReady, Step::Done];
        let disk = Scripted::scsi(&[]).with_steps(&steps);
        sanitize(&disk, Sanitize::Block, &follow).unwrap();
        assert_eq!(disk.left(), 1, "all of them were looked at");
        let disk = Scripted::scsi(&[]).with_steps(&[Step::NotReady]);
        let refused = sanitize(&disk, Sanitize::Block, &follow).unwrap_err().to_string();
        assert!(refused.contains("not ready"), "{refused}");
    }
}
