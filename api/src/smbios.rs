//! Meaningless SMBIOS values: placeholders that firmware ships on many machines.
//!
//! Two machines with the same placeholder must never be confused, so the lists below are generous: dropping a real
//! serial number costs nothing (MAC addresses also identify the machine), keeping a placeholder confuses machines. The
//! agent omits placeholders from its reports, and the coordinator removes them again: an agent may be old or hostile.

use uuid::Uuid;

/// UUIDs that firmware ships on many machines.
const FILLER_UUIDS: &[&str] = &[
    // AMI's Aptio default, on boards of many makers (ASRock, Gigabyte, Supermicro, …); NetBox, MAAS and fwupd all meet it.
    "03000200-0400-0500-0006-000700080009",
    // The same default with the byte order of the first three fields the other way round (SMBIOS before 2.6).
    "00020003-0004-0005-0006-000700080009",
    // Found on whitebox boards with unset DMI (systemd's `id128` refuses nothing here; MAAS keeps this list).
    "01020304-0506-0708-090a-0b0c0d0e0f10", "12345678-1234-5678-90ab-cddeefaabbcc",
    "12345678-1234-1234-1234-123456789abc",
    // fwupd's list of unusable machine ids: Sunxi and generic test values.
    "4c4c4544-0000-2010-8020-80c04f202020", "fefefefe-fefe-fefe-fefe-fefefefefefe",
];

/// Meaningless serial numbers, manufacturers and products; compared without case, blanks and points at the end.
const FILLER_TEXTS: &[&str] = &[
    // AMI and Phoenix templates.
    "to be filled by o.e.m", "to be filled by oem", "default string", "system serial number", "system manufacturer",
    "system product name", "system version", "chassis serial number", "base board serial number", "o.e.m", "oem",
    // The SMBIOS specification's own words for an absent string (DSP0134 6.1.3), as dmidecode prints them.
    "not specified", "not applicable", "not available", "not present", "not settable", "none", "null", "n/a", "na",
    "unknown", "invalid", "empty", "undefined", "uninitialized", "default", "serial", "sernum", "ssn",
    // Counting.
    "0123456789", "123456789", "1234567890", "01234567890123456789", "012345678", "12345678", "123456",
    "0123456789abcdef", // QEMU, without a stated value.
    "pc system serial number",
];

/// A UUID that identifies this machine, or `None`.
pub fn smbios_uuid(raw: &str) -> Option<Uuid> {
    let uuid: Uuid = raw.trim().parse().ok()?;
    let bytes = uuid.as_bytes();
    // All bytes alike (all 0, all F, all 1, …) is unset flash or a lazy default.
    let uniform = bytes.iter().all(|b| b == &bytes[0]);
    let filler = FILLER_UUIDS.contains(&uuid.to_string().as_str());
    (!uniform && !filler).then_some(uuid)
}

/// A text that identifies this machine, or an empty one.
pub fn smbios_text(raw: &str) -> String {
    let trimmed = raw.trim();
    let plain = trimmed.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    let mut characters = plain.chars().filter(|c| !matches!(c, ' ' | '-' | '.' | '_' | '*'));
    let first = characters.next();
    // "00000000", "xxxxxxxx", "........": one character again and again.
    let uniform = first.is_none_or(|first| characters.all(|c| c == first)) && plain.len() != 1;
    if uniform || FILLER_TEXTS.contains(&plain.as_str()) { String::new() } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{smbios_text as text, smbios_uuid as uuid};

    #[test]
    fn fillers_are_dropped_and_real_values_kept() {
        for filler in [
            "", "0", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009", "11111111-1111-1111-1111-111111111111",
        ] {
            assert_eq!(uuid(filler), None, "{filler}");
        }
        let real = "4c4c4544-0050-3410-8051-b4c04f4d3532";
        assert_eq!(uuid(&format!("{}\n", real.to_uppercase())).unwrap().to_string(), real);

        for filler in [
            "To be filled by O.E.M.", "Default string", "Not Specified", "None", "0123456789", "00000000",
            "xxxxxxxxxx", "........", "  ", "System Serial Number",
        ] {
            assert_eq!(text(filler), "", "{filler}");
        }
        for real in ["S3ABC123", "5CG1234XYZ", "VMware-56 4d 1a", "1001"] {
            assert_eq!(text(&format!(" {real}\n")), real);
        }
    }
}
