//! iPXE scripts: bounded, and every way out of one that does not start the agent leads to the machine's own disk.
//!
//! Written for the oldest iPXE that is about (Debian 12 ships one of 2019). What that taught:
//! - On UEFI the way to the own disk is `exit 1`: firmware then tries its next boot entry. Success would land in its menu.
//! - On BIOS `sanboot` of drive 0x80 starts the first disk without going through the ROM again. It fails on a disk whose first
//!   sector has no boot signature, such as a blank one or one that `wipe` cleared, and the next is tried.
//! - iPXE cannot tell which disk was installed. Where a receipt is known, [`super::find_disk`] is tried first.
//! - The kernel finds its initramfs by name, so the image's name and `initrd=` must agree.
//! - `--timeout` counts from the last progress; without it a server that vanished in mid-download is waited for for ever.

use landfall_api::{MacAddr, NetworkInterface};

use crate::arch::Arch;
use crate::config::{BootConfig, Config};
use crate::policy::{Decision, ReceiptOf};

/// How often the boot image is asked for.
const TRIES: u32 = 3;
/// Milliseconds without progress after which a download counts as failed.
const STALL_MS: u32 = 30_000;

/// What a script that starts the agent needs to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentBoot {
    /// `http://address:port` of this coordinator's plain HTTP service.
    pub http_url: String,
    /// `https://address:port` of its TLS port.
    pub tls_url: String,
    /// Those of the coordinators that take its place.
    pub other_tls_urls: Vec<String>,
    /// `sha256:…`, one or more.
    pub ca_pins: Vec<String>,
    /// More words for the kernel of x86-64 machines, from the configuration; already checked by [`check_kernel_args`].
    pub kernel_args: String,
    /// Likewise for that of arm64 machines.
    pub arm64_kernel_args: String,
}

/// Why kernel arguments cannot be put into a script: the key, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} contains {1:?}, which iPXE would interpret; remove it")]
pub struct KernelArgsError(pub &'static str, pub &'static str);

/// Refuses what iPXE would interpret instead of passing on.
///
/// # Errors
/// [`KernelArgsError`] naming the key and the offending text.
pub fn check_kernel_args(boot: &BootConfig) -> Result<(), KernelArgsError> {
    for (key, args) in [("boot.kernel_args", &boot.kernel_args), ("boot.arm64.kernel_args", &boot.arm64.kernel_args)] {
        if let Some(found) = interpreted(args) {
            return Err(KernelArgsError(key, found));
        }
    }
    Ok(())
}

fn interpreted(args: &str) -> Option<&'static str> {
    if args.chars().any(char::is_control) {
        return Some("a control character");
    }
    let word = args.split_ascii_whitespace().any(|word| word.starts_with('#')).then_some("a word that begins with #");
    ["${", "&&", "||", "\\", "\"", "'"].into_iter().find(|special| args.contains(special)).or(word)
}

/// The script for what was decided. `image` is the architecture of the machine's boot image; without one the machine boots its
/// own disk, whatever was decided.
pub fn render(decision: &Decision, mac: MacAddr, image: Option<Arch>, boot: &AgentBoot) -> String {
    match (decision, image) {
        (Decision::RunAgent { machine, token, network }, Some(image)) => {
            let line = boot.command_line(image, Some(token), network, mac);
            run_agent(&format!("{machine} has a workflow"), &line, image, boot)
        }
        (Decision::Approve { machine, network }, Some(image)) => {
            let who = machine.as_deref().unwrap_or("this machine");
            let line = boot.command_line(image, None, network, mac);
            run_agent(&format!("{who} waits for approval"), &line, image, boot)
        }
        (Decision::RunAgent { .. } | Decision::Approve { .. }, None) => to_disk(
            "there is no boot image for this machine's architecture; the coordinator's log has the reason. \
                Starting its own disk.",
        ),
        (Decision::BootDisk { machine, receipt }, _) => {
            own_disk(&format!("{machine} has no workflow: starting its own disk."), *receipt, &boot.http_url)
        }
        (Decision::Unknown, _) => to_disk(&format!(
            "no machine has the address {mac}. Describe it with: landfall apply. Starting its own disk."
        )),
    }
}

/// A script for an iPXE that is not ours: load ours, and if that fails go on without it. `again` is where the machine's
/// own script is.
pub fn load_own_ipxe(loader: &str, again: &str) -> String {
    format!(
        "#!ipxe
echo Landfall: this iPXE came with the network card: loading {loader}
chain --autofree {loader} || goto without
:without
echo Landfall: going on with the network card's own.
chain --autofree {again} || goto disk
{TO_DISK}"
    )
}

/// A script that only prints the reason, and starts the machine's own disk.
pub fn to_disk(why: &str) -> String {
    format!("#!ipxe\necho Landfall: {why}\n{TO_DISK}")
}

