//! Files of checksums and signatures as proofs, with signatures made by gpg and minisign themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::fetch::{Lines, RUN};
use crate::common::server::serve_content;
use crate::common::{digest, noise};
use landfall_api::{ErrorCode, IndexSpec, SecretText, SumsSpec};
use landfall_disk::{
    Authorization, DetachedSignature, Image, Proof, Resolved, Signature, WriteError, image_at, resolve_proof,
};
use tempfile::TempDir;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}, of scripts/setup: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A keyring of gpg's, with everything it makes in one folder.
struct Gpg(TempDir);

impl Drop for Gpg {
    fn drop(&mut self) {
        // An agent that is left ends by itself when its folder is gone.
        let _ = Command::new("gpgconf").arg("--homedir").arg(self.0.path()).args(["--kill", "all"]).output();
    }
}

impl Gpg {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("gpg");
        command.arg("--homedir").arg(self.0.path()).args(["--batch", "--yes", "--pinentry-mode", "loopback"]);
        run(command.args(["--passphrase", "", "--trust-model", "always"]).args(arguments))
    }
    /// A new key's fingerprint.
    fn key(&self, name: &str, algorithm: &str, usage: &str, options: &[&str]) -> String {
        self.run(&[options, &["--quick-gen-key", name, algorithm, usage, "never"]].concat());
        let listed = self.run(&["--with-colons", "--list-keys", &format!("={name}")]);
        listed.lines().find(|line| line.starts_with("fpr")).unwrap().split(':').nth(9).unwrap().to_owned()
    }
    fn public(&self, key: &str) -> String {
        self.run(&["--armor", "--export", key])
    }
    fn sign(&self, key: &str, data: &[u8], options: &[&str]) -> Vec<u8> {
        let (file, out) = (self.0.path().join("data"), self.0.path().join("data.sig"));
        std::fs::write(&file, data).unwrap();
        let (file, out_name) = (file.display().to_string(), out.display().to_string());
        self.run(&[options, &["-u", key, "--output", &out_name, "--detach-sign", &file]].concat());
        std::fs::read(out).unwrap()
    }
}

fn streamed(signature: &DetachedSignature, data: &[u8]) -> Result<(), String> {
    let mut verifier = signature.verifier();
    data.chunks(70_001).for_each(|chunk| verifier.update(chunk));
    verifier.finish()
}

fn judge(key: &str, signature: &[u8], data: &[u8]) -> Result<(), String> {
    DetachedSignature::read(key, signature)?.check(data)
}

#[test]
fn gpgs_signatures_hold_for_their_own_bytes_and_no_others() {
    let gpg = Gpg::new();
    let data = noise(300_000, 3);
    let mut altered = data.clone();
    altered[200_000] ^= 1;
    let other = gpg.public(&gpg.key("other", "rsa2048", "sign", &[]));
    for algorithm in ["rsa3072", "ed25519", "nistp256"] {
        let key = gpg.key(algorithm, algorithm, "sign", &[]);
        let public = gpg.public(&key);
        for options in [&["--armor"][..], &[], &["--digest-algo", "SHA256"]] {
            let bytes = gpg.sign(&key, &data, options);
            let signature = DetachedSignature::read(&public, &bytes).unwrap();
            assert_eq!(signature.check(&data), Ok(()), "{algorithm} {options:?}");
            assert!(signature.check(&altered).is_err() && signature.check(&data[1..]).is_err(), "{algorithm}");
            assert_eq!(signature.can_stream().is_ok(), algorithm != "nistp256");
            assert_eq!(streamed(&signature, &data).is_ok(), algorithm != "nistp256", "{algorithm}");
            assert!(streamed(&signature, &altered).is_err(), "{algorithm}");
            assert!(signature.description().contains(&key));
            assert!(judge(&other, &bytes, &data).unwrap_err().contains("with another key than the stated one"));
            assert_eq!(judge(&format!("{other}\n{public}"), &bytes, &data), Ok(()), "two keys are given");
            // Not one flipped bit of it may be missed, and none may make it panic. Armour hides some.
            if !options.contains(&"--armor") {
                for at in (0..bytes.len()).step_by(7) {
                    let mut flipped = bytes.clone();
                    flipped[at] ^= 0x10;
                    // What is not hashed may change: the issuer's id is a hint.
                    let unharmed = judge(&public, &flipped, &data).is_ok();
                    assert!(!unharmed || hint(&bytes).contains(&at), "{algorithm}: octet {at}");
                }
            }
        }
        // gpg itself does not make one that is shorter than the curve.
        if algorithm != "nistp256" {
            let old = gpg.sign(&key, &data, &["--digest-algo", "SHA1", "--allow-weak-digest-algos"]);
            assert!(judge(&public, &old, &data).unwrap_err().contains("SHA-1"));
        }
        let text = gpg.sign(&key, b"text\n", &["--textmode"]);
        assert!(judge(&public, &text, b"text\n").unwrap_err().contains("binary"), "a text's signature");
    }
}

