//! A disk below the ioctls, for what no emulator has: it answers as the standards say, and remembers what it was sent.

use std::{io, ops::Range, sync::Mutex, time::Duration};

use super::{Commands, NvmeAdmin, ScsiEnd, Transfer};

/// What a sanitize of the script says, one after another: still under way, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    UnderWay(u16),
    Done,
    Failed,
    /// SCSI: sense of a bus that was reset.
    Attention,
    /// SCSI: no sense, but it takes no commands.
    NotReady,
}

/// A scripted disk.
#[derive(Debug, Default)]
pub(crate) struct Scripted {
    /// It does not answer at all.
    silent: bool,
    /// Refuses every command of these operation codes.
    refuses: Vec<u8>,
    controller: Vec<u8>,
    namespaces: Vec<u32>,
    /// Namespaces that are on the list of all controllers alone.
    elsewhere: Vec<u32>,
    frozen: bool,
    mute: bool,
    /// IDENTIFY DEVICE of ATA.
    identity: Mutex<Vec<u8>>,
    /// Service actions of SANITIZE that a SCSI disk has.
    actions: Vec<u8>,
    /// Its SMART log (NVMe), its SMART data (ATA), or its page of informational exceptions (SCSI); empty: it has none.
    health: Vec<u8>,
    /// Whether its SMART status is that of a disk that fails.
    fails: bool,
    /// What its sanitize says at each look.
    steps: Mutex<Vec<Step>>,
    /// Whether it takes commands after what it said last.
    ready: Mutex<bool>,
    /// NVMe commands that were sent, but for those that only ask.
    pub(crate) nvme: Mutex<Vec<NvmeAdmin>>,
    /// SCSI commands that were sent, but for those that only ask; with their data.
    pub(crate) scsi: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    /// What was discarded.
    pub(crate) discarded: Mutex<Vec<Range<u64>>>,
}

impl Scripted {
    /// An NVMe disk with these bytes of Identify Controller; its first namespace has format 1 and protection type 1.
    pub(crate) fn nvme(oacs: u8, fna: u8, sanicap: u8, namespaces: &[u32]) -> Self {
        let mut controller = vec![0; 4096];
        (controller[256], controller[524], controller[328]) = (oacs, fna, sanicap);
        Self { controller, namespaces: namespaces.to_vec(), ..Self::default() }
    }

    /// An ATA disk with these words 59 and 128 of IDENTIFY DEVICE; an enhanced erase takes 30 minutes.
    pub(crate) fn ata(sanitize: u16, security: u16) -> Self {
        let mut identity = vec![0; 512];
        for (word, value) in [(59, sanitize), (90, 15), (128, security)] {
            identity[2 * word..2 * word + 2].copy_from_slice(&u16::to_le_bytes(value));
        }
        Self { identity: Mutex::new(identity), ..Self::default() }
    }

    /// A disk with this SMART log as an NVMe disk, and these SMART data as an ATA disk.
    pub(crate) fn with_health(page: &[u8]) -> Self {
        Self { health: page.to_vec(), ..Self::ata(0, 0) }
    }

    /// The same disk, whose SMART status is that it fails.
    pub(crate) fn failing(self) -> Self {
        Self { fails: true, ..self }
    }

    /// A SCSI disk with this page of informational exceptions.
    pub(crate) fn with_exceptions(page: &[u8]) -> Self {
        Self { health: page.to_vec(), ..Self::default() }
    }

    /// A SCSI disk with these service actions of SANITIZE.
    pub(crate) fn scsi(actions: &[u8]) -> Self {
        Self { actions: actions.to_vec(), ..Self::default() }
    }

    /// The same disk, which refuses every command of this operation code.
    pub(crate) fn refusing(self, code: u8) -> Self {
        let refuses = [self.refuses.as_slice(), &[code]].concat();
        Self { refuses, ..self }
    }

    /// The same disk, which does not answer at all.
    pub(crate) fn silent(self) -> Self {
        Self { silent: true, ..self }
    }

    /// The same disk with a sanitize that says this.
    pub(crate) fn with_steps(self, steps: &[Step]) -> Self {
        *self.steps.lock().unwrap() = steps.to_vec();
        self
    }

