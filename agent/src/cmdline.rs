//! The kernel command line: where the coordinator is, and what proves it.
//!
//! Pure: text in, data out. A `landfall.` word that does not parse is never fatal; PID 1 prints a complaint on the
//! console, because a person cannot log in to look for it.

// Named, because the fuzz targets take this file by a path of their own.
#[path = "cmdline/ip.rs"]
mod ip;

use std::str::FromStr;

use landfall_api::{Digest, MacAddr, NetworkInterface};

/// The agent's settings on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// `landfall.coordinator=`, every one: the TLS port of each coordinator, as written. The last one first: an older agent, which
    /// takes one alone, takes that.
    pub(crate) coordinators: Vec<String>,
    /// `landfall.coordinator=` stands there, and is not valid.
    pub(crate) has_invalid_coordinator: bool,
    /// `landfall.ca=`, every one: digests of the CA's public key.
    pub(crate) pins: Vec<Digest>,
    /// `landfall.token=`: the one-time boot token.
    pub(crate) token: Option<Token>,
    /// `BOOTIF=`: the port the firmware booted from.
    pub(crate) boot_port: Option<MacAddr>,
    /// `landfall.net=` and `ip=`, every one.
    pub(crate) interfaces: Vec<NetworkInterface>,
    /// `landfall.proxy=`: the proxy between this machine and the coordinator.
    pub(crate) proxy: Option<String>,
    /// `landfall.watchdog=off`: the machine's watchdog is left alone.
    pub(crate) no_watchdog: bool,
    /// `landfall.panic=`: what follows an internal error of the agent.
    pub(crate) after_panic: AfterPanic,
    /// Invalid words of ours, one sentence each.
    pub(crate) complaints: Vec<String>,
}

/// What follows an internal error of the agent, once it is in the kernel's log and with the coordinator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AfterPanic {
    /// `restart`: the agent starts again, and its workflow goes on.
    #[default]
    Restart,
    /// `reboot`: the machine restarts.
    Reboot,
    /// `halt`: the machine is turned off.
    Halt,
    /// `stay`: the machine stays as it is, for a person at its console.
    Stay,
}

