//! The TPM, and what is its own for ever: the endorsement key (EK).
//!
//! Its digest is what other programs print too: `tpm2_createek -G rsa -u ek.pem -f pem` and `openssl pkey -pubin -outform DER`, or the
//! public key of the certificate that the TPM's vendor stored in it. The certificate is asked first: a discrete TPM takes up to half a
//! minute to make the key anew. Commands and numbers: TPM 2.0 Library, part 3; "TCG EK Credential Profile for TPM Family 2.0", 2.2.1.4
//! (handles) and B.3.3 (template L-1).

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use landfall_api::{Digest, TpmFacts};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::RSAPublicKey;

use super::read;

/// The kernel's resource manager: what is made through it is gone when the file is closed.
pub(super) const DEVICE: &str = "/dev/tpmrm0";
/// Where the certificate of the RSA 2048 key is stored.
const CERTIFICATE: u32 = 0x01c0_0002;
/// No certificate is longer, bytes: vendors' have 1 to 1.5 KiB.
const MAX_CERTIFICATE: u16 = 4096;
/// Bytes read at once: every TPM's buffer is that large.
const CHUNK: u16 = 512;
/// No answer is longer, bytes (`TPM_PT_MAX_RESPONSE_SIZE` is 4096 on PCs).
const MAX_ANSWER: usize = 4096;

const TPM_RH_ENDORSEMENT: u32 = 0x4000_000b;
const NO_SESSIONS: u16 = 0x8001;
const SESSIONS: u16 = 0x8002;
const CREATE_PRIMARY: u32 = 0x0131;
const NV_READ: u32 = 0x014e;
const NV_READ_PUBLIC: u32 = 0x0169;
/// One authorisation: an empty password (`TPM_RS_PW`, no nonce, no attributes), behind its length.
const EMPTY_PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0];
/// The policy of template L-1: the secret of the endorsement hierarchy opens the key.
const POLICY: [u8; 32] = [
    0x83, 0x71, 0x97, 0x67, 0x44, 0x84, 0xb3, 0xf8, 0x1a, 0x90, 0xcc, 0x8d, 0x46, 0xa5, 0xd7, 0x24, 0xfd, 0x52, 0xd7,
    0x6e, 0x06, 0x52, 0x0b, 0x64, 0xf2, 0xa1, 0xda, 0x1b, 0x33, 0x14, 0x69, 0xaa,
];
/// Bytes of its modulus.
const MODULUS: u16 = 256;

/// What the kernel says of this TPM.
pub(super) fn facts(device: &Path) -> Option<TpmFacts> {
    let version = read(&device.join("tpm_version_major")).parse().ok()?;
    Some(TpmFacts { version, description: read(&device.join("device/description")), endorsement_key: None })
}

/// The digest of this machine's endorsement key; `None`, with a line in the log, where there is none. Blocking, for up to half a minute.
pub(super) fn endorsement_key() -> Option<Digest> {
    let device = File::options().read(true).write(true).open(DEVICE);
    let device = device.inspect_err(|e| tracing::debug!("{DEVICE}: {e}")).ok()?;
    digest(device).inspect_err(|e| tracing::warn!("the TPM's endorsement key stays unknown: {DEVICE}: {e}")).ok()
}

fn digest(mut tpm: impl Read + Write) -> io::Result<Digest> {
    let info = match certificate(&mut tpm).and_then(|certificate| key_of(&certificate)) {
        Ok(info) => info,
        Err(e) => {
            tracing::debug!("the TPM has no certificate of its endorsement key: {e}");
            made(&mut tpm)?
        }
    };
    Ok(Digest::from_sha256(Sha256::digest(info).into()))
}

