//! The page of a machine: its identity, its facts, the receipts on its disks, and its newest workflow.

use landfall_api::{
    BmcFacts, CpuFacts, DeviceFacts, DiskHealth, Document, FactChange, Kind, Machine, MachineFacts, Neighbour,
    ReceiptState,
};
use landfall_client::Client;

use super::Page;
use crate::failure::Failure;
use crate::table::{Columns, or_dash};
use crate::{contents, human, table};

impl Page<'_> {
    pub(super) async fn machine(&mut self, machine: &Machine, client: &Client) -> Result<(), Failure> {
        self.metadata(&machine.metadata)?;
        self.phase(&table::machine_phase(machine))?;
        let identity = &machine.spec.identity;
        let macs: Vec<String> = machine.macs().iter().map(ToString::to_string).collect();
        self.field("MACs", &macs.join(", "))?;
        if let Some(uuid) = identity.smbios_uuid {
            self.field("SMBIOS UUID", &uuid.to_string())?;
        }
        if let Some(serial) = &identity.serial {
            self.field("Serial", serial)?;
        }
        let Some(status) = &machine.status else { return Ok(()) };
        let heard = self.moment(status.last_heard);
        self.field("Last heard", &heard)?;
        if let Some(agent) = &status.agent {
            self.field("Agent", agent)?;
        }
        if let Some(peak) = status.agent_peak_rss_bytes {
            self.field("Agent memory", &format!("{} at most", human::bytes(peak)))?;
        }
        self.field("Workflow", &or_dash(status.workflow.clone().unwrap_or_default()))?;
        self.conditions(&status.conditions)?;
        if let Some(facts) = &status.facts {
            self.facts(facts)?;
        }
        self.fact_changes(&status.fact_changes)?;
        self.receipts(machine)?;
        self.health_tests(machine)?;
        if let Some(name) = &status.workflow {
            // The workflow may have been deleted; the machine's page is complete without it.
            if let Ok(Document::Workflow(run)) = client.get(Kind::Workflow, name).await {
                self.heading(&format!("Workflow {name}"))?;
                self.phase(&table::workflow_phase(&run))?;
                self.actions(&run)?;
                self.failure(&run)?;
            }
        }
        Ok(())
    }

    fn facts(&mut self, facts: &MachineFacts) -> Result<(), Failure> {
        self.heading("Facts")?;
        let smbios = &facts.smbios;
        let product = format!("{} {}", smbios.manufacturer, smbios.product);
        self.field("  Product", &or_dash(product.trim()))?;
        self.field("  Serial", &or_dash(smbios.serial.clone()))?;
        self.field("  UUID", &or_dash(smbios.uuid.clone()))?;
        let mode = format!("{:?}", facts.firmware.mode).to_uppercase();
        let secure = match facts.firmware.secure_boot {
            Some(true) => ", Secure Boot on",
            Some(false) => ", Secure Boot off",
            None => "",
        };
        let secure = if facts.firmware.setup_mode == Some(true) { ", Secure Boot in Setup Mode" } else { secure };
        self.field("  Firmware", &format!("{mode} {}{secure}", facts.firmware.version))?;
        self.field("  CPU", &cpu(&facts.cpu))?;
        self.field("  Memory", &memory(facts))?;
        if let Some(tpm) = &facts.tpm {
            let key = tpm.endorsement_key.map(|key| format!(", endorsement key {key}"));
            self.field("  TPM", &format!("version {}{}", tpm.version, key.unwrap_or_default()))?;
        }
        if let Some(found) = &facts.bmc {
            self.field("  BMC", &bmc(found))?;
        }
        if let Some(watchdog) = &facts.watchdog {
            self.field("  Watchdog", &format!("{}, {} s", watchdog.identity, watchdog.timeout_seconds))?;
        }
        let mut disks = Columns::new(&["DISK", "SIZE", "TRANSPORT", "MODEL", "SERIAL", "WWN", "PATH", "HEALTH"]);
        for disk in &facts.disks {
            let id = &disk.id;
            let health = disk.health.as_ref().map(health).unwrap_or_default();
            let size = human::bytes(id.size_bytes);
            let cells = [&id.name, &size, &disk.transport, &id.model, &id.serial, &id.wwn, &id.path, &health];
            disks.row(cells.into_iter().map(or_dash).collect());
        }
        self.columns(&disks)?;
        if facts.disks.iter().any(|disk| disk.contents.is_some()) {
            self.columns(&contents::columns(&facts.disks))?;
        }
        let mut nics = Columns::new(&["NIC", "MAC", "DRIVER", "LINK", "AT", "NEIGHBOUR"]);
        for nic in &facts.nics {
            let link = match (nic.carrier, nic.speed_mbit) {
                (false, _) => "none".into(),
                (true, Some(speed)) => format!("{speed} Mbit/s"),
                (true, None) => "up".to_owned(),
            };
            let (driver, address) = (or_dash(nic.driver.clone()), or_dash(nic.address.clone()));
            let neighbour = nic.neighbour.as_ref().map_or_else(|| "-".to_owned(), cable);
            nics.row(vec![nic.name.clone(), nic.mac.to_string(), driver, link, address, neighbour]);
        }
        self.columns(&nics)?;
        // Disks and ports have their own tables, as long as there is a driver for what they are plugged into.
        let shown = |device: &&DeviceFacts| {
            let has_driver = !device.driver.is_empty() && device.problem.is_empty();
            !has_driver || !["storage", "network"].contains(&device.class.as_str())
        };
        let mut devices = Columns::new(&["DEVICE", "CLASS", "ID", "DRIVER", "NAME", "PROBLEM"]);
        for device in facts.devices.iter().filter(shown) {
            let id = format!("{}:{}", device.vendor, device.device);
            let driver = if device.driver.is_empty() { "none".to_owned() } else { device.driver.clone() };
            let [name, problem] = [&device.name, &device.problem].map(|text| or_dash(text.clone()));
            devices.row(vec![device.address.clone(), device.class.clone(), id, driver, name, problem]);
        }
        if facts.devices.iter().any(|device| shown(&device)) { self.columns(&devices) } else { Ok(()) }
    }

    fn fact_changes(&mut self, changes: &[FactChange]) -> Result<(), Failure> {
        if changes.is_empty() {
            return Ok(());
        }
        self.heading("Changes of the hardware")?;
        let mut columns = Columns::new(&["SEEN", "FACT", "WAS", "IS"]);
        for FactChange { at, fact, before, after } in changes {
            let sides = [before, after].map(|side| or_dash(side.clone()));
            columns.row([human::moment(*at), fact.clone()].into_iter().chain(sides).collect());
        }
        self.columns(&columns)
    }

    fn health_tests(&mut self, machine: &Machine) -> Result<(), Failure> {
        let Some(status) = machine.status.as_ref().filter(|s| !s.tested.is_empty()) else { return Ok(()) };
        self.heading("Health tests")?;
        let mut columns = Columns::new(&["TEST", "PART", "RESULT", "SPEED", "ERRORS", "ENDED", "WORKFLOW"]);
        for one in &status.tested {
            let result = if one.passed() { "passed".to_owned() } else { format!("FAILED: {}", one.faults.join("; ")) };
            let speed = (one.bytes_per_second > 0).then(|| format!("{}/s", human::bytes(one.bytes_per_second)));
            columns.row(vec![
                one.test.to_string(),
                one.part.clone(),
                result,
                or_dash(speed.unwrap_or_default()),
                one.errors.to_string(),
                human::moment(one.ended_at),
                or_dash(one.workflow.clone()),
            ]);
        }
        self.columns(&columns)
    }

    fn receipts(&mut self, machine: &Machine) -> Result<(), Failure> {
        let Some(status) = machine.status.as_ref().filter(|s| !s.receipts.is_empty()) else { return Ok(()) };
        self.heading("Receipts")?;
        let mut columns = Columns::new(&["DISK", "SAYS", "WORKFLOW", "IMAGE", "WRITTEN"]);
        for on in &status.receipts {
            let says = match on.receipt.state {
                ReceiptState::Intent => "begun",
                ReceiptState::Done => "installed",
            };
            let image =
                on.receipt.image_digest.map_or("no digest".into(), |d| d.to_string().chars().take(19).collect());
            let disk = [&on.disk.name, &on.disk.serial, &on.disk.path].into_iter().find(|s| !s.is_empty());
            let disk = disk.cloned().unwrap_or_default();
            let written = human::moment(on.receipt.written_at);
            columns.row(vec![or_dash(disk), says.into(), on.receipt.workflow_name.clone(), image, written]);
        }
        self.columns(&columns)
    }
}

