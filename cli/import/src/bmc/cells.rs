//! What one cell says: text in, a value or a sentence out.

use std::net::{Ipv4Addr, Ipv6Addr};

use landfall_api::{BmcAddress, BootWay, Digest, MacAddr, Management};
use uuid::Uuid;

/// What is wrong with a cell, and what to do.
pub(super) type Fault = (String, String);

fn fault<T>(message: impl Into<String>, hint: &str) -> Result<T, Fault> {
    Err((message.into(), hint.to_owned()))
}

/// Of an error whose text has both.
fn parted<T>(error: &impl ToString) -> Result<T, Fault> {
    let text = error.to_string();
    let (message, hint) = text.split_once("; ").unwrap_or((&text, ""));
    fault(message, hint)
}

/// A BMC's address. Without a scheme, or with that of a browser or of Metal3, it is one of Redfish over HTTPS.
pub(super) fn address(cell: &str) -> Result<BmcAddress, Fault> {
    // Wherever it stands, so that an odd password is not repeated either.
    if cell.contains('@') {
        let hint = "apply a Secret with them, and name it in the column credentials";
        return fault("the address has a user's name or a password", hint);
    }
    let whole = match cell.split_once("://") {
        None if cell.parse::<Ipv6Addr>().is_ok() => format!("redfish+https://[{cell}]"),
        None => format!("redfish+https://{cell}"),
        Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
            "https" | "redfish" => format!("redfish+https://{rest}"),
            other => format!("{other}://{rest}"),
        },
    };
    whole.parse().or_else(|error: landfall_api::BmcAddressError| {
        let text = error.to_string();
        // What is repeated is what the file has.
        let hint = text.rsplit_once("\" is not the address of a BMC: ").map_or("", |(_, hint)| hint);
        fault(format!("\"{cell}\" is not the address of a BMC"), hint)
    })
}

/// A certificate's SHA-256: as documents have it, or as `openssl x509 -fingerprint -sha256` prints it.
pub(super) fn certificate(cell: &str) -> Result<Digest, Fault> {
    let plain = cell.to_ascii_lowercase();
    let digits = plain.rsplit_once('=').map_or(plain.as_str(), |(_, digits)| digits);
    let digits: String = digits.trim().trim_start_matches("sha256:").chars().filter(|c| *c != ':').collect();
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (digits.len(), Digest::from_hex(&digits)) {
        (64, Ok(digest)) => Ok(digest),
        (40, _) if is_hex => fault(
            format!("\"{cell}\" is the SHA-1 of a certificate, which proves nothing"),
            "write its SHA-256: openssl x509 -fingerprint -sha256",
        ),
        _ => fault(
            format!("\"{cell}\" is not the SHA-256 of a certificate"),
            "write sha256: and 64 hexadecimal digits, or what openssl x509 -fingerprint -sha256 prints",
        ),
    }
}

/// What stands between spaces, commas or semicolons.
fn parts(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';')).filter(|part| !part.is_empty())
}

/// Addresses of ports.
pub(super) fn macs(cell: &str) -> Result<Vec<MacAddr>, Fault> {
    parts(cell).map(|part| part.parse().or_else(|error| parted::<MacAddr>(&error))).collect()
}

/// Ways to start a machine, in any case of their letters.
pub(super) fn ways(cell: &str) -> Result<Vec<BootWay>, Fault> {
    let named = |part: &str| BootWay::ALL.into_iter().find(|way| way.as_str().eq_ignore_ascii_case(part));
    let all = BootWay::ALL.map(BootWay::as_str).join(", ");
    let read = |part| {
        named(part).map_or_else(
            || fault(format!("\"{part}\" is no way to start a machine"), &format!("the ways are {all}")),
            Ok,
        )
    };
    parts(cell).map(read).collect()
}

/// A UUID in any usual spelling.
pub(super) fn uuid(cell: &str) -> Result<Uuid, Fault> {
    let hint = "write the SMBIOS UUID that the firmware's setup or dmidecode shows, or leave the cell empty";
    Uuid::parse_str(cell).or_else(|_| fault(format!("\"{cell}\" is not a UUID"), hint))
}

/// An address for a port.
pub(super) fn ip(cell: &str) -> Result<Ipv4Addr, Fault> {
    cell.parse().or_else(|_| fault(format!("\"{cell}\" is not an IPv4 address"), "write one such as 192.0.2.20"))
}