/// The stored certificate.
fn certificate(tpm: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    let public = call(tpm, NO_SESSIONS, NV_READ_PUBLIC, &CERTIFICATE.to_be_bytes())?;
    // The size of the whole, index, algorithm, attributes, policy, size of the data.
    let mut rest = Fields(&public);
    rest.take(2 + 4 + 2 + 4)?;
    rest.sized()?;
    let size = rest.u16()?.min(MAX_CERTIFICATE);
    let mut whole = Vec::new();
    for offset in (0..size).step_by(CHUNK.into()) {
        let length = CHUNK.min(size - offset);
        let mut body = [CERTIFICATE.to_be_bytes(), CERTIFICATE.to_be_bytes()].concat();
        body.extend(EMPTY_PASSWORD);
        body.extend([length.to_be_bytes(), offset.to_be_bytes()].concat());
        let answer = call(tpm, SESSIONS, NV_READ, &body)?;
        let mut rest = Fields(&answer);
        rest.take(4)?;
        whole.extend(rest.sized()?);
    }
    Ok(whole)
}

/// The key that a certificate is of. Some vendors' name another algorithm for it (RSAES-OAEP), so it is written anew.
fn key_of(certificate: &[u8]) -> io::Result<Vec<u8>> {
    let invalid = |what: &str| io::Error::other(format!("the stored certificate is invalid: {what}"));
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| invalid(&e.to_string()))?;
    let bits = &parsed.public_key().subject_public_key.data;
    let (_, key) = RSAPublicKey::from_der(bits).map_err(|e| invalid(&format!("its key is not RSA: {e}")))?;
    Ok(rsa_key(key.modulus, key.exponent))
}

/// The key that the TPM makes from its own seed: the same each time.
fn made(tpm: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    let mut template = Vec::new();
    // RSA; SHA-256; fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt.
    template.extend([0, 0x01, 0, 0x0b, 0, 0x03, 0, 0xb2]);
    template.extend([0, 32]);
    template.extend(POLICY);
    // AES 128 in CFB; no scheme; 2048 bits; the default exponent; a modulus of zeros.
    template.extend([0, 0x06, 0, 0x80, 0, 0x43, 0, 0x10, 0x08, 0, 0, 0, 0, 0]);
    template.extend(MODULUS.to_be_bytes());
    template.extend([0; MODULUS as usize]);
    let mut body = TPM_RH_ENDORSEMENT.to_be_bytes().to_vec();
    body.extend(EMPTY_PASSWORD);
    // No secret and no data of the caller's.
    body.extend([0, 4, 0, 0, 0, 0]);
    body.extend((u16::try_from(template.len()).unwrap_or(u16::MAX)).to_be_bytes());
    body.extend(template);
    // No data from outside, no PCRs.
    body.extend([0; 2 + 4]);
    let answer = call(tpm, SESSIONS, CREATE_PRIMARY, &body)?;
    // Its handle, the parameters' size, the public part's size, then the template again.
    let mut rest = Fields(&answer);
    rest.take(4 + 4 + 2 + 8)?;
    rest.sized()?;
    rest.take(14 - 4)?;
    let exponent = rest.u32()?;
    let modulus = rest.sized()?;
    let exponent = if exponent == 0 { 0x0001_0001 } else { exponent };
    Ok(rsa_key(modulus, &exponent.to_be_bytes()))
}

/// One command and its answer without the header, once the TPM says that it succeeded.
fn call(tpm: &mut (impl Read + Write), tag: u16, code: u32, body: &[u8]) -> io::Result<Vec<u8>> {
    let size = u32::try_from(10 + body.len()).unwrap_or(u32::MAX);
    let command = [&tag.to_be_bytes()[..], &size.to_be_bytes(), &code.to_be_bytes(), body].concat();
    // The kernel takes a command in one call, and gives its answer in one.
    tpm.write_all(&command)?;
    let mut answer = vec![0; MAX_ANSWER];
    let (mut got, mut wanted) = (0, 10);
    while got < wanted {
        let n = match tpm.read(&mut answer[got..]) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        got += n;
        if got >= 10 {
            let mut header = Fields(&answer[2..10]);
            wanted = header.u32()? as usize;
            let status = header.u32()?;
            if status != 0 {
                return Err(io::Error::other(format!("command {code:#x}: the TPM answered {status:#x}")));
            }
            if !(10..=MAX_ANSWER).contains(&wanted) {
                return Err(io::Error::other(format!("command {code:#x}: an answer of {wanted} bytes")));
            }
        }
    }
    answer.truncate(wanted);
    Ok(answer.split_off(10))
}