    /// The next thing its sanitize says; once the script has ended, the last.
    fn step(&self) -> Option<Step> {
        let mut steps = self.steps.lock().unwrap();
        if steps.len() > 1 { Some(steps.remove(0)) } else { steps.first().copied() }
    }

    /// How much of the script is left.
    pub(crate) fn left(&self) -> usize {
        self.steps.lock().unwrap().len()
    }

    /// The same disk, whose list of namespaces of every controller is another than its own.
    pub(crate) fn with_namespaces_elsewhere(self, elsewhere: &[u32]) -> Self {
        Self { elsewhere: elsewhere.to_vec(), ..self }
    }

    /// The same disk with these bits of CMIC.
    pub(crate) fn with_controllers(mut self, cmic: u8) -> Self {
        self.controller[76] = cmic;
        self
    }

    /// The same disk with a frozen sanitize.
    pub(crate) fn with_frozen_sanitize(self) -> Self {
        Self { frozen: true, ..self }
    }

    /// The same disk behind an adapter that does not return registers.
    pub(crate) fn without_registers(self) -> Self {
        Self { mute: true, ..self }
    }

    fn ata_command(&self, command: &[u8], data: Transfer<'_>) -> ScsiEnd {
        let (features, code) = (command[4], command[14]);
        let (protocol, flags) = (command[1], command[2]);
        // SAT-4: PIO in and out of one sector, nothing, and 48 bits with the registers wanted. The password is 512 bytes.
        let right = match (code, &data) {
            (0xEC, Transfer::In(into)) => (protocol, flags, into.len()) == (4 << 1, 0x0E, 512),
            (0xF1 | 0xF2 | 0xF4 | 0xF6, Transfer::Out(from)) => (protocol, flags, from.len()) == (5 << 1, 0x06, 512),
            (0xF3, Transfer::None) => (protocol, flags) == (3 << 1, 0),
            // SMART, with the signature in its upper registers: READ DATA, RETURN STATUS.
            (0xB0, Transfer::In(into)) => {
                (protocol, flags, features, into.len()) == (4 << 1, 0x0E, 0xD0, 512) && signed(command)
            }
            (0xB0, Transfer::None) => (protocol, flags, features) == (3 << 1, 0x20, 0xDA) && signed(command),
            (0xB4, Transfer::None) => (protocol, flags) == (3 << 1 | 1, 0x20),
            _ => false,
        };
        assert!(right, "{command:02x?} {data:?}");
        let asks = [0xEC, 0xB0].contains(&code) || (code, features) == (0xB4, 0);
        if !asks {
            let sent = if let Transfer::Out(from) = &data { from.to_vec() } else { Vec::new() };
            self.scsi.lock().unwrap().push((command.to_vec(), sent));
        }
        if self.identity.lock().unwrap().is_empty() {
            // A SCSI disk: illegal request, invalid operation code.
            return ScsiEnd { status: 2, sense: vec![0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0] };
        }
        if self.refuses.contains(&code) {
            // As libata puts it: aborted command, in the fixed format.
            return ScsiEnd { status: 2, sense: vec![0x70, 0, 0xB, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] };
        }
        let mut identity = self.identity.lock().unwrap();
        // Word 128, low byte: the password is set, removed, or taken away by the erasure.
        match code {
            0xF1 => identity[256] |= 0b10,
            0xF2 => identity[256] &= !0b100,
            0xF4 | 0xF6 => identity[256] &= !0b110,
            _ => {}
        }
        if let Transfer::In(into) = data {
            into.copy_from_slice(if code == 0xB0 { &self.health } else { &identity });
        }
        if flags & 0x20 == 0 || self.mute {
            return ScsiEnd::default();
        }
        let (mut count, mut lba) = (u16::from(self.frozen) << 13, 0);
        if (code, features) == (0xB4, 0) {
            match self.step() {
                Some(Step::UnderWay(part)) => (count, lba) = (count | 1 << 14, part),
                Some(Step::Done) => count |= 1 << 15,
                _ => {}
            }
        }
        let (count, lba) = (count.to_be_bytes(), lba.to_le_bytes());
        // SMART RETURN STATUS.
        let upper = match (code, self.fails) {
            (0xB0, true) => [0xF4, 0x2C],
            (0xB0, false) => [0x4F, 0xC2],
            _ => [lba[1], 0],
        };
        let mut sense = vec![0x72, 1, 0, 0x1D, 0, 0, 0, 14];
        sense.extend([0x09, 12, 0, 0, count[0], count[1], 0, lba[0], 0, upper[0], 0, upper[1], 0, 0x50]);
        ScsiEnd { status: 2, sense }
    }
}

