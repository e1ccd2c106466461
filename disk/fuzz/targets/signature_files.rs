//! Signatures and keys of minisign and OpenPGP.
//!
//! Input: which of the real keys the signature is held against (0: the input brings its own, behind its length of 2
//! bytes), the signature's file.
#![no_main]

use landfall_disk::DetachedSignature;
use landfall_disk_fuzz::Input;
use libfuzzer_sys::fuzz_target;

/// What all seeds are signatures of.
const SIGNED: &[u8] = b"landfall\n";
const KEYS: [&str; 4] = [
    include_str!("../keys/minisign.pub"),
    include_str!("../keys/ed25519.asc"),
    include_str!("../keys/rsa.asc"),
    include_str!("../keys/p256.asc"),
];

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let which = usize::from(input.u8()) % (KEYS.len() + 1);
    let ours = which.checked_sub(1).map(|which| KEYS[which]);
    let key = match ours {
        Some(key) => key,
        None => {
            let length = input.u16();
            let Ok(key) = std::str::from_utf8(input.take(length.into())) else { return };
            key
        }
    };
    let Ok(signature) = DetachedSignature::read(key, input.0) else { return };
    assert!(signature.description().chars().count() <= 300);
    for bytes in [SIGNED, b"something else"] {
        let whole = signature.check(bytes);
        assert!(ours.is_none() || bytes == SIGNED || whole.is_err(), "only the seeds' makers sign with these keys");
        let mut passing = signature.verifier();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        passing.update(first);
        passing.update(second);
        let passed = passing.finish();
        match signature.can_stream() {
            Ok(()) => assert_eq!(passed.is_ok(), whole.is_ok(), "{passed:?}, {whole:?}"),
            Err(_) => assert!(passed.is_err(), "what cannot pass by fails"),
        }
    }
});
