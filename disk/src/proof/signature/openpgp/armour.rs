//! ASCII armour, RFC 9580 section 6.2. Its checksum is not looked at: the signature is one.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The bytes within all armour of this kind; what does not look like text is taken as it is.
///
/// # Errors
/// A clause after "the file …".
pub(super) fn strip(bytes: &[u8], kind: &str) -> Result<Vec<u8>, String> {
    // The first octet of a packet has its highest bit set; no text has.
    if bytes.first().is_some_and(|first| *first >= 0x80) {
        return Ok(bytes.to_vec());
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "is neither OpenPGP packets nor armour")?;
    let (begin, end) = (format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----"));
    let mut lines = text.lines().map(str::trim_end);
    let mut out = Vec::new();
    while lines.by_ref().any(|line| line == begin) {
        let mut encoded = String::new();
        let mut ended = false;
        // Headers end with an empty line.
        let mut body = lines.by_ref().skip_while(|line| !line.is_empty());
        for line in body.by_ref() {
            if line == end {
                ended = true;
                break;
            }
            if !line.starts_with('=') {
                encoded.push_str(line);
            }
        }
        if !ended {
            return Err(format!("is cut: {end} is missing"));
        }
        out.extend(STANDARD.decode(&encoded).map_err(|error| format!("has damaged armour: {error}"))?);
    }
    if out.is_empty() { Err(format!("holds no {begin}")) } else { Ok(out) }
}
