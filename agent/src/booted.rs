//! A machine that was booted for the agent: it loads the drivers, brings up the ports, and the kernel's command line names the
//! coordinator, or the keys that one has to prove itself by. The boot image does so, where the agent is process 1, and an initramfs that another program made.

use std::{fs, time::Duration};

use landfall_api::{NetworkInterface, Pin, SecretText};
use landfall_session::{Proxy, Target};
use tokio::sync::watch;

use crate::cmdline::CommandLine;
use crate::disks::Disks;
use crate::drivers::Drivers;
use crate::efi;
use crate::life::{ByNetwork, Coordinator, End, Kept, Life, Once};
use crate::logging::Tail;
use crate::net::Network;
use crate::proxy;
use crate::status::Board;
use crate::thread::on_thread;

const LINE: &str = "/proc/cmdline";
/// Time between attempts at something that only another boot or a person can cure.
pub(crate) const STUCK_WAIT: Duration = Duration::from_secs(60);
/// Pause before a new start after an internal error of the agent.
pub(crate) const FAULT_WAIT: Duration = Duration::from_secs(10);

/// The drivers, disks and ports of such a machine.
#[derive(Clone)]
pub(crate) struct Booted {
    network: Network,
    drivers_settled: watch::Receiver<bool>,
    disks: Disks,
    /// Shared by all lives of the agent.
    coordinator: Kept,
}

impl Booted {
    /// Begins to load the drivers and to bring up these interfaces. Returns once the kernel has a network.
    pub(crate) async fn start(interfaces: Vec<NetworkInterface>) -> Self {
        let (settled, drivers_settled) = watch::channel(false);
        let disks = Disks::watch(Some(drivers_settled.clone()));
        tokio::spawn(async move {
            load_drivers().await;
            settled.send_replace(true);
        });
        let network = loop {
            match Network::start(interfaces.clone(), false, "/etc/resolv.conf".into()) {
                Ok(network) => break network,
                Err(e) => tracing::error!(
                    "cannot open a routing socket ({e}): this kernel has no network; the agent keeps trying"
                ),
            }
            tokio::time::sleep(FAULT_WAIT).await;
        };
        Self { network, drivers_settled, disks, coordinator: Kept::default() }
    }

    /// Serves the coordinator of the command line until the machine should go down.
    pub(crate) async fn live(self, board: Board, tail: Tail) -> End {
        let (line, coordinator) = self.coordinator(&board).await;
        let life = Life {
            coordinator,
            token: line.token.map(|t| SecretText::new(t.0)),
            boot_port: line.boot_port,
            network: Some(self.network),
            drivers_settled: Some(self.drivers_settled),
            disks: self.disks,
            board,
            tail,
            once: Once::default(),
        };
        life.live().await
    }

    /// Reads the command line. Without a coordinator and a key the agent can only log that.
    async fn coordinator(&self, board: &Board) -> (CommandLine, Coordinator) {
        loop {
            let problem = match fs::read_to_string(LINE) {
                Err(e) => format!("{LINE}: {e}"),
                Ok(text) => {
                    let line = CommandLine::parse(&text);
                    for complaint in &line.complaints {
                        tracing::warn!("kernel command line: {complaint}");
                    }
                    match target(&line) {
                        Ok(Known::Named(target)) => {
                            proxy::follow(target.proxy());
                            return (line, Coordinator::Named(target));
                        }
                        Ok(Known::ByKey(pins, proxy)) => {
                            proxy::follow(proxy.as_ref());
                            let boot_url = on_thread("boot-url", efi::boot_url).await.unwrap_or_default();
                            let (network, kept) = (self.network.clone(), self.coordinator.clone());
                            let by = ByNetwork::new(network, pins, proxy, boot_url.as_deref(), kept);
                            return (line, Coordinator::ByNetwork(by));
                        }
                        Err(problem) => problem,
                    }
                }
            };
            tracing::error!("kernel command line: {problem}");
            board.failed(format!("kernel command line: {problem}"));
            tokio::time::sleep(STUCK_WAIT).await;
        }
    }
}

