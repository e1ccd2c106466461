//! The parsers of the agent as the fuzz targets see them. The agent is a program, so its files are taken in by their paths:
//! those that need nothing but text whole, of others one function (`build.rs`).

// Their own tests are the agent's, and need what is not here.
#![cfg(not(test))]
// The agent uses what is not used here.
#![allow(dead_code)]

#[path = "../../src/cmdline.rs"]
mod cmdline;
#[path = "../../src/rootfs/fstab.rs"]
mod fstab;
mod kexec;
#[path = "../../src/net/dhcp/lease.rs"]
mod lease;
#[path = "../../src/drivers/notice.rs"]
mod notice;
mod rootfs;
#[path = "../../src/net/setup.rs"]
mod setup;

use setup::{Route, Setup};

pub use kexec::{compare, entries, grub_lines, of_grub, redacted};

mod pretty_name {
    include!(concat!(env!("OUT_DIR"), "/pretty_name.rs"));
}

/// The modalias that a notice of the kernel names, and whether it is about disks.
pub fn announced(message: &[u8]) -> (Option<String>, bool) {
    (notice::added(message), notice::storage(message, |name| name.starts_with("sd")).is_some())
}

/// The name in an os-release file.
pub fn pretty_name(text: &str) -> String {
    pretty_name::pretty_name(text)
}

/// What an installed system mounts, in its order: each place, and what is mounted there.
pub fn mounts(text: &str) -> Vec<(String, String)> {
    fstab::parse(text).into_iter().map(|line| (line.point, line.source.to_string())).collect()
}

/// What the agent takes from its own command line: the coordinators, and what it complains of.
pub fn own_command_line(text: &str) -> (Vec<String>, Vec<String>) {
    // Each token is the one that is looked for. Without any other 3 its letters come together nowhere else: quotes are dropped.
    let text = text.replace('3', "-").replace("landfall.token=", "landfall.token=s3cret");
    let line = cmdline::CommandLine::parse(&text);
    assert!(!format!("{line:?}").contains("s3cret"), "a token is never printed");
    (line.coordinators, line.complaints)
}

/// The modules to load for a device, in order.
pub fn modules_for(dep: &str, alias: &str, softdep: &str, device: &str) -> Vec<Vec<String>> {
    let index = landfall_api::ModuleIndex::parse(dep, alias, softdep);
    let names =
        |order: Vec<&landfall_api::ModuleName>| order.into_iter().map(|name| name.as_str().to_owned()).collect();
    index.for_device(device).iter().map(|module| names(index.load_order(module))).collect()
}

/// Reads a DHCP server's answer to the client of address 02:00:00:00:00:01 and exchange 7, and checks a lease in it.
pub fn dhcp_answer(datagram: &[u8]) {
    use lease::Answer;
    let mac = landfall_api::MacAddr([2, 0, 0, 0, 0, 1]);
    let Some(Answer::Offer(lease) | Answer::Ack(lease)) = Answer::parse(datagram, mac, 7) else { return };
    assert!(!lease.address.is_unspecified() && !lease.address.is_multicast());
    let setup = &lease.setup;
    assert!((1..=32).contains(&setup.address.prefix_len()) && setup.nameservers.len() <= 3 && setup.routes.len() <= 64);
    assert!(setup.routes.iter().all(|route| route.to.addr().is_ipv4()));
    if let Some(times) = lease.length {
        assert!(times.renew < times.rebind && times.rebind <= times.expire && times.expire.as_secs() >= 60);
    }
}

/// An input in parts, each ended by a zero byte; missing ones are empty. Bytes that are no UTF-8 are replaced, as the agent
/// does or refuses to before it parses.
pub fn parts<const N: usize>(data: &[u8]) -> [String; N] {
    let mut parts = data.splitn(N, |byte| *byte == 0);
    std::array::from_fn(|_| String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned())
}