/// [`to_disk`], on BIOS by way of the disk that carries a receipt of this workflow.
fn own_disk(why: &str, receipt: Option<ReceiptOf>, http_url: &str) -> String {
    let Some(ReceiptOf { workflow, action }) = receipt else { return to_disk(why) };
    let action = action.map(|action| format!("&action={action}")).unwrap_or_default();
    format!(
        "#!ipxe
echo Landfall: {why}
iseq ${{platform}} efi && goto disk ||
echo Landfall: looking for the disk with the receipt of workflow {workflow}.
chain --autofree --timeout {STALL_MS} {http_url}/boot/find-disk?workflow={workflow}{action} ||
echo Landfall: no disk carries it. Starting the first disk that boots.
{TO_DISK}"
    )
}

const TO_DISK: &str = "\
:disk
iseq ${platform} efi && goto efi || goto bios
:efi
exit 1
:bios
sanboot --no-describe --drive 0x80 ||
sanboot --no-describe --drive 0x81 ||
sanboot --no-describe --drive 0x82 ||
sanboot --no-describe --drive 0x83 || exit 1
";

impl AgentBoot {
    /// What this configuration says to the agents.
    pub fn of(config: &Config) -> Self {
        Self {
            http_url: config.http_url(),
            tls_url: config.coordinator_url.clone(),
            other_tls_urls: config.other_coordinator_urls.clone(),
            ca_pins: config.ca_pins.clone(),
            kernel_args: config.boot.kernel_args.clone(),
            arm64_kernel_args: config.boot.arm64.kernel_args.clone(),
        }
    }

    /// The kernel command line of a boot medium: the same on every machine, so without a token.
    pub fn medium_line(&self, arch: Arch) -> String {
        format!("{} {} panic=30", self.coordinator_words(), self.kernel_args(arch))
    }

    /// The agent's kernel command line on the machine that boots by this port.
    pub fn command_line(&self, arch: Arch, token: Option<&str>, network: &[NetworkInterface], mac: MacAddr) -> String {
        let mut line = self.coordinator_words();
        if let Some(token) = token {
            line += &format!(" landfall.token={token}");
        }
        for interface in network {
            line += &format!(" landfall.net={interface}");
        }
        let bootif = mac.to_string().replace(':', "-");
        line + &format!(" BOOTIF=01-{bootif} {} panic=30", self.kernel_args(arch))
    }

    fn kernel_args(&self, arch: Arch) -> &str {
        match arch {
            Arch::X86_64 => &self.kernel_args,
            Arch::Arm64 => &self.arm64_kernel_args,
        }
    }

    fn coordinator_words(&self) -> String {
        // Its own last: of several an agent tries the last one first, and one that knows of one alone takes it.
        let urls = self.other_tls_urls.iter().chain([&self.tls_url]).map(|url| format!("landfall.coordinator={url} "));
        let pins: Vec<_> = self.ca_pins.iter().map(|pin| format!("landfall.ca={pin}")).collect();
        urls.collect::<String>() + &pins.join(" ")
    }
}

fn run_agent(why: &str, command_line: &str, image: Arch, boot: &AgentBoot) -> String {
    let (http_url, image) = (&boot.http_url, image.ending());
    format!(
        "#!ipxe
echo Landfall: {why}: starting the agent from {http_url}
set tries:int32 0
set pause:int32 2
:try
imgfree
kernel --timeout {STALL_MS} {http_url}/boot/kernel{image} initrd=initramfs {command_line} || goto again
initrd --timeout {STALL_MS} --name initramfs {http_url}/boot/initramfs{image} || goto again
boot || goto again
:again
inc tries
iseq ${{tries}} {TRIES} && goto failed ||
echo Landfall: the boot image did not load. Trying again in ${{pause}} seconds.
sleep ${{pause}}
inc pause ${{pause}}
goto try
:failed
imgfree
echo Landfall: the boot image did not load in {TRIES} tries: is {http_url} reachable? Starting the own disk.
{TO_DISK}"
    )
}

#[cfg(test)]
mod tests {
    use landfall_golden as golden;

    use uuid::Uuid;

    use super::*;

    fn boot() -> AgentBoot {
        AgentBoot {
            http_url: "http://10.77.0.1:7480".into(),
            tls_url: "https://10.77.0.1:7443".into(),
            other_tls_urls: Vec::new(),
            ca_pins: vec!["sha256:aa".into(), "sha256:bb".into()],
            kernel_args: "console=ttyS0".into(),
            arm64_kernel_args: "console=ttyAMA0".into(),
        }
    }

    fn mac() -> MacAddr {
        "52:54:00:00:00:01".parse().unwrap()
    }

    #[test]
    fn a_machine_is_given_every_coordinator_its_own_last() {
        let boot = AgentBoot { other_tls_urls: vec!["https://10.77.0.2:7443".into()], ..boot() };
        let words =
            "landfall.coordinator=https://10.77.0.2:7443 landfall.coordinator=https://10.77.0.1:7443 landfall.ca=";
        let (arch, decision) = (Arch::X86_64, Decision::Approve { machine: None, network: vec![] });
        let script = render(&decision, mac(), Some(arch), &boot);
        for line in [script, boot.medium_line(arch), boot.command_line(arch, None, &[], mac())] {
            assert!(line.contains(words), "{line}");
        }
    }

