//! The CA across starts, and what it refuses.

use std::{fs, net::IpAddr, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use landfall_api::Role;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use uuid::Uuid;

use super::{Pki, PkiError, peer_of};
use crate::tls::Peer;

const TTL: Duration = Duration::from_secs(3600);

fn open(dir: &Path) -> Result<Pki, PkiError> {
    Pki::open(dir, IpAddr::from([10, 77, 0, 1]), TTL)
}

fn request(key: &KeyPair) -> Vec<u8> {
    CertificateParams::new(vec!["liar.example".to_owned()]).unwrap().serialize_request(key).unwrap().der().to_vec()
}

#[test]
fn the_ca_is_made_once_and_kept_private() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    assert_eq!(open(dir.path()).unwrap().ca_pin(), first.ca_pin());
    let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o7777;
    for (path, expected) in [
        ("pki", 0o700),
        ("pki/ca.pem", 0o600),
        ("pki/ca.key", 0o600),
        ("admin", 0o700),
        ("admin/admin.pem", 0o600),
        ("admin/admin.key", 0o600),
        ("admin/ca.pem", 0o600),
    ] {
        assert_eq!(mode(path), expected, "{path}");
    }
}

#[test]
fn a_damaged_or_incomplete_ca_is_never_replaced() {
    type Spoil = fn(&Path);
    let cases: [(&str, &str, Spoil); 7] = [
        ("ca.key", "missing", |d| fs::remove_file(d.join("pki/ca.key")).unwrap()),
        ("ca.pem", "missing", |d| fs::remove_file(d.join("pki/ca.pem")).unwrap()),
        ("ca.key", "missing", |d| fs::remove_dir_all(d.join("pki")).unwrap()),
        ("ca.key", "damaged", |d| fs::write(d.join("pki/ca.key"), "x").unwrap()),
        ("ca.pem", "damaged", |d| fs::write(d.join("pki/ca.pem"), [0xff, 0]).unwrap()),
        ("ca.pem", "damaged", |d| {
            fs::copy(d.join("admin/admin.pem"), d.join("pki/ca.pem")).unwrap();
        }),
        ("ca.key", "chmod 600", |d| {
            fs::set_permissions(d.join("pki/ca.key"), fs::Permissions::from_mode(0o644)).unwrap();
        }),
    ];
    for (file, what, spoil) in cases {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        spoil(dir.path());
        let said = open(dir.path()).unwrap_err().to_string();
        assert!(said.contains(file) && said.contains(what), "{file} {what}: {said}");
    }
}

#[test]
fn a_key_of_another_ca_is_detected() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop((open(ours.path()).unwrap(), open(theirs.path()).unwrap()));
    fs::copy(theirs.path().join("pki/ca.key"), ours.path().join("pki/ca.key")).unwrap();
    assert!(open(ours.path()).unwrap_err().to_string().contains("not for the key"));
}

#[test]
fn a_first_start_cut_short_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("pki.new")).unwrap();
    fs::write(dir.path().join("pki.new/ca.key"), "half").unwrap();
    drop(open(dir.path()).unwrap());
    assert!(!dir.path().join("pki.new").exists());
}

#[test]
fn a_certificate_takes_only_the_key_from_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path()).unwrap();
    let key = KeyPair::generate().unwrap();
    let uid = Uuid::from_u128(7);
    let issued = pki.issue_machine(&request(&key), "node-1", uid).unwrap();
    assert_eq!(issued.key_fingerprint, pki.key_fingerprint(&request(&key)).unwrap());
    let leaf = CertificateDer::from(issued.chain_der[0].clone());
    let Ok(Peer::Machine(machine)) = peer_of(&leaf) else { panic!() };
    assert_eq!((machine.name.as_str(), machine.uid, &machine.serial_hex), ("node-1", uid, &issued.serial_hex));
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    assert_eq!(parsed.public_key().raw, key.subject_public_key_info());
    assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
    // 24 h early, and TTL from now.
    let validity = parsed.validity();
    let span = validity.not_after.timestamp() - validity.not_before.timestamp();
    assert_eq!(span, 24 * 3600 + 3600);
    assert_eq!(issued.chain_der[1], pki.ca_der().to_vec());
    assert_ne!(pki.issue_machine(&request(&key), "node-1", uid).unwrap().serial_hex, issued.serial_hex);
}

#[test]
fn bad_requests_and_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut forged = request(&key);
    *forged.last_mut().unwrap() ^= 1;
    let other = request(&KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap());
    for bad in [Vec::new(), b"x".to_vec(), vec![0; 1 << 20], forged, other] {
        assert!(matches!(pki.key_fingerprint(&bad), Err(PkiError::Request(_))));
    }
    for name in ["", "a/b", "a b", "ä"] {
        assert!(matches!(pki.issue_machine(&request(&key), name, Uuid::nil()), Err(PkiError::Name(_))), "{name}");
    }
}

#[test]
fn an_old_operator_certificate_is_renewed_for_its_key() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    let path = dir.path().join("admin/admin.pem");
    let read = || CertificateDer::from_pem_slice(&fs::read(&path).unwrap()).unwrap();
    let first = read();
    assert!(matches!(peer_of(&first), Ok(Peer::Operator(a)) if (a.name.as_str(), a.role) == ("admin", Role::Admin)));
    drop(open(dir.path()).unwrap());
    assert_eq!(read(), first);
    // An hour is far less than half a year.
    let ca = super::ca::Ca::open(dir.path()).unwrap();
    let key = KeyPair::from_pem(&fs::read_to_string(dir.path().join("admin/admin.key")).unwrap()).unwrap();
    let role = super::role::operator_uri("admin", Role::Viewer).unwrap();
    let short = super::issue::Template::client("admin", role);
    let aged = ca.issue(&key, short, std::time::SystemTime::now(), TTL).unwrap();
    fs::write(&path, &aged.pem).unwrap();
    drop(open(dir.path()).unwrap());
    let renewed = read();
    assert_ne!(renewed, aged.der);
    let (_, parsed) = x509_parser::parse_x509_certificate(&renewed).unwrap();
    assert_eq!(parsed.public_key().raw, key.subject_public_key_info());
}