/// The command line that the kernel was started with; an empty one if it cannot be read, which is reported later.
pub(crate) fn command_line() -> CommandLine {
    fs::read_to_string(LINE).map(|text| CommandLine::parse(&text)).unwrap_or_default()
}

/// What the command line says of the coordinator.
#[derive(Debug)]
enum Known {
    Named(Target),
    /// These keys alone, and a proxy.
    ByKey(Vec<Pin>, Option<Proxy>),
}

fn target(line: &CommandLine) -> Result<Known, String> {
    let pins = line.pins.iter().map(|pin| pin.to_string().parse()).collect::<Result<Vec<_>, _>>();
    let pins = pins.map_err(|e| format!("landfall.ca: {e}"))?;
    let proxy =
        line.proxy.as_deref().map(str::parse::<Proxy>).transpose().map_err(|e| format!("landfall.proxy: {e}"))?;
    match &line.coordinators[..] {
        urls @ [_, ..] => Ok(Known::Named(Target::of(urls, pins).map_err(|e| e.to_string())?.with_proxy(proxy))),
        // An invalid one is reported; it is not to be replaced by another.
        [] if !pins.is_empty() && !line.has_invalid_coordinator => Ok(Known::ByKey(pins, proxy)),
        [] => Err("the kernel command line names no coordinator; add landfall.coordinator=https://HOST:7443 and \
            landfall.ca=sha256:… to it, and boot again; with landfall.ca alone a DHCP server or the firmware's boot URL may name the \
            coordinator"
            .to_owned()),
    }
}

async fn load_drivers() {
    match on_thread("drivers", Drivers::open).await {
        Ok(Ok(drivers)) => {
            let available = drivers.available();
            let loaded = drivers.settle().await;
            tracing::info!("{loaded} drivers loaded of {available} in the boot image");
        }
        // A kernel with everything built in needs none.
        Ok(Err(e)) => tracing::warn!("no drivers: {e}"),
        Err(e) => tracing::error!("no drivers: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_coordinator_or_pin_is_refused() {
        let of = |text: &str| match target(&CommandLine::parse(text)) {
            Ok(Known::Named(target)) => Ok(target),
            Ok(Known::ByKey(pins, _)) => Err(format!("{} keys", pins.len())),
            Err(why) => Err(why),
        };
        let pin = format!("landfall.ca=sha256:{}", "0".repeat(64));
        assert!(of("quiet").unwrap_err().contains("names no coordinator"));
        assert_eq!(of(&pin).unwrap_err(), "1 keys", "a DHCP server may name it");
        for word in ["landfall.coordinator=http://h", "landfall.coordinator=https://hlandfall.token=x"] {
            assert!(of(&format!("{word} {pin}")).unwrap_err().contains("names no coordinator"), "{word}");
        }
        assert!(of("landfall.coordinator=https://h").unwrap_err().contains("no CA pin"));
        assert!(of(&format!("landfall.coordinator=https://h/x {pin}")).unwrap_err().contains("https://h/x"));
        assert!(of(&format!("landfall.coordinator=https://h {pin}")).is_ok());
        let by = |proxy: &str| of(&format!("landfall.coordinator=https://h {pin} landfall.proxy={proxy}"));
        assert_eq!(by("http://p:3128").unwrap().first_hops(), [("p".to_owned(), 3128)]);
        let several = of(&format!("landfall.coordinator=https://b landfall.coordinator=https://a {pin}")).unwrap();
        assert_eq!(several.first_hops(), ["a", "b"].map(|host| (host.to_owned(), 7443)));
        assert!(by("p:3128").unwrap_err().contains("landfall.proxy: \"p:3128\" is not a proxy"));
    }
}
