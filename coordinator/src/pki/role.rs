//! Roles in certificates: one URI, `landfall://machine/<uid>/<name>` or `landfall://operator/<name>/<role>`. An operator's
//! without a role, as the first release made them, is an admin's. `landfall://stand-in/<name>/<role>` is of a coordinator that asks another
//! one in an operator's name.

use jiff::Timestamp;
use landfall_api::Role;
use rustls_pki_types::CertificateDer;
use uuid::Uuid;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, parse_x509_certificate};

use super::{PkiError, issue};
use crate::tls::{MachineCert, OperatorCert, Peer};

const MACHINE: &str = "landfall://machine/";
const OPERATOR: &str = "landfall://operator/";
/// A coordinator that asks another one in an operator's name.
const STAND_IN: &str = "landfall://stand-in/";

/// A certificate of our own CA without a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the client's certificate {0}")]
pub struct RoleError(&'static str);

/// Whether a name can stand in a certificate.
pub fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    !name.is_empty() && name.len() <= 253 && name.chars().all(fits)
}

fn checked(name: &str) -> Result<&str, PkiError> {
    if is_name(name) { Ok(name) } else { Err(PkiError::Name(name.to_owned())) }
}

pub(super) fn machine_uri(uid: Uuid, name: &str) -> Result<String, PkiError> {
    Ok(format!("{MACHINE}{uid}/{}", checked(name)?))
}

pub(super) fn operator_uri(name: &str, role: Role) -> Result<String, PkiError> {
    Ok(format!("{OPERATOR}{}/{role}", checked(name)?))
}

pub(super) fn stand_in_uri(name: &str, role: Role) -> Result<String, PkiError> {
    Ok(format!("{STAND_IN}{}/{role}", checked(name)?))
}

/// Who a certificate names. The certificate must already be verified against the CA.
///
/// # Errors `RoleError` if it has no name, or more than one.
pub fn peer_of(certificate: &CertificateDer<'_>) -> Result<Peer, RoleError> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| RoleError("does not parse"))?;
    let names = parsed.subject_alternative_name().map_err(|_| RoleError("has several lists of names"))?;
    let mut uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let (Some(uri), None) = (uris.next(), uris.next()) else {
        return Err(RoleError("does not carry exactly one role"));
    };
    let (begins, not_after) = dates(&parsed)?;
    let operator = uri.strip_prefix(OPERATOR).map(|rest| (rest, false));
    if let Some((rest, stands_in)) = operator.or_else(|| Some((uri.strip_prefix(STAND_IN)?, true))) {
        let (name, role) = match rest.split_once('/') {
            None if stands_in => return Err(RoleError("carries no role")),
            None => (rest, Role::Admin),
            Some((name, role)) => (name, role.parse().map_err(|_| RoleError("carries an unknown role"))?),
        };
        let made = begins.checked_add(issue::EARLY).map_err(|_| RoleError("has impossible dates"))?;
        return Ok(Peer::Operator(OperatorCert { name: name.to_owned(), role, made, not_after, stands_in }));
    }
    let machine = uri.strip_prefix(MACHINE).and_then(|rest| rest.split_once('/'));
    let (uid, name) = machine.ok_or(RoleError("carries an unknown role"))?;
    Ok(Peer::Machine(MachineCert {
        name: name.to_owned(),
        uid: uid.parse().map_err(|_| RoleError("carries a role without a uid"))?,
        serial_hex: hex::encode(parsed.raw_serial()),
        key_fingerprint: issue::spki_fingerprint(parsed.public_key().raw),
        not_after,
    }))
}

fn dates(parsed: &X509Certificate<'_>) -> Result<(Timestamp, Timestamp), RoleError> {
    let at = |seconds: i64| Timestamp::from_second(seconds).map_err(|_| RoleError("has impossible dates"));
    Ok((at(parsed.validity().not_before.timestamp())?, at(parsed.validity().not_after.timestamp())?))
}