/// Where the subpackets that are not hashed lie: header of 2 or 3 octets, then 6, the hashed ones, and 2.
fn hint(bytes: &[u8]) -> std::ops::Range<usize> {
    let body = if bytes[0] & 3 == 0 { 2 } else { 3 };
    let hashed = usize::from(u16::from_be_bytes([bytes[body + 4], bytes[body + 5]]));
    let at = body + 6 + hashed;
    at..at + 2 + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

#[test]
fn a_revoked_or_non_signing_subkey_does_not_count() {
    let (gpg, data) = (Gpg::new(), noise(1000, 4));
    let key = gpg.key("with subkeys", "ed25519", "cert", &[]);
    gpg.run(&["--quick-add-key", &key, "rsa2048", "sign", "never"]);
    gpg.run(&["--quick-add-key", &key, "cv25519", "encr", "never"]);
    let signature = gpg.sign(&key, &data, &[]);
    let public = gpg.public(&key);
    assert_eq!(judge(&public, &signature, &data), Ok(()));
    let mut commands = Command::new("gpg");
    commands.arg("--homedir").arg(gpg.0.path()).args(["--batch", "--yes", "--pinentry-mode", "loopback"]);
    commands.args(["--passphrase", "", "--command-fd", "0", "--no-tty", "--edit-key", &key]);
    let mut child = commands.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"key 1\nrevkey\ny\n0\n\ny\nsave\n").unwrap();
    assert!(child.wait().unwrap().success());
    let why = judge(&gpg.public(&key), &signature, &data).unwrap_err();
    assert!(why.contains("subkey that made it has been revoked"), "{why}");
}

#[test]
fn expired_revoked_and_non_signing_keys_do_not_count() {
    let (gpg, data) = (Gpg::new(), noise(1000, 4));
    let then = ["--faked-system-time", "20200101T000000!"];
    gpg.run(&[&then[..], &["--quick-gen-key", "old", "ed25519", "sign", "30d"]].concat());
    let signature = gpg.sign("old", &data, &then);
    assert!(judge(&gpg.public("old"), &signature, &data).unwrap_err().contains("expired"));

    let short = gpg.key("short", "ed25519", "sign", &then);
    let signature = gpg.sign(&short, &data, &[&then[..], &["--default-sig-expire", "10d"]].concat());
    assert!(judge(&gpg.public(&short), &signature, &data).unwrap_err().contains("signature has expired"));

    let key = gpg.key("revoked", "ed25519", "sign", &[]);
    let signature = gpg.sign(&key, &data, &[]);
    assert_eq!(judge(&gpg.public(&key), &signature, &data), Ok(()));
    let certificate = gpg.0.path().join(format!("openpgp-revocs.d/{key}.rev"));
    let text = std::fs::read_to_string(&certificate).unwrap().replace(":-----BEGIN", "-----BEGIN");
    // Appended to the key as it is published, behind a subkey of a kind that cannot sign.
    gpg.run(&["--quick-add-key", &key, "cv25519", "encr", "never"]);
    let appended = format!("{}\n{text}", gpg.public(&key));
    assert!(judge(&appended, &signature, &data).unwrap_err().contains("revoked"));
    std::fs::write(&certificate, text).unwrap();
    gpg.run(&["--import", &certificate.display().to_string()]);
    assert!(judge(&gpg.public(&key), &signature, &data).unwrap_err().contains("revoked"));

    let public = gpg.public(&gpg.key("damaged", "rsa2048", "sign", &[]));
    for bad in [&public[..public.len() / 2], "", "RWQ", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!\n"] {
        assert!(judge(bad, &signature, &data).is_err(), "{bad}");
    }
}

/// A pair of minisign's: secret key's file and public key.
fn minisign_pair(folder: &Path, name: &str) -> (PathBuf, String) {
    let (secret, public) = (folder.join(format!("{name}.key")), folder.join(format!("{name}.pub")));
    run(Command::new("minisign").args(["-G", "-W", "-f", "-s"]).arg(&secret).arg("-p").arg(&public));
    (secret, std::fs::read_to_string(public).unwrap())
}

fn minisign(secret: &Path, data: &[u8], way: &str) -> Vec<u8> {
    let (file, out) = (secret.with_extension("data"), secret.with_extension("minisig"));
    std::fs::write(&file, data).unwrap();
    let mut command = Command::new("minisign");
    command.args([way, "-t", "built on monday", "-m"]).arg(&file).arg("-x").arg(&out).arg("-s").arg(secret);
    run(&mut command);
    std::fs::read(out).unwrap()
}

