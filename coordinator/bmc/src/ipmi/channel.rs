//! One session's packets: encrypted, signed, numbered (13.28, 13.29). Pure.

use aes::Aes128;
use aes::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};

use super::keys::Keys;
use super::packet::{self, kind};
use super::suite::Suite;
use super::window::Window;

/// AES' block.
const BLOCK: usize = 16;

/// A session at both its ends.
pub(super) struct Channel {
    suite: Suite,
    keys: Keys,
    /// The session's id here and at the BMC.
    here: u32,
    there: u32,
    /// Of the newest packet sent.
    sent: u32,
    received: Window,
}

impl Channel {
    pub(super) fn new(suite: Suite, keys: Keys, here: u32, there: u32) -> Self {
        Self { suite, keys, here, there, sent: 0, received: Window::default() }
    }

    /// The session's id at the BMC.
    pub(super) const fn there(&self) -> u32 {
        self.there
    }

    /// A packet with that message, and with a number of its own: one that is sent again must not look like a copy.
    pub(super) fn seal(&mut self, message: &[u8], iv: [u8; BLOCK]) -> Vec<u8> {
        self.seal_as(kind::MESSAGE, message, iv)
    }

    /// The same with a payload of another type.
    pub(super) fn seal_as(&mut self, kind: u8, payload: &[u8], iv: [u8; BLOCK]) -> Vec<u8> {
        self.sent = self.sent.checked_add(1).unwrap_or(1);
        let mut packet = packet::sealed(kind, self.there, self.sent, &encrypt(&self.keys.encryption, iv, payload));
        let mut code = self.suite.sign(&self.keys.integrity, &[packet::signed(&packet)]);
        code.truncate(self.suite.cut());
        packet.extend(code);
        packet
    }

    /// The message of a packet; absent: it has none, or [`Channel::open_any`] says no.
    pub(super) fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.open_any(bytes).filter(|(kind, _)| *kind == kind::MESSAGE).map(|(_, message)| message)
    }

    /// The type and the payload of a packet; absent: it is not of this session, not the BMC's, damaged, or came before.
    pub(super) fn open_any(&mut self, bytes: &[u8]) -> Option<(u8, Vec<u8>)> {
        let packet = packet::packet(bytes, self.suite.cut())?;
        let is_ours = packet.session == self.here
            && self.suite.verifies(&self.keys.integrity, &[packet.signed], self.suite.cut(), packet.code)
            && self.received.take(packet.sequence);
        if !is_ours {
            return None;
        }
        Some((packet.kind, decrypt(&self.keys.encryption, packet.payload)?))
    }
}

/// The vector, then the message with 1, 2, 3 … and the length of that up to a whole block (13.29).
fn encrypt(key: &[u8; BLOCK], iv: [u8; BLOCK], message: &[u8]) -> Vec<u8> {
    let padding = (BLOCK - (message.len() + 1) % BLOCK) % BLOCK;
    let mut bytes = message.to_vec();
    bytes.extend((1..=padding).chain([padding]).map(|byte| byte as u8));
    let mut cipher = cbc::Encryptor::<Aes128>::new(key.into(), &iv.into());
    for block in bytes.as_chunks_mut::<BLOCK>().0 {
        cipher.encrypt_block(block.into());
    }
    [iv.as_slice(), &bytes].concat()
}

/// The reverse; absent: it is no such text.
fn decrypt(key: &[u8; BLOCK], bytes: &[u8]) -> Option<Vec<u8>> {
    let (iv, text) = bytes.split_first_chunk::<BLOCK>()?;
    let mut text = text.to_vec();
    let (blocks, rest) = text.as_chunks_mut::<BLOCK>();
    if !rest.is_empty() {
        return None;
    }
    let mut cipher = cbc::Decryptor::<Aes128>::new(key.into(), iv.into());
    for block in blocks {
        cipher.decrypt_block(block.into());
    }
    let padding = usize::from(text.pop()?);
    // The code vouches for it: what the padding consists of does not matter, and some BMCs write zeros.
    text.truncate(text.len().checked_sub(padding).filter(|_| padding < BLOCK)?);
    Some(text)
}
