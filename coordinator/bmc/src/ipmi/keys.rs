//! What is proved while a session is set up, and the keys that come of it (13.20 to 13.32). Pure.

use super::suite::Suite;

/// "Look the user up by the name alone" (13.20). It is a part of what is signed: OpenBMC refuses a login without it.
pub(super) const BY_NAME: u8 = 0x10;

/// What both sides know after RAKP 2.
#[derive(Clone)]
pub(super) struct Exchange<'a> {
    pub(super) suite: Suite,
    /// The session's id at the console (SIDm), and at the BMC (SIDc).
    pub(super) console: u32,
    pub(super) bmc: u32,
    /// The random numbers of both (Rm, Rc).
    pub(super) console_random: [u8; 16],
    pub(super) bmc_random: [u8; 16],
    /// The BMC's GUID.
    pub(super) guid: [u8; 16],
    /// The whole byte of RAKP 1 (ROLEm).
    pub(super) role: u8,
    pub(super) username: &'a [u8],
    /// The user's key (Kuid): the password. HMAC fills it up with zeros as the BMC does.
    pub(super) password: &'a [u8],
}

/// A session's keys.
pub(super) struct Keys {
    /// Of the codes behind packets (K1).
    pub(super) integrity: Vec<u8>,
    /// Of AES: the first 16 bytes of K2 (13.29).
    pub(super) encryption: [u8; 16],
}

impl Exchange<'_> {
    fn name(&self) -> [u8; 2] {
        [self.role, u8::try_from(self.username.len()).unwrap_or(u8::MAX)]
    }

    /// Whether the BMC knows the user's key: the code of RAKP 2. A wrong password shows here.
    pub(super) fn bmc_is_right(&self, code: &[u8]) -> bool {
        let (console, bmc, name) = (self.console.to_le_bytes(), self.bmc.to_le_bytes(), self.name());
        let parts: [&[u8]; 7] =
            [&console, &bmc, &self.console_random, &self.bmc_random, &self.guid, &name, self.username];
        self.suite.verifies(self.password, &parts, self.suite.whole(), code)
    }

    /// The code of RAKP 3.
    pub(super) fn proof(&self) -> Vec<u8> {
        let (console, name) = (self.console.to_le_bytes(), self.name());
        self.suite.sign(self.password, &[&self.bmc_random, &console, &name, self.username])
    }

    /// The session's own key (SIK). A BMC key (Kg) would take the password's place here alone.
    fn session_key(&self) -> Vec<u8> {
        self.suite.sign(self.password, &[&self.console_random, &self.bmc_random, &self.name(), self.username])
    }

    /// The session's keys, if the code of RAKP 4 is right.
    pub(super) fn keys(&self, code: &[u8]) -> Option<Keys> {
        let key = self.session_key();
        let bmc = self.bmc.to_le_bytes();
        if !self.suite.verifies(&key, &[&self.console_random, &bmc, &self.guid], self.suite.cut(), code) {
            return None;
        }
        // Constants of 20 bytes with SHA-256 too (13.32; ipmitool's lanplus_crypt.c).
        let derived = |constant: u8| self.suite.sign(&key, &[&[constant; 20]]);
        Some(Keys { integrity: derived(0x01), encryption: *derived(0x02).first_chunk()? })
    }
}
