//! Random numbers: of sessions, and for AES.

use ring::rand::{SecureRandom as _, SystemRandom};

/// Random bytes.
///
/// # Panics
/// The kernel has none: nothing may go on then.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("random bytes of the kernel");
    bytes
}