fn cpu(cpu: &CpuFacts) -> String {
    let threads = format!("{} x {} ({}", cpu.logical, cpu.model, cpu.architecture);
    match (cpu.sockets, cpu.cores) {
        (0, _) | (_, 0) => format!("{threads})"),
        (sockets, cores) => format!("{threads}; sockets: {sockets}, cores: {cores})"),
    }
}

/// `192.0.2.9 (dhcp), 52:54:00:00:00:99, firmware 2.10`.
fn bmc(bmc: &BmcFacts) -> String {
    let source = if bmc.address_source.is_empty() { String::new() } else { format!(" ({})", bmc.address_source) };
    let parts = [
        bmc.address.map(|address| format!("{address}{source}")),
        bmc.address_v6.map(|address| address.to_string()),
        bmc.mac.map(|mac| mac.to_string()),
        bmc.vlan.map(|vlan| format!("VLAN {vlan}")),
        Some(format!("firmware {}", or_dash(bmc.firmware.clone()))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Where a port is plugged in.
fn cable(neighbour: &Neighbour) -> String {
    let switch = if neighbour.system.is_empty() { &neighbour.chassis } else { &neighbour.system };
    let vlan = neighbour.vlan.map(|vlan| format!(", VLAN {vlan}")).unwrap_or_default();
    format!("{switch} {}{vlan}", neighbour.port)
}

fn health(health: &DiskHealth) -> String {
    let mut parts = vec![if health.failing { format!("FAILING: {}", health.reason) } else { "good".to_owned() }];
    parts.extend(health.used_percent.map(|used| format!("{used} % used")));
    parts.extend(health.media_errors.filter(|errors| *errors > 0).map(|errors| format!("{errors} errors")));
    parts.join(", ")
}

/// `256.0 GiB; 8 x 32.0 GiB DDR5; 2 NUMA nodes`.
fn memory(facts: &MachineFacts) -> String {
    let mut parts = vec![human::bytes(facts.memory_bytes)];
    let mut modules: Vec<_> = facts.memory.modules.iter().map(|module| (module.size_bytes, &module.kind)).collect();
    modules.sort();
    for alike in modules.chunk_by(|a, b| a == b) {
        let (size, kind) = alike[0];
        parts.push(format!("{} x {} {kind}", alike.len(), human::bytes(size)).trim().to_owned());
    }
    if facts.memory.nodes.len() > 1 {
        parts.push(format!("{} NUMA nodes", facts.memory.nodes.len()));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use landfall_api::{MemoryFacts, MemoryModule, MemoryNode};

    use super::*;

    #[test]
    fn a_disk_that_fails_stands_out() {
        let worn = DiskHealth { used_percent: Some(3), media_errors: Some(0), ..DiskHealth::default() };
        assert_eq!(health(&worn), "good, 3 % used");
        let fails =
            DiskHealth { failing: true, reason: "read-only".into(), media_errors: Some(7), ..DiskHealth::default() };
        assert_eq!(health(&fails), "FAILING: read-only, 7 errors");
    }

    #[test]
    fn processors_and_memory_are_summed_up() {
        let module =
            |gib: u64, kind: &str| MemoryModule { size_bytes: gib << 30, kind: kind.into(), ..Default::default() };
        let modules = vec![module(32, "DDR5"), module(16, ""), module(32, "DDR5")];
        let nodes = vec![MemoryNode::default(); 2];
        let mut facts = MachineFacts { memory_bytes: 80 << 30, ..MachineFacts::default() };
        assert_eq!(memory(&facts), human::bytes(80 << 30));
        facts.memory = MemoryFacts { nodes, modules };
        let parts = [80_u64, 16, 32].map(|gib| human::bytes(gib << 30));
        assert_eq!(memory(&facts), format!("{}; 1 x {}; 2 x {} DDR5; 2 NUMA nodes", parts[0], parts[1], parts[2]));
        let mut known =
            CpuFacts { model: "M".into(), logical: 8, architecture: "x86_64".into(), ..CpuFacts::default() };
        assert_eq!(cpu(&known), "8 x M (x86_64)");
        (known.sockets, known.cores) = (1, 4);
        assert_eq!(cpu(&known), "8 x M (x86_64; sockets: 1, cores: 4)");
    }
}
