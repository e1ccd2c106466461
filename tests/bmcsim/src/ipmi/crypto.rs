//! HMAC, and AES in CBC (13.28, 13.29).

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use ring::hmac;

/// The HMAC of a suite over some bytes.
pub(super) fn sign(suite: u8, key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let algorithm = if suite == 17 { hmac::HMAC_SHA256 } else { hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY };
    hmac::sign(&hmac::Key::new(algorithm, key), bytes).as_ref().to_vec()
}

/// The same, as short as in RAKP 4 and behind packets.
pub(super) fn sign_short(suite: u8, key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut code = sign(suite, key, bytes);
    code.truncate(short(suite));
    code
}

pub(super) const fn short(suite: u8) -> usize {
    if suite == 17 { 16 } else { 12 }
}

/// A vector that differs from packet to packet is enough for tests.
pub(super) fn encrypt(key: &[u8], sequence: u32, plain: &[u8]) -> Vec<u8> {
    let cipher = Aes128::new_from_slice(&key[..16]).expect("a key of 16 bytes");
    let mut text = plain.to_vec();
    let mut padding = 0;
    while !(text.len() + 1).is_multiple_of(16) {
        padding += 1;
        text.push(padding);
    }
    text.push(padding);
    let mut before = [0xa5; 16];
    before[..4].copy_from_slice(&sequence.to_le_bytes());
    let mut out = before.to_vec();
    for chunk in text.chunks(16) {
        let mut block = [0; 16];
        for at in 0..16 {
            block[at] = chunk[at] ^ before[at];
        }
        cipher.encrypt_block((&mut block).into());
        out.extend(block);
        before = block;
    }
    out
}

/// Absent: it has no whole blocks, or the padding is not 1, 2, 3 …
pub(super) fn decrypt(key: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < 32 || !bytes.len().is_multiple_of(16) {
        return None;
    }
    let cipher = Aes128::new_from_slice(&key[..16]).expect("a key of 16 bytes");
    let mut out = Vec::new();
    for at in (16..bytes.len()).step_by(16) {
        let mut block: [u8; 16] = bytes[at..at + 16].try_into().expect("16 bytes");
        cipher.decrypt_block((&mut block).into());
        out.extend((0..16).map(|n| block[n] ^ bytes[at - 16 + n]));
    }
    let padding = out.pop()?;
    for expected in (1..=padding).rev() {
        if out.pop()? != expected {
            return None;
        }
    }
    Some(out)
}
