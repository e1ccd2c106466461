//! IPMI messages: requests, and answers to them (13.8). Pure.

/// The BMC's address (5.5).
const BMC: u8 = 0x20;
/// Ours: the first of those for remote consoles (5.5).
const CONSOLE: u8 = 0x81;

/// A command: its network function, its number (appendix G), and its name for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) function: u8,
    pub(super) number: u8,
    pub(super) name: &'static str,
}

impl Command {
    pub(super) const CAPABILITIES: Self = Self::new(0x06, 0x38, "Get Channel Authentication Capabilities");
    pub(super) const SET_PRIVILEGE: Self = Self::new(0x06, 0x3b, "Set Session Privilege Level");
    pub(super) const CLOSE: Self = Self::new(0x06, 0x3c, "Close Session");
    pub(super) const DEVICE_ID: Self = Self::new(0x06, 0x01, "Get Device ID");
    pub(super) const SYSTEM_GUID: Self = Self::new(0x06, 0x37, "Get System GUID");
    pub(super) const ACTIVATE: Self = Self::new(0x06, 0x48, "Activate Payload");
    pub(super) const DEACTIVATE: Self = Self::new(0x06, 0x49, "Deactivate Payload");
    pub(super) const INSTANCE: Self = Self::new(0x06, 0x4b, "Get Payload Instance Info");
    pub(super) const CHASSIS_STATUS: Self = Self::new(0x00, 0x01, "Get Chassis Status");
    pub(super) const CHASSIS_CONTROL: Self = Self::new(0x00, 0x02, "Chassis Control");
    pub(super) const SET_BOOT: Self = Self::new(0x00, 0x08, "Set System Boot Options");
    pub(super) const GET_BOOT: Self = Self::new(0x00, 0x09, "Get System Boot Options");
    pub(super) const SEL_INFO: Self = Self::new(0x0a, 0x40, "Get SEL Info");
    pub(super) const SEL_ENTRY: Self = Self::new(0x0a, 0x43, "Get SEL Entry");
    pub(super) const SEL_TIME: Self = Self::new(0x0a, 0x48, "Get SEL Time");
    pub(super) const FRU_AREA: Self = Self::new(0x0a, 0x10, "Get FRU Inventory Area Info");
    pub(super) const FRU_READ: Self = Self::new(0x0a, 0x11, "Read FRU Data");

    const fn new(function: u8, number: u8, name: &'static str) -> Self {
        Self { function, number, name }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    function: u8,
    number: u8,
    sequence: u8,
    /// The completion code (table 5-2).
    pub(super) code: u8,
    /// What follows it.
    pub(super) data: Vec<u8>,
}

/// Makes the sum of all bytes and of this one zero (13.8).
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte))
}

/// A request. Of `sequence` six bits count.
pub(super) fn request(command: Command, sequence: u8, data: &[u8]) -> Vec<u8> {
    let to = [BMC, command.function << 2];
    let mut body = vec![CONSOLE, sequence << 2, command.number];
    body.extend_from_slice(data);
    let sum = checksum(&body);
    [&to, [checksum(&to)].as_slice(), &body, &[sum]].concat()
}

/// Reads an answer; absent: it is none, or damaged.
pub(super) fn answer(bytes: &[u8]) -> Option<Answer> {
    let (to, body) = (bytes.get(..3)?, bytes.get(3..)?);
    if checksum(to) != 0 || checksum(body) != 0 {
        return None;
    }
    let [address, function, _] = *to else { return None };
    let [_, sequence, number, code, data @ .., _] = body else { return None };
    // An answer's network function is the request's, plus one (5.1).
    let ours = address == CONSOLE && function & 0b100 != 0;
    ours.then(|| Answer {
        function: (function >> 2) & !1,
        number: *number,
        sequence: *sequence >> 2,
        code: *code,
        data: data.to_vec(),
    })
}

impl Answer {
    /// Whether it answers this request.
    pub(super) const fn is_to(&self, command: Command, sequence: u8) -> bool {
        self.is_of(command) && self.sequence == sequence & 0x3f
    }

    /// Whether it answers a request of that kind.
    pub(super) const fn is_of(&self, command: Command) -> bool {
        self.function == command.function && self.number == command.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_of_the_specification() {
        // As `ipmitool -vvv` sends it: Get Channel Authentication Capabilities of this channel, for an administrator.
        let made = request(Command::CAPABILITIES, 0, &[0x8e, 0x04]);
        assert_eq!(made, [0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5]);
    }

    #[test]
    fn a_damaged_answer_is_none() {
        let whole = [0x81, 0x1c, 0x63, 0x20, 0x00, 0x3b, 0x00, 0x03, 0xa2];
        let read = answer(&whole).unwrap();
        assert!(read.is_to(Command::SET_PRIVILEGE, 0) && read.is_to(Command::SET_PRIVILEGE, 64));
        assert!(!read.is_to(Command::SET_PRIVILEGE, 1) && !read.is_to(Command::CLOSE, 0));
        assert_eq!((read.code, read.data.as_slice()), (0, [0x03].as_slice()));
        for at in 0..whole.len() {
            let mut damaged = whole;
            damaged[at] ^= 0x10;
            assert_eq!(answer(&damaged), None, "{at}");
            assert_eq!(answer(&whole[..at]), None, "{at}");
        }
    }
}
