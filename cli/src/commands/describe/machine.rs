//! The page of a machine: its identity, its facts, the receipts on its disks, and its newest workflow.

use landfall_api::{Document, Kind, Machine, MachineFacts, ReceiptState};
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
        let macs: Vec<String> = identity.macs.iter().map(ToString::to_string).collect();
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
        self.receipts(machine)?;
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
        self.field("  Firmware", &format!("{mode} {}{secure}", facts.firmware.version))?;
        self.field("  CPU", &format!("{} x {} ({})", facts.cpu.logical, facts.cpu.model, facts.cpu.architecture))?;
        self.field("  Memory", &human::bytes(facts.memory_bytes))?;
        let mut disks = Columns::new(&["DISK", "SIZE", "TRANSPORT", "MODEL", "SERIAL", "WWN", "PATH"]);
        for disk in &facts.disks {
            let id = &disk.id;
            let cells =
                [&id.name, &human::bytes(id.size_bytes), &disk.transport, &id.model, &id.serial, &id.wwn, &id.path];
            disks.row(cells.into_iter().map(or_dash).collect());
        }
        self.columns(&disks)?;
        if facts.disks.iter().any(|disk| disk.contents.is_some()) {
            self.columns(&contents::columns(&facts.disks))?;
        }
        let mut nics = Columns::new(&["NIC", "MAC", "DRIVER", "LINK"]);
        for nic in &facts.nics {
            let link = match (nic.carrier, nic.speed_mbit) {
                (false, _) => "none".into(),
                (true, Some(speed)) => format!("{speed} Mbit/s"),
                (true, None) => "up".to_owned(),
            };
            nics.row(vec![nic.name.clone(), nic.mac.to_string(), or_dash(nic.driver.clone()), link]);
        }
        self.columns(&nics)
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