/// What is left of an answer.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> io::Result<u16> {
        Ok(self.take(2)?.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(self.take(4)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Bytes behind their length.
    fn sized(&mut self) -> io::Result<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

/// A SubjectPublicKeyInfo in DER (RFC 5280, 4.1; RFC 3279, 2.3.1).
fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    // rsaEncryption, 1.2.840.113549.1.1.1, and NULL.
    const ALGORITHM: [u8; 13] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let key = der(0x30, &[integer(modulus), integer(exponent)].concat());
    // No unused bits.
    let bits = der(0x03, &[&[0], &key[..]].concat());
    der(0x30, &[der(0x30, &ALGORITHM), bits].concat())
}

/// A positive number: no zero in front but where the first bit would make it negative.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let sign: &[u8] = if digits.first().is_none_or(|first| first & 0x80 != 0) { &[0] } else { &[] };
    der(0x02, &[sign, digits].concat())
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut whole = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => whole.push(short),
        _ => {
            whole.push(0x80 | u8::try_from(digits.len()).unwrap_or(u8::MAX));
            whole.extend(digits);
        }
    }
    whole.extend(content);
    whole
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// swtpm, an implementation of another's, with a socket in place of the kernel's device.
    struct Tpm(Child);

    impl Drop for Tpm {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).unwrap();
        }
    }

    fn swtpm(state: &Path, flags: &str) -> (Tpm, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // It serves one connection, which it inherits, but not as one of the first three descriptors.
        let tpm = Command::new("sh")
            .args(["-c", "exec swtpm socket --tpm2 --fd 3 --flags $0 --tpmstate dir=$1 3<&0 </dev/null", flags])
            .arg(state)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        (Tpm(tpm), ours)
    }

    fn run(program: &str, arguments: &[&str]) -> Vec<u8> {
        let done = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
        assert!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    }

    #[test]
    fn the_certificate_and_the_key_have_one_digest() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for (name, text) in [
            (
                "setup.conf",
                format!("create_certs_tool=/usr/bin/swtpm_localca\ncreate_certs_tool_config={}\n", at("ca.conf")),
            ),
            (
                "ca.conf",
                format!("statedir={0}\nsigningkey={0}/key.pem\nissuercert={0}/ca.pem\ncertserial={0}/serial\n", at("")),
            ),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        std::fs::create_dir(at("certificates")).unwrap();
        run(
            "swtpm_setup",
            &[
                "--tpm2",
                "--tpm-state",
                &at(""),
                "--config",
                &at("setup.conf"),
                "--create-ek-cert",
                "--write-ek-cert-files",
                &at("certificates"),
            ],
        );
        let certificate = at("certificates/ek-rsa2048.crt");
        let public = run("openssl", &["x509", "-inform", "DER", "-in", &certificate, "-noout", "-pubkey"]);
        std::fs::write(at("public.pem"), public).unwrap();
        let key = run("openssl", &["pkey", "-pubin", "-in", &at("public.pem"), "-outform", "DER"]);
        let wanted = Digest::from_sha256(Sha256::digest(&key).into());

        let (_tpm, mut stream) = swtpm(dir.path(), "not-need-init,startup-clear");
        assert_eq!(super::certificate(&mut stream).unwrap(), std::fs::read(certificate).unwrap());
        assert_eq!(made(&mut stream).unwrap(), key, "what the TPM makes without a certificate");
        assert_eq!(digest(stream).unwrap(), wanted);
    }

    #[test]
    fn a_tpm_that_refuses_or_ends_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        // Not started up: it refuses every command.
        let (tpm, mut stream) = swtpm(dir.path(), "not-need-init");
        let error = digest(&mut stream).unwrap_err().to_string();
        assert!(error.contains("the TPM answered 0x100"), "{error}");
        drop(tpm);
        assert!(digest(stream).is_err());
        for answer in [[0; 10], [0x80, 1, 0, 0, 0xff, 0, 0, 0, 0, 0], [0x80, 1, 0, 0, 0, 12, 0, 0, 0, 0]] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&answer).unwrap();
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(digest(ours).is_err(), "{answer:?}");
        }
    }
}