/// A boot token; never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl CommandLine {
    /// Reads `/proc/cmdline`'s text. The kernel's own words are left alone.
    pub(crate) fn parse(text: &str) -> Self {
        let mut out = Self::default();
        let mut addresses = Vec::new();
        for word in words(text) {
            // As in the kernel, `-` and `_` are equal in our own keys, and a key is split at the first `=`.
            let (key, value) = word.split_once('=').unwrap_or((&word, ""));
            let ours = key.starts_with("landfall.") || ["BOOTIF", "ip"].contains(&key);
            let names_coordinator = word.contains("landfall.coordinator");
            if ours && word.contains(char::is_whitespace) {
                // An open quote took the words after it in, perhaps the token: none of it is shown but the key.
                let key = key.split_whitespace().next().unwrap_or_default();
                out.has_invalid_coordinator |= names_coordinator;
                out.complaints.push(format!("{key} holds a blank; close the quote in it or before it"));
                continue;
            }
            if ours && key != "landfall.token" && value.contains("landfall.token") {
                out.has_invalid_coordinator |= names_coordinator;
                out.complaints.push(format!("{key} holds landfall.token; put a blank before landfall.token"));
                continue;
            }
            match key {
                "landfall.coordinator" => out.set_coordinator(value),
                "landfall.ca" => match Digest::from_str(value) {
                    Ok(pin) if out.pins.contains(&pin) => {}
                    Ok(pin) => out.pins.push(pin),
                    Err(e) => out.complaints.push(format!("landfall.ca: {e}")),
                },
                "landfall.token" if value.is_empty() => {
                    out.complaints.push("landfall.token is empty; leave it out or write landfall.token=TOKEN".into());
                }
                "landfall.token" => out.token = Some(Token(value.to_owned())),
                "landfall.proxy" => out.proxy = Some(value.to_owned()),
                "landfall.net" => out.add_interface(key, value, value.parse().map_err(|e| format!("{e}"))),
                "landfall.watchdog" => match value {
                    "off" => out.no_watchdog = true,
                    "on" => out.no_watchdog = false,
                    _ => out.complaints.push(format!("landfall.watchdog=\"{value}\" is not valid; write on or off")),
                },
                "landfall.panic" => match value {
                    "restart" => out.after_panic = AfterPanic::Restart,
                    "reboot" => out.after_panic = AfterPanic::Reboot,
                    "halt" => out.after_panic = AfterPanic::Halt,
                    "stay" => out.after_panic = AfterPanic::Stay,
                    _ => out
                        .complaints
                        .push(format!("landfall.panic=\"{value}\" is not valid; write restart, reboot, halt or stay")),
                },
                "ip" => addresses.push(value.to_owned()),
                "BOOTIF" => match boot_port(value) {
                    Some(mac) => out.boot_port = Some(mac),
                    None => out.complaints.push(format!("BOOTIF=\"{value}\" is not 01- and a MAC address; ignored")),
                },
                _ if key.starts_with("landfall.") => {
                    out.complaints.push(format!("\"{key}\" is not known to this agent; ignored"));
                }
                _ => {}
            }
        }
        // BOOTIF, which may come behind it, is the port that it means if it names none.
        for value in addresses {
            if let Some(interface) = ip::parse(&value, out.boot_port).transpose() {
                out.add_interface("ip", &value, interface);
            }
        }
        out
    }

    fn add_interface(&mut self, key: &str, value: &str, parsed: Result<NetworkInterface, String>) {
        let checked = parsed.and_then(|interface| {
            interface.check_beside(&self.interfaces).map_err(|e| e.to_string())?;
            Ok(interface)
        });
        match checked {
            Ok(interface) => self.interfaces.push(interface),
            Err(why) => self.complaints.push(format!("{key}=\"{value}\" is not used: {why}")),
        }
    }

    fn set_coordinator(&mut self, value: &str) {
        match value.strip_prefix("https://") {
            Some(rest) if !rest.trim_end_matches('/').is_empty() => {
                self.coordinators.insert(0, value.trim_end_matches('/').to_owned());
            }
            _ => {
                self.has_invalid_coordinator = true;
                self.complaints.push(format!(
                    "landfall.coordinator=\"{value}\" is not valid; write landfall.coordinator=https://HOST:7443"
                ));
            }
        }
    }
}

/// pxelinux and iPXE write the hardware type (01: Ethernet) before the address.
fn boot_port(value: &str) -> Option<MacAddr> {
    let address = match value.len() {
        20 => value.strip_prefix("01-").or_else(|| value.strip_prefix("01:"))?,
        _ => value,
    };
    address.parse().ok()
}