    #[test]
    fn every_script_is_as_recorded() {
        let web = || "web-1".to_owned();
        let run = |network: &[&str]| Decision::RunAgent {
            machine: web(),
            token: "t0ken".into(),
            network: network.iter().map(|line| line.parse().unwrap()).collect(),
        };
        let network = [
            "52:54:00:00:00:01+eth1,bond=802.3ad,vlan=20,address=192.0.2.7/24,route=10.0.0.0/8@192.0.2.9",
            "eth2,vlan=7",
        ];
        for (name, decision, image) in [
            ("run-agent", run(&[]), Some(Arch::X86_64)),
            ("run-agent-arm64", run(&[]), Some(Arch::Arm64)),
            ("run-agent-network", run(&network), Some(Arch::X86_64)),
            ("run-agent-without-image", run(&[]), None),
            ("approve", Decision::Approve { machine: Some(web()), network: vec![] }, Some(Arch::X86_64)),
            ("approve-unknown", Decision::Approve { machine: None, network: vec![] }, Some(Arch::X86_64)),
            ("boot-disk", Decision::BootDisk { machine: web(), receipt: None }, Some(Arch::X86_64)),
            (
                "boot-disk-receipt",
                Decision::BootDisk {
                    machine: web(),
                    receipt: Some(ReceiptOf { workflow: Uuid::from_u128(7), action: None }),
                },
                Some(Arch::X86_64),
            ),
            ("unknown", Decision::Unknown, Some(Arch::X86_64)),
        ] {
            golden::same(&format!("boot/{name}.ipxe"), &render(&decision, mac(), image, &boot()));
        }
        let own = load_own_ipxe("http://10.77.0.1:7480/boot/ipxe.efi", "http://10.77.0.1:7480/boot/script");
        golden::same("boot/load-own-ipxe.ipxe", &own);
    }

    #[test]
    fn a_medium_has_no_machines_own_words() {
        let words = "landfall.coordinator=https://10.77.0.1:7443 landfall.ca=sha256:aa landfall.ca=sha256:bb";
        for (arch, console) in [(Arch::X86_64, "ttyS0"), (Arch::Arm64, "ttyAMA0")] {
            assert_eq!(boot().medium_line(arch), format!("{words} console={console} panic=30"));
        }
    }

    #[test]
    fn machines_without_workflow_boot_their_own_disk() {
        for (decision, says) in [
            (Decision::BootDisk { machine: "web-1".into(), receipt: None }, "web-1 has no workflow"),
            (
                Decision::BootDisk {
                    machine: "web-1".into(),
                    receipt: Some(ReceiptOf { workflow: Uuid::nil(), action: Some(3) }),
                },
                "find-disk?workflow=00000000-0000-0000-0000-000000000000&action=3 ",
            ),
            (Decision::Unknown, "no machine has the address 52:54:00:00:00:01"),
        ] {
            let script = render(&decision, mac(), Some(Arch::X86_64), &boot());
            assert!(script.starts_with("#!ipxe\n") && script.contains(says) && script.ends_with(TO_DISK), "{script}");
            assert!(!script.contains("kernel"));
        }
    }

    #[test]
    fn a_machine_waiting_for_approval_gets_the_agent_without_token() {
        for machine in [None, Some("web-1".to_owned())] {
            let script = render(&Decision::Approve { machine, network: vec![] }, mac(), Some(Arch::X86_64), &boot());
            assert!(script.contains("waits for approval") && script.contains("landfall.ca=sha256:aa"), "{script}");
            assert!(!script.contains("landfall.token"), "{script}");
        }
    }

    #[test]
    fn an_arm64_machine_loads_its_own_image_or_none() {
        let decision = Decision::RunAgent { machine: "web-1".into(), token: "t0ken".into(), network: vec![] };
        let script = render(&decision, mac(), Some(Arch::Arm64), &boot());
        assert!(script.contains("/boot/kernel-arm64 initrd=initramfs "), "{script}");
        assert!(script.contains("--name initramfs http://10.77.0.1:7480/boot/initramfs-arm64 "), "{script}");
        let none = render(&decision, mac(), None, &boot());
        assert!(none.ends_with(TO_DISK) && !none.contains("kernel ") && !none.contains("t0ken"), "{none}");
    }

    #[test]
    fn every_label_that_is_jumped_to_exists() {
        let script = render(
            &Decision::RunAgent { machine: "a".into(), token: "t".into(), network: vec![] },
            mac(),
            Some(Arch::X86_64),
            &boot(),
        );
        for (at, _) in script.match_indices("goto ") {
            let label = script[at + 5..].split_ascii_whitespace().next().unwrap();
            assert!(script.contains(&format!("\n:{label}\n")), "{label}");
        }
    }

    #[test]
    fn kernel_arguments_cannot_become_script() {
        assert_eq!(interpreted("console=tty0 console=ttyS0,115200 a.b=c"), None);
        for bad in ["a\nexit", "${net0/mac}", "a || exit", "quiet # x", "\"a b\""] {
            assert!(interpreted(bad).is_some(), "{bad}");
        }
    }
}