/// Who installs the machine.
pub(super) fn management(cell: &str) -> Result<Management, Fault> {
    match cell.to_ascii_lowercase().as_str() {
        "managed" => Ok(Management::Managed),
        "external" => Ok(Management::External),
        _ => fault(
            format!("\"{cell}\" is neither managed nor external"),
            "write managed, or external for a machine that is only watched",
        ),
    }
}

/// Yes or no, in the words of spreadsheets.
pub(super) fn truth(cell: &str) -> Result<bool, Fault> {
    match cell.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => fault(format!("\"{cell}\" is neither true nor false"), "write true or false"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_one_of_redfish() {
        for (cell, address) in [
            ("192.0.2.7", "redfish+https://192.0.2.7"),
            ("[2001:db8::7]", "redfish+https://[2001:db8::7]"),
            ("[2001:db8::7]:8443", "redfish+https://[2001:db8::7]:8443"),
            ("2001:db8::7", "redfish+https://[2001:db8::7]"),
            ("bmc-1.example:8443", "redfish+https://bmc-1.example:8443"),
            ("192.0.2.7/redfish/v1/Systems/1", "redfish+https://192.0.2.7/redfish/v1/Systems/1"),
            ("HTTPS://BMC-1/", "redfish+https://bmc-1"),
            ("redfish://192.0.2.7/redfish/v1/Systems/1", "redfish+https://192.0.2.7/redfish/v1/Systems/1"),
            ("redfish+http://192.0.2.7:8000", "redfish+http://192.0.2.7:8000"),
            ("IPMI://192.0.2.7", "ipmi://192.0.2.7"),
        ] {
            assert_eq!(super::address(cell).map(|address| address.to_string()), Ok(address.to_owned()), "{cell}");
        }
    }

    #[test]
    fn no_part_of_a_bad_cell_is_guessed() {
        let said = |result: Result<(), Fault>| result.map_err(|(message, hint)| format!("{message}; {hint}"));
        for cell in [
            "https://root:hunter2@192.0.2.7/", "root:hunter2@192.0.2.7", "https://root:a/hunter2@h",
            "ftp://root:hunter2@h",
        ] {
            let error = said(address(cell).map(drop)).unwrap_err();
            assert!(error.contains("name it in the column credentials") && !error.contains("hunter2"), "{error}");
        }
        for (error, part) in [
            (
                said(address("http://192.0.2.7").map(drop)),
                "\"http://192.0.2.7\" is not the address of a BMC; write redfish+",
            ),
            (
                said(address("192.0.2.7:x").map(drop)),
                "\"192.0.2.7:x\" is not the address of a BMC; write redfish+https://",
            ),
            (said(address("idrac-redfish://h").map(drop)), "write redfish+https://HOST"),
            (said(address("h/?a").map(drop)), "the path may have no spaces, queries and fragments"),
            (said(certificate(&"AB:".repeat(20)).map(drop)), "is the SHA-1 of a certificate"),
            (said(certificate("sha512:00").map(drop)), "is not the SHA-256 of a certificate; write sha256:"),
            (said(certificate(&"ab".repeat(64)).map(drop)), "is not the SHA-256 of a certificate"),
            (said(macs("52:54:00:12:34:56 x").map(drop)), "\"x\" is not a MAC address; write six octets"),
            (said(uuid("1").map(drop)), "\"1\" is not a UUID; write the SMBIOS UUID"),
            (said(ways("pxeOnce, usb").map(drop)), "\"usb\" is no way to start a machine; the ways are pxeOnce, pxe"),
            (said(ip("2001:db8::7").map(drop)), "is not an IPv4 address"),
            (said(management("on").map(drop)), "is neither managed nor external"),
            (said(truth("x").map(drop)), "is neither true nor false"),
        ] {
            let error = error.unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn a_certificate_is_read_in_each_spelling() {
        let digest = Digest::from_hex(&"ab".repeat(32));
        let colons = ["AB"; 32].join(":");
        for cell in [
            format!("sha256:{}", "ab".repeat(32)),
            format!("SHA256:{}", "AB".repeat(32)),
            "ab".repeat(32),
            colons.clone(),
            format!("sha256 Fingerprint={colons}"),
            format!("SHA256 Fingerprint = {colons}"),
            format!("sha256:{colons}"),
        ] {
            assert_eq!(certificate(&cell).ok(), digest.clone().ok(), "{cell}");
        }
    }

    #[test]
    fn ports_stand_between_spaces_commas_or_semicolons() {
        let said = macs(" 52:54:00:12:34:56;52-54-00-12-34-57, 52:54:00:12:34:58").unwrap();
        assert_eq!(said.len(), 3);
        assert_eq!(macs(" "), Ok(Vec::new()));
    }
}
