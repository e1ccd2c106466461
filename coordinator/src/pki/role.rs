//! Roles in certificates: one URI, `landfall://machine/<uid>/<name>` or `landfall://operator/<name>`.

use rustls_pki_types::CertificateDer;
use uuid::Uuid;
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

use super::PkiError;
use crate::tls::{MachineCert, Peer};

const MACHINE: &str = "landfall://machine/";
const OPERATOR: &str = "landfall://operator/";

/// A certificate of our own CA that names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the client's certificate {0}")]
pub struct RoleError(&'static str);

fn checked(name: &str) -> Result<&str, PkiError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    if !name.is_empty() && name.len() <= 253 && name.chars().all(fits) {
        Ok(name)
    } else {
        Err(PkiError::Name(name.to_owned()))
    }
}

pub(super) fn machine_uri(uid: Uuid, name: &str) -> Result<String, PkiError> {
    Ok(format!("{MACHINE}{uid}/{}", checked(name)?))
}

pub(super) fn operator_uri(name: &str) -> Result<String, PkiError> {
    Ok(format!("{OPERATOR}{}", checked(name)?))
}

/// Who a certificate names. The certificate must already be verified against the CA.
///
/// # Errors
/// `RoleError` if it names nobody, or more than one.
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
    if let Some(name) = uri.strip_prefix(OPERATOR) {
        return Ok(Peer::Operator { name: name.to_owned() });
    }
    let machine = uri.strip_prefix(MACHINE).and_then(|rest| rest.split_once('/'));
    let (uid, name) = machine.ok_or(RoleError("carries an unknown role"))?;
    Ok(Peer::Machine(MachineCert {
        name: name.to_owned(),
        uid: uid.parse().map_err(|_| RoleError("carries a role without a uid"))?,
        serial_hex: hex::encode(parsed.raw_serial()),
    }))
}