/// Splits like the kernel: blanks separate, except between double quotes, which are dropped.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> {
    let mut quoted = false;
    let mut out = vec![String::new()];
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => out.push(String::new()),
            c => {
                if let Some(word) = out.last_mut() {
                    word.push(c);
                }
            }
        }
    }
    out.into_iter().filter(|w| !w.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn landfall_words_are_read_and_kernel_words_ignored() {
        let pin = format!("sha256:{}", "ab".repeat(32));
        let line = CommandLine::parse(&format!(
            "initrd=initramfs console=tty0 console=ttyS0,115200 panic=30 landfall.coordinator=https://10.77.0.2:7443 \
             landfall.coordinator=https://10.77.0.1:7443 landfall.ca={pin} landfall.ca={pin} landfall.token=abc=def BOOTIF=01-52-54-00-AA-bb-01\n"
        ));
        assert_eq!(line.coordinators, ["https://10.77.0.1:7443", "https://10.77.0.2:7443"], "the last one first");
        assert_eq!(line.pins, [pin.parse().unwrap()]);
        assert_eq!(line.token, Some(Token("abc=def".into())));
        assert_eq!(line.boot_port.unwrap().to_string(), "52:54:00:aa:bb:01");
        assert!(line.complaints.is_empty(), "{:?}", line.complaints);
    }

    #[test]
    fn an_invalid_word_is_reported_and_not_fatal() {
        let line = CommandLine::parse(
            "landfall.coordinator=http://x landfall.ca=sha1:00 BOOTIF=eth0 landfall.frobnicate=1 landfall.token=",
        );
        assert_eq!(line.complaints.len(), 5, "{:?}", line.complaints);
        assert!(line.has_invalid_coordinator);
        assert_eq!(CommandLine { complaints: vec![], has_invalid_coordinator: false, ..line }, CommandLine::default());
    }

    #[test]
    fn what_follows_a_panic_is_restart_by_default() {
        for (word, after) in [
            ("", AfterPanic::Restart),
            ("landfall.panic=restart", AfterPanic::Restart),
            ("landfall.panic=reboot", AfterPanic::Reboot),
            ("landfall.panic=halt", AfterPanic::Halt),
            ("landfall.panic=stay", AfterPanic::Stay),
            ("panic=30", AfterPanic::Restart),
        ] {
            let line = CommandLine::parse(word);
            assert_eq!((line.after_panic, line.complaints.as_slice()), (after, [].as_slice()), "{word}");
        }
        assert!(CommandLine::parse("landfall.panic=no").complaints[0].contains("write restart, reboot, halt or stay"));
    }

    #[test]
    fn interfaces_are_read_and_a_wrong_one_is_left_out() {
        let line = CommandLine::parse(
            "ip=192.0.2.7::192.0.2.1:24:::none landfall.net=eth1,vlan=7 landfall.net=eth1,vlan=9999 landfall.net=eth1,vlan=7 \
             ip=dhcp BOOTIF=01-52-54-00-aa-bb-01",
        );
        let shown: Vec<String> = line.interfaces.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["eth1,vlan=7", "52:54:00:aa:bb:01,address=192.0.2.7/24,gateway=192.0.2.1"]);
        assert_eq!(line.complaints.len(), 2, "{:?}", line.complaints);
        assert!(line.complaints[0].contains("eth1,vlan=9999") && line.complaints[0].contains("1 to 4094"));
    }

    #[test]
    fn an_open_quote_shows_no_token() {
        for line in [
            "BOOTIF=01-\"52 landfall.token=s3cret", "landfall.coordinator=https://\"h landfall.token=s3cret",
            "\"landfall.x landfall.token=s3cret", "ip=\"192.0.2.7 landfall.token=s3cret",
        ] {
            let parsed = CommandLine::parse(line);
            assert!(parsed.complaints.len() == 1 && !format!("{parsed:?}").contains("s3cret"), "{parsed:?}");
        }
    }

    #[test]
    fn a_missing_blank_shows_no_token() {
        for word in [
            "BOOTIF=01-52", "ip=192.0.2.7:::", "landfall.net=eth0,", "landfall.coordinator=https://h",
            "landfall.coordinator=", "landfall.ca=", "landfall.x=",
        ] {
            let parsed = CommandLine::parse(&format!("{word}landfall.token=s3cret"));
            assert!(parsed.complaints.len() == 1 && !format!("{parsed:?}").contains("s3cret"), "{parsed:?}");
        }
    }

    #[test]
    fn quoted_blanks_do_not_split_a_word() {
        assert_eq!(words("a=\"b c\" d").collect::<Vec<_>>(), ["a=b c", "d"]);
    }

    #[test]
    fn a_token_is_never_printed() {
        let line = CommandLine::parse("landfall.token=hunter2");
        assert!(!format!("{line:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn any_text_at_all_parses(text in "\\PC*") {
            CommandLine::parse(&text);
        }

        #[test]
        fn words_of_others_change_nothing(word in "[a-z0-9.,=_-]{0,30}") {
            prop_assume!(!word.starts_with("landfall."));
            let ours = "landfall.coordinator=https://h:1 BOOTIF=52:54:00:00:00:01";
            prop_assert_eq!(CommandLine::parse(&format!("{word} {ours} {word}")), CommandLine::parse(ours));
        }
    }
}