#[test]
fn minisigns_signatures_hold_for_their_own_bytes_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let data = noise(300_000, 3);
    let (secret, public) = minisign_pair(folder.path(), "a");
    let (_, other) = minisign_pair(folder.path(), "b");
    let bytes = minisign(&secret, &data, "-SH");
    let line = public.lines().find(|line| line.starts_with("RW")).unwrap();
    for key in [public.as_str(), line] {
        let signature = DetachedSignature::read(key, &bytes).unwrap();
        assert_eq!((signature.check(&data), streamed(&signature, &data)), (Ok(()), Ok(())));
        assert!(signature.check(&data[1..]).is_err() && streamed(&signature, &data[1..]).is_err());
        assert!(signature.description().contains("built on monday"));
    }
    assert!(judge(&other, &bytes, &data).unwrap_err().contains("another key"));
    let forged = String::from_utf8(bytes).unwrap().replace("monday", "sunday");
    assert!(judge(&public, forged.as_bytes(), &data).is_err(), "the comment is signed too");
    let old = minisign(&secret, &data, "-Sl");
    assert_eq!(judge(&public, &old, &data), Ok(()));
    assert!(DetachedSignature::read(&public, &old).unwrap().can_stream().unwrap_err().contains("-H"));
}

/// An image called `disk.img` with a file of checksums, both in one folder.
fn image_with_sums(folder: &Path, sums: &[u8], signature: Option<Signature>) -> Image {
    std::fs::write(folder.join("SUMS"), sums).unwrap();
    let proof = Proof::Sums(SumsSpec { url: format!("file:{}", folder.join("SUMS").display()), signature });
    image_at("https://unasked.invalid/images/disk.img?token=x", proof)
}

#[test]
fn an_unsigned_checksum_file_gives_the_digest_and_a_warning() {
    let (folder, lines) = (tempfile::tempdir().unwrap(), Lines::default());
    let content = digest(b"image");
    let sums = format!("{}  other.img\n{}  disk.img\n", "0".repeat(64), hex::encode(content.as_bytes()));
    let image = image_with_sums(folder.path(), sums.as_bytes(), None);
    let resolved = resolve_proof(&image, &lines, &RUN).unwrap();
    assert!(matches!(resolved, Resolved::Stored(found) if found == content), "{resolved:?}");
    assert!(lines.text().contains("not signed"));
    assert!(!lines.text().contains("token=x"));
    let image = image_with_sums(folder.path(), format!("{}  other.img\n", "0".repeat(64)).as_bytes(), None);
    let error = resolve_proof(&image, &lines, &RUN).unwrap_err();
    assert!(error.code() == ErrorCode::BadFormat && error.to_string().contains("it lists other.img"), "{error}");
    let image = image_with_sums(folder.path(), &vec![b'#'; (1 << 20) + 1], None);
    assert!(resolve_proof(&image, &lines, &RUN).unwrap_err().to_string().contains("larger than"));
}

#[test]
fn a_signed_checksum_file_counts_only_unaltered() {
    let folder = tempfile::tempdir().unwrap();
    let sums = format!("{}  disk.img\n", hex::encode(digest(b"image").as_bytes()));
    let gpg = Gpg::new();
    let key = gpg.key("sums", "rsa2048", "sign", &[]);
    let (secret, public) = minisign_pair(folder.path(), "a");
    let made = [
        (gpg.public(&key), gpg.public(&gpg.key("other", "ed25519", "sign", &[])), gpg.sign(&key, sums.as_bytes(), &[])),
        (public, minisign_pair(folder.path(), "b").1, minisign(&secret, sums.as_bytes(), "-SH")),
    ];
    for (public, other, bytes) in made {
        let (file, lines) = (folder.path().join("SUMS.sig"), Lines::default());
        std::fs::write(&file, bytes).unwrap();
        let stated = |key: &str| Some(Signature { url: format!("file:{}", file.display()), key: key.to_owned() });
        let image = image_with_sums(folder.path(), sums.as_bytes(), stated(&public));
        let resolved = resolve_proof(&image, &lines, &RUN).unwrap();
        assert!(matches!(resolved, Resolved::Stored(found) if found == digest(b"image")));
        assert!(lines.text().contains("is valid"));
        for (sums, key) in [(sums.replace("disk", "disc"), &public), (sums.clone(), &other)] {
            let image = image_with_sums(folder.path(), sums.as_bytes(), stated(key));
            let error = resolve_proof(&image, &lines, &RUN).unwrap_err();
            assert!(matches!(error, WriteError::BadSignature { .. }), "{error}");
            assert!(!error.retryable());
        }
    }
}

#[test]
fn an_index_needs_its_digest_and_never_gets_foreign_credentials() {
    let url = serve_content(b"index".to_vec(), "", |head| assert!(!head.contains("authorization"), "{head}"));
    let proof = Proof::Index(IndexSpec { url, digest: digest(b"index") });
    let mut image = image_at("https://unasked.invalid/disk.img", proof);
    image.access.authorization = Some(Authorization::Bearer(SecretText::new("geheim")));
    let resolved = resolve_proof(&image, &Lines::default(), &RUN).unwrap();
    assert!(matches!(resolved, Resolved::Index { bytes, .. } if bytes == b"index"));
    if let Proof::Index(IndexSpec { digest: stated, .. }) = &mut image.proof {
        *stated = digest(b"another");
    }
    assert_eq!(resolve_proof(&image, &Lines::default(), &RUN).unwrap_err().code(), ErrorCode::DigestMismatch);
}
