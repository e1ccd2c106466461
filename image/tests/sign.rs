//! Signatures that another program proves: sbverify, which the firmware's own rules were written down in.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use landfall_image::sign::{SignError, SigningKey, sign};
use landfall_image::uki;

const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

fn run(directory: &Path, program: &str, arguments: &str) -> Output {
    Command::new(program).args(arguments.split(' ')).current_dir(directory).output().unwrap()
}

/// Makes a key with its certificate.
fn key(directory: &Path, name: &str, kind: &str) {
    let made = format!("req -x509 -newkey {kind} -nodes -subj /CN={name} -days 30 -keyout {name}.key -out {name}.pem");
    let made = run(directory, "openssl", &made);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn sbverify_proves_a_signed_uki_and_no_altered_one() {
    let have = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !have("sbverify") || !Path::new(STUB).exists() {
        eprintln!("SKIPPED: needs sbsigntool and systemd-boot-efi");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for (name, kind) in [("one", "rsa:2048"), ("two", "rsa:3072")] {
        key(at, name, kind);
    }
    let read = |name: &str| fs::read(at.join(name)).unwrap();
    let signer = |key: &str, certificate: &str| SigningKey::new(&read(key), &read(certificate));
    let stub = fs::read(STUB).unwrap();
    // A length that is no multiple of eight.
    let build = || {
        uki::build(&uki::Parts {
            stub: &stub,
            // Any program: it is not started here.
            kernel: &stub,
            initramfs: &[9; 3],
            command_line: "quiet",
            os_release: "ID=landfall\n",
        })
        .unwrap()
    };
    assert_eq!(build(), build(), "same input, same bytes");
    let has = |words: &[u8]| build().windows(words.len()).any(|at| at == words);
    assert!(has(b".sbat\0") && has(b"sbat,1,"), "the stub's section for revocation by generation");
    let program = [build(), vec![1; 5]].concat();
    let signed = sign(&program, &signer("one.key", "one.pem").unwrap()).unwrap();
    assert_eq!(signed, sign(&program, &signer("one.key", "one.pem").unwrap()).unwrap(), "same input, same bytes");
    let verifies = |program: &[u8], certificate: &str| {
        fs::write(at.join("program.efi"), program).unwrap();
        run(at, "sbverify", &format!("--cert {certificate} program.efi")).status.success()
    };
    assert!(verifies(&signed, "one.pem") && !verifies(&signed, "two.pem") && !verifies(&program, "one.pem"));
    // sbsign agrees on what is signed.
    fs::write(at.join("unsigned.efi"), &program).unwrap();
    let theirs = run(at, "sbsign", "--key one.key --cert one.pem --output theirs.efi unsigned.efi");
    assert!(theirs.status.success(), "{}", String::from_utf8_lossy(&theirs.stderr));
    let of = |program: &[u8]| landfall_image::sign::digest(program).unwrap();
    assert_eq!((of(&read("theirs.efi")), of(&signed)), (of(&program), of(&program)));
    for at in [0, 0x200, 0x1000, program.len() - 1] {
        let mut altered = signed.clone();
        altered[at] ^= 1;
        assert!(!verifies(&altered, "one.pem"), "byte {at} was altered");
    }
    let twice = sign(&signed, &signer("two.key", "two.pem").unwrap()).unwrap();
    assert!(verifies(&twice, "one.pem") && verifies(&twice, "two.pem"), "one signature beside the other");
    assert!(matches!(signer("one.key", "two.pem"), Err(SignError::Mismatch)));
    assert!(matches!(signer("one.key", "one.key"), Err(SignError::Certificate(_))));
    assert!(matches!(signer("one.pem", "one.pem"), Err(SignError::Key(_))));
    key(at, "curve", "ec -pkeyopt ec_paramgen_curve:P-256");
    assert!(matches!(signer("curve.key", "curve.pem"), Err(SignError::Key(_))), "firmware knows RSA");
    let older = run(at, "openssl", "rsa -in one.key -traditional -out pkcs1.key");
    assert!(older.status.success() && signer("pkcs1.key", "one.pem").is_ok(), "PKCS #1 is read too");
    let der = run(at, "openssl", "x509 -in one.pem -outform DER -out one.der");
    assert!(der.status.success() && signer("one.key", "one.der").is_ok(), "and DER");
}