/// Whether ATA's registers 23:8 carry the signature that SMART wants.
fn signed(command: &[u8]) -> bool {
    (command[10], command[12]) == (0x4F, 0xC2)
}

impl Commands for Scripted {
    fn nvme(&self, command: NvmeAdmin, data: &mut [u8], _: Duration) -> io::Result<u16> {
        if self.silent {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.refuses.contains(&command.opcode) {
            return Ok(0x4002);
        }
        match (command.opcode, command.dwords[0]) {
            (0x06, 1) => data.copy_from_slice(&self.controller),
            (0x06, 0) => (data[26], data[29]) = (1, 1),
            (0x06, _) => {
                // 10h lists those of every controller as well.
                let elsewhere = if command.dwords[0] == 0x10 { self.elsewhere.as_slice() } else { &[] };
                for (place, number) in data.chunks_exact_mut(4).zip(self.namespaces.iter().chain(elsewhere)) {
                    place.copy_from_slice(&number.to_le_bytes());
                }
            }
            (0x02, dword) if dword & 0xFF == 0x02 => data.copy_from_slice(&self.health),
            (0x02, _) => match self.step() {
                Some(Step::UnderWay(part)) => {
                    data[..2].copy_from_slice(&part.to_le_bytes());
                    data[2] = 2;
                }
                Some(Step::Done) => data[2] = 1,
                Some(Step::Failed) => data[2] = 3,
                _ => {}
            },
            _ => self.nvme.lock().unwrap().push(command),
        }
        Ok(0)
    }

    fn scsi(&self, command: &[u8], data: Transfer<'_>, _: Duration) -> io::Result<ScsiEnd> {
        if self.silent {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match command[0] {
            0x85 => return Ok(self.ata_command(command, data)),
            0x4D if !self.health.is_empty() => {
                if let Transfer::In(into) = data {
                    into[..self.health.len()].copy_from_slice(&self.health);
                }
            }
            0xA3 => {
                if let Transfer::In(into) = data {
                    into[1] = if self.actions.contains(&command[5]) { 3 } else { 1 };
                }
            }
            0x03 => {
                let step = self.step();
                *self.ready.lock().unwrap() = step != Some(Step::NotReady);
                let sense = match step {
                    Some(Step::UnderWay(part)) => {
                        let part = part.to_be_bytes();
                        vec![0x72, 2, 0x04, 0x1B, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, part[0], part[1], 0]
                    }
                    Some(Step::Failed) => vec![0x72, 3, 0x31, 0x03, 0, 0, 0, 0],
                    Some(Step::Attention) => vec![0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0],
                    Some(Step::Done | Step::NotReady) | None => vec![0x72, 0, 0, 0, 0, 0, 0, 0],
                };
                if let Transfer::In(into) = data {
                    into[..sense.len()].copy_from_slice(&sense);
                }
            }
            0x00 => {
                if !*self.ready.lock().unwrap() {
                    return Ok(ScsiEnd { status: 2, sense: vec![0x70, 0, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, 4, 1] });
                }
            }
            code => {
                let sent = if let Transfer::Out(from) = data { from.to_vec() } else { Vec::new() };
                self.scsi.lock().unwrap().push((command.to_vec(), sent));
                if self.refuses.contains(&code) {
                    return Ok(ScsiEnd { status: 2, sense: vec![0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0] });
                }
            }
        }
        Ok(ScsiEnd::default())
    }

    fn discard(&self, range: Range<u64>) -> io::Result<()> {
        self.discarded.lock().unwrap().push(range);
        Ok(())
    }

    fn namespace(&self) -> io::Result<u32> {
        Ok(1)
    }
}
