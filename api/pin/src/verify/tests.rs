//! The pinned verifier against chains of every wrong kind.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, PublicKeyData as _,
    date_time_ymd,
};

use super::*;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pin: Pin,
}

/// A CA. All have the same name, as a second coordinator's would.
fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Landfall CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let pin = pin_of_spki(&key.subject_public_key_info());
    Authority { issuer: Issuer::new(params, key), certificate, pin }
}

/// A server certificate good through 2020.
fn leaf(by: &Authority, name: &str, usage: ExtendedKeyUsagePurpose) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    params.extended_key_usages = vec![usage];
    params.signed_by(&KeyPair::generate().unwrap(), &by.issuer).unwrap().der().clone()
}

fn at(year: u64) -> UnixTime {
    // The middle of the year, near enough.
    UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_556_952 + 15_000_000))
}

fn verify(
    pins: &[Pin], validity: Validity, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>], now: UnixTime,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = PinnedVerifier { pins: pins.to_vec(), validity, provider };
    // Whatever was dialled does not matter.
    let dialled = ServerName::try_from("192.0.2.1").unwrap();
    verifier.verify_server_cert(leaf, chain, &dialled, &[], now).map(drop)
}

fn mismatch(result: Result<(), rustls::Error>) -> PinMismatch {
    match result {
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(other))) => {
            other.0.downcast_ref::<PinMismatch>().unwrap().clone()
        }
        other => panic!("{other:?}"),
    }
}

fn server(by: &Authority) -> CertificateDer<'static> {
    leaf(by, SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth)
}

#[test]
fn a_pinned_ca_is_trusted_for_the_fixed_name_only() {
    let (ours, next) = (authority(), authority());
    let chain = [ours.certificate.clone()];
    assert_eq!(verify(&[ours.pin], Validity::Now, &server(&ours), &chain, at(2020)), Ok(()));
    // Several pins, for rotation, in any order.
    assert_eq!(verify(&[next.pin, ours.pin], Validity::Now, &server(&ours), &chain, at(2020)), Ok(()));
    let elsewhere = leaf(&ours, "evil.example", ExtendedKeyUsagePurpose::ServerAuth);
    let said = verify(&[ours.pin], Validity::Now, &elsewhere, &chain, at(2020));
    assert_eq!(said, Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForName)));
}

#[test]
fn a_ca_that_is_not_pinned_is_named() {
    let (ours, theirs) = (authority(), authority());
    let said =
        verify(&[ours.pin], Validity::Now, &server(&theirs), std::slice::from_ref(&theirs.certificate), at(2020));
    assert_eq!(mismatch(said), PinMismatch { shown: vec![theirs.pin] });
}

#[test]
fn the_right_ca_beside_a_foreign_leaf_is_refused() {
    let (ours, theirs) = (authority(), authority());
    for validity in [Validity::Now, Validity::AnyTime] {
        for chain in [
            vec![ours.certificate.clone()],
            vec![ours.certificate.clone(), theirs.certificate.clone()],
            vec![theirs.certificate.clone(), ours.certificate.clone()],
        ] {
            let said = verify(&[ours.pin], validity, &server(&theirs), &chain, at(2020));
            assert!(matches!(said, Err(rustls::Error::InvalidCertificate(_))), "{said:?}");
        }
    }
}

#[test]
fn a_chain_without_a_ca_is_refused() {
    let ours = authority();
    let said = verify(&[ours.pin], Validity::AnyTime, &server(&ours), &[], at(2020));
    assert_eq!(mismatch(said), PinMismatch { shown: vec![] });
    // A pinned key in a certificate that is no CA's counts for nothing.
    let key = KeyPair::generate().unwrap();
    let plain = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let pin = pin_of_spki(&key.subject_public_key_info());
    let said = verify(&[pin], Validity::AnyTime, plain.der(), &[plain.der().clone()], at(2020));
    assert_eq!(mismatch(said), PinMismatch { shown: vec![] });
}

#[test]
fn dates_count_in_a_session_and_not_for_enroll() {
    let ours = authority();
    let chain = [ours.certificate.clone()];
    for (now, why) in [(at(1971), CertificateError::NotValidYet), (at(2030), CertificateError::Expired)] {
        assert_eq!(verify(&[ours.pin], Validity::AnyTime, &server(&ours), &chain, now), Ok(()));
        let said = verify(&[ours.pin], Validity::Now, &server(&ours), &chain, now);
        assert_eq!(said, Err(rustls::Error::InvalidCertificate(why)));
    }
}

#[test]
fn a_clients_certificate_is_no_servers() {
    let ours = authority();
    let client = leaf(&ours, SERVER_NAME, ExtendedKeyUsagePurpose::ClientAuth);
    let said = verify(&[ours.pin], Validity::AnyTime, &client, std::slice::from_ref(&ours.certificate), at(2020));
    assert!(matches!(said, Err(rustls::Error::InvalidCertificate(_))), "{said:?}");
}

/// As rustls hands errors on: inside an `io::Error`, whose `source()` skips what it wraps.
#[test]
fn a_pin_mismatch_behind_an_io_error_names_the_ca() {
    let theirs = authority();
    let shown = std::slice::from_ref(&theirs.certificate);
    let refused = verify(&[pin_of_spki(b"ours")], Validity::Now, &server(&theirs), shown, at(2020)).unwrap_err();
    let error = std::io::Error::other(std::io::Error::other(refused));
    let found = rustls_error(&error).and_then(PinMismatch::of).unwrap();
    assert_eq!(found.to_string(), format!("the server's CA is not the one that is pinned; it shows {}", theirs.pin));
    assert_eq!(format!("{found:?}"), found.to_string());
}
