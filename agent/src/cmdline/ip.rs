//! The kernel's `ip=` (Documentation/admin-guide/nfs/nfsroot.rst), as dracut and iPXE scripts write it too:
//! `ip=CLIENT:SERVER:GATEWAY:NETMASK:HOST:DEVICE:AUTOCONF:DNS:DNS`. An IPv6 address stands in brackets.

use std::net::IpAddr;

use ipnet::{IpNet, ip_mask_to_prefix};
use landfall_api::{MacAddr, NetworkInterface, PortRef};

/// The interface of a fixed address; `None` if the word asks for DHCP, which every other port uses anyway.
///
/// # Errors
/// A sentence that says what is wrong.
pub(super) fn parse(value: &str, boot_port: Option<MacAddr>) -> Result<Option<NetworkInterface>, String> {
    let fields = fields(value);
    let field = |at: usize| fields.get(at).map(String::as_str).unwrap_or_default();
    // `ip=dhcp`, and dracut's `ip=DEVICE:dhcp`.
    if fields.len() < 3 {
        return Ok(None);
    }
    let client = field(0);
    if client.is_empty() {
        return Ok(None);
    }
    let address: IpAddr = client.parse().map_err(|_| format!("\"{client}\" is not an address"))?;
    let prefix = prefix(field(3), address)?;
    let ip = |text: &str| text.parse::<IpAddr>().map_err(|_| format!("\"{text}\" is not an address"));
    let some = |text: &str| if text.is_empty() { Ok(None) } else { ip(text).map(Some) };
    let port = match (field(5), boot_port) {
        ("", Some(mac)) => PortRef::Mac(mac),
        ("", None) => {
            return Err("it names no device, and there is no BOOTIF; write the device's name in its sixth field".into());
        }
        (name, _) => name
            .replace('-', ":")
            .parse::<MacAddr>()
            .map_or_else(|_| name.parse(), |mac| Ok(PortRef::Mac(mac)))
            .map_err(|e| e.to_string())?,
    };
    let interface = NetworkInterface {
        ports: vec![port],
        addresses: vec![IpNet::new(address, prefix).map_err(|e| e.to_string())?],
        gateways: some(field(2))?.into_iter().collect(),
        nameservers: [some(field(7))?, some(field(8))?].into_iter().flatten().collect(),
        ..NetworkInterface::default()
    };
    interface.check().map_err(|e| e.to_string())?;
    Ok(Some(interface))
}

/// Split at colons outside of brackets; the brackets are dropped.
fn fields(value: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut inside = false;
    for c in value.chars() {
        match (c, inside, fields.last_mut()) {
            ('[', false, _) => inside = true,
            (']', true, _) => inside = false,
            (':', false, _) => fields.push(String::new()),
            (c, _, Some(field)) => field.push(c),
            _ => {}
        }
    }
    fields
}

/// A mask such as 255.255.255.0, or a prefix length.
fn prefix(text: &str, address: IpAddr) -> Result<u8, String> {
    let from_mask =
        |mask: IpAddr| (mask.is_ipv4() == address.is_ipv4()).then(|| ip_mask_to_prefix(mask).ok()).flatten();
    let found = text.parse().ok().or_else(|| text.parse().ok().and_then(from_mask));
    found.ok_or_else(|| format!("\"{text}\" is not a netmask; write such as 255.255.255.0 or 24 in its fourth field"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_words_are_understood() {
        let boot = Some("52:54:00:aa:bb:01".parse().unwrap());
        for (value, expected) in [
            ("dhcp", None),
            ("on", None),
            ("eth0:dhcp", None),
            (":::::eth0:dhcp", None),
            ("192.0.2.7:::255.255.255.0::eth0:off", Some("eth0,address=192.0.2.7/24")),
            (
                "192.0.2.7:192.0.2.2:192.0.2.1:255.255.255.128:web1::none:192.0.2.53:192.0.2.54",
                Some("52:54:00:aa:bb:01,address=192.0.2.7/25,gateway=192.0.2.1,dns=192.0.2.53,dns=192.0.2.54"),
            ),
            ("192.0.2.7:::24::52-54-00-00-00-09:none", Some("52:54:00:00:00:09,address=192.0.2.7/24")),
            (
                "[2001:db8::7]::[2001:db8::1]:64::eth1:none:[2001:db8::53]",
                Some("eth1,address=2001:db8::7/64,gateway=2001:db8::1,dns=2001:db8::53"),
            ),
        ] {
            let parsed = parse(value, boot).unwrap().map(|interface| interface.to_string());
            assert_eq!(parsed.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn an_error_says_which_field_is_wrong() {
        for (value, part) in [
            ("192.0.2:::24::eth0:none", "\"192.0.2\" is not an address"),
            ("192.0.2.7:::::eth0:none", "fourth field"),
            ("192.0.2.7:::255.0.255.0::eth0:none", "fourth field"),
            ("192.0.2.7:::33::eth0:none", "prefix"),
            ("192.0.2.7:::24:::none", "sixth field"),
            ("192.0.2.7::x:24::eth0:none", "\"x\" is not an address"),
            ("192.0.2.7:::24::a device:none", "is not a port"),
        ] {
            let error = parse(value, None).unwrap_err();
            assert!(error.contains(part), "{value}: {error}");
        }
    }
}
