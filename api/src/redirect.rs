//! How a DHCP server names coordinators: the options that RFC 8572 (8.1 and 8.2) made for the addresses of bootstrap servers.

/// The option's code.
pub const SZTP_REDIRECT: u8 = 143;
/// The code of its twin in DHCPv6.
pub const SZTP_REDIRECT_V6: u16 = 136;
/// Addresses of one value that are read: a server must not fill the list of what is tried.
const MOST: usize = 8;
/// An option of DHCPv4 holds no more bytes.
const MOST_BYTES: usize = 255;

/// The option's value with these addresses, as many as are read and fit; empty where none does.
pub fn redirect_to(urls: &[impl AsRef<str>]) -> Vec<u8> {
    let mut value = Vec::new();
    for url in urls.iter().take(MOST).map(AsRef::as_ref) {
        if let Ok(length) = u16::try_from(url.len())
            && value.len() + 2 + url.len() <= MOST_BYTES
        {
            value.extend(length.to_be_bytes());
            value.extend(url.as_bytes());
        }
    }
    value
}

/// The addresses in a value, as they stand there; what is empty, or holds anything but printable ASCII, is left out. Besides the RFC's form,
/// each behind its length in two bytes, the value may be one address and nothing else: what a person writes for a server that does not
/// know the option.
pub fn redirected(value: &[u8]) -> Vec<String> {
    let text = |bytes: &[u8]| {
        let text = str::from_utf8(bytes).ok()?.trim_matches(['\0', ' ']);
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain.then(|| text.to_owned())
    };
    // The first byte of a length is zero: no option is longer.
    if value.first().is_some_and(|first| *first != 0) {
        return text(value).into_iter().collect();
    }
    let (mut found, mut rest) = (Vec::new(), value);
    while let [high, low, after @ ..] = rest
        && let Some((url, next)) = after.split_at_checked(u16::from_be_bytes([*high, *low]).into())
        && found.len() < MOST
    {
        found.extend(text(url));
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_both_forms() {
        let (one, two) = ("https://10.77.0.1:7443", "https://boot.example");
        let both = redirect_to(&[one, two]);
        for (value, wanted) in [
            (redirect_to(&[one]), vec![one]),
            (redirect_to(&["x".repeat(254).as_str(), one]), vec![one]),
            (both.clone(), vec![one, two]),
            (one.as_bytes().to_vec(), vec![one]),
            (format!("{one}\0").into_bytes(), vec![one]),
            // Cut in the second.
            (both[..both.len() - 1].to_vec(), vec![one]),
            (vec![0], vec![]),
            (vec![], vec![]),
            ([0, 0].repeat(100), vec![]),
            ([&both[..]; 5].concat(), [one, two].repeat(4)),
            (b"10.77.0.1:7443".to_vec(), vec!["10.77.0.1:7443"]),
            // What a console would obey, or take for a line of the agent's own.
            (b"https://x\nfingerprint".to_vec(), vec![]),
            (redirect_to(&["https://x\x1b[2J"]), vec![]),
        ] {
            assert_eq!(redirected(&value), wanted, "{value:?}");
        }
        assert_eq!(redirect_to(&["x".repeat(254)]), [0; 0]);
    }
}
