//! Which devices of a machine a boot image can drive.

use std::collections::BTreeSet;

use landfall_api::{DeviceFacts, Document, MachineFacts, ModuleIndex, Sourced};
use serde::Serialize;

use crate::kernel::modinfo::canonical;

/// Drives Mellanox's ConnectX-3, and asks the kernel for what makes it a network port (`request_module`): no index names that.
const MLX4_CORE: &str = "mlx4_core";
const MLX4_NETWORK: &str = "mlx4_en";

/// The modules of a boot image and of its kernel.
#[derive(Debug)]
pub struct Carried<'a> {
    /// Canonical names of those in the image.
    pub modules: &'a BTreeSet<String>,
    /// Canonical names of those that its kernel has built in.
    pub builtin: &'a BTreeSet<String>,
    /// The image's `modules.alias`.
    pub aliases: &'a str,
}

/// What a boot image makes of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Verdict {
    /// It has what drives the device.
    #[serde(rename_all = "camelCase")]
    Driven {
        /// The modules, or the driver's name where it is built in.
        by: Vec<String>,
    },
    /// It does not have these modules, which drove the device when the facts were gathered, or would have.
    #[serde(rename_all = "camelCase")]
    Lacks {
        /// The modules.
        modules: Vec<String>,
    },
    /// The device had no driver when the facts were gathered, and the image has none.
    NoDriver,
    /// The facts name a driver and none of its modules: it was built into the kernel that gathered them, or an older agent did. Whether the
    /// image has it cannot be seen.
    #[serde(rename_all = "camelCase")]
    Unknown {
        /// The driver's name.
        driver: String,
    },
}

/// One device and what the image makes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The machine's name, or the file's where it says none.
    pub machine: String,
    /// `pci` or `usb`.
    pub bus: String,
    /// Where it is on the bus.
    pub address: String,
    /// What it is for, as the facts say it.
    pub class: String,
    /// Vendor's and device's number, `8086:1572`.
    pub id: String,
    /// What the image makes of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Device {
    /// Whether a machine may be unable to reach its coordinator or its disks: it is a storage or a network device that the image does not
    /// drive, as far as can be seen.
    pub fn is_missed(&self) -> bool {
        let needed = ["storage", "network"].contains(&self.class.as_str());
        needed && !matches!(self.verdict, Verdict::Driven { .. })
    }
}

/// The devices of the machines in a file: documents, as `landfall get machine NAME -o yaml` prints them, or the facts that
/// `landfall-agent facts -o json` prints. `source` is the file's name.
///
/// # Errors What is wrong in `text`, a line each, or that a machine has no facts.
pub fn judge(source: &str, text: &str, image: &Carried<'_>) -> Result<Vec<Device>, String> {
    let index = ModuleIndex::parse("", image.aliases, "");
    if let Ok(facts) = serde_json::from_str::<MachineFacts>(text) {
        return some(source, image.devices(&index, source, &facts).collect());
    }
    let documents = Document::from_yaml_str(source, text)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let mut devices = Vec::new();
    for Sourced { document, .. } in documents {
        let Document::Machine(machine) = document else {
            return Err(format!("{source} has a document that is no machine: {}", document.reference()));
        };
        let name = &machine.metadata.name;
        let facts = machine.status.as_ref().and_then(|status| status.facts.as_deref()).ok_or_else(|| {
            format!("machine \"{name}\" in {source} has no facts; its agent sends them when it connects")
        })?;
        devices.extend(image.devices(&index, name, facts));
    }
    some(source, devices)
}

/// # Errors There is none.
fn some(source: &str, devices: Vec<Device>) -> Result<Vec<Device>, String> {
    if devices.is_empty() {
        return Err(format!(
            "{source} names no device on PCI or USB; Landfall cannot judge other buses, nor facts of an older agent"
        ));
    }
    Ok(devices)
}

impl Carried<'_> {
    fn has(&self, module: &str) -> bool {
        let name = canonical(module);
        self.modules.contains(&name) || self.builtin.contains(&name)
    }

    fn devices<'a>(
        &'a self, index: &'a ModuleIndex, machine: &'a str, facts: &'a MachineFacts,
    ) -> impl Iterator<Item = Device> + 'a {
        facts.devices.iter().map(move |device| Device {
            machine: machine.to_owned(),
            bus: device.bus.clone(),
            address: device.address.clone(),
            class: device.class.clone(),
            id: format!("{}:{}", device.vendor, device.device),
            verdict: self.verdict(index, device),
        })
    }

    fn verdict(&self, index: &ModuleIndex, device: &DeviceFacts) -> Verdict {
        // Of a device that has a driver it is what stands behind it, and has none.
        let behind = if device.modalias.is_empty() { Vec::new() } else { index.for_device(&device.modalias) };
        let drivers = device.modules.iter().map(String::as_str).chain(behind.iter().map(|module| module.as_str()));
        let has_halves = device.class == "network" && drivers.map(canonical).any(|name| name == MLX4_CORE);
        let needed = device.modules.iter().map(String::as_str).chain(has_halves.then_some(MLX4_NETWORK));
        let lacking: Vec<_> = needed.filter(|module| !self.has(module)).map(str::to_owned).collect();
        if !lacking.is_empty() {
            return Verdict::Lacks { modules: lacking };
        }
        if !device.driver.is_empty() && !device.modalias.is_empty() && behind.is_empty() {
            return self.missing(device);
        }
        if !device.modules.is_empty() {
            return Verdict::Driven { by: device.modules.clone() };
        }
        if !device.driver.is_empty() {
            let driver = device.driver.clone();
            return if self.has(&driver) { Verdict::Driven { by: vec![driver] } } else { Verdict::Unknown { driver } };
        }
        if behind.is_empty() {
            return self.missing(device);
        }
        Verdict::Driven { by: behind.iter().map(|module| module.as_str().to_owned()).collect() }
    }

    /// Of a device that had no driver, and for which the image's index names none: each of the modules that it lacked would do.
    fn missing(&self, device: &DeviceFacts) -> Verdict {
        let (has, lacks): (Vec<_>, Vec<_>) = device.missing_modules.iter().cloned().partition(|name| self.has(name));
        match (has.is_empty(), lacks.is_empty()) {
            (false, _) => Verdict::Driven { by: has },
            (true, false) => Verdict::Lacks { modules: vec![lacks.join(" or ")] },
            (true, true) => Verdict::NoDriver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = r#"
apiVersion: landfall.dev/v1alpha1
kind: Machine
metadata: {name: node-1}
spec: {identity: {macs: ["52:54:00:00:00:01"]}}
status:
  phase: Available
  conditions: []
  facts: FACTS
"#;

    fn machine(devices: Vec<DeviceFacts>) -> String {
        let facts = MachineFacts { devices, ..MachineFacts::default() };
        MACHINE.replace("FACTS", &serde_json::to_string(&facts).unwrap())
    }

    fn device(class: &str, driver: &str, modules: &[&str], modalias: &str) -> DeviceFacts {
        DeviceFacts {
            bus: "pci".into(),
            address: "0000:00:01.0".into(),
            class: class.into(),
            driver: driver.into(),
            modules: modules.iter().map(|&name| name.to_owned()).collect(),
            modalias: modalias.into(),
            ..DeviceFacts::default()
        }
    }

    fn judged(text: &str) -> Result<Vec<Device>, String> {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let (modules, builtin) = (set(&["virtio_pci", "virtio_net", "e1000e", "mlx4_core"]), set(&["ahci"]));
        judge(
            "node.yaml",
            text,
            &Carried { modules: &modules, builtin: &builtin, aliases: "alias pci:v8086d10* e1000e\n" },
        )
    }

    #[test]
    fn each_device_is_judged_by_its_modules_or_its_modalias() {
        let by = |names: &[&str]| Verdict::Driven { by: names.iter().map(|&name| name.to_owned()).collect() };
        let would_take = |names: &[&str]| DeviceFacts {
            missing_modules: names.iter().map(|&name| name.to_owned()).collect(),
            ..device("network", "", &[], "pci:v8086d15f3")
        };
        let cases = [
            (
                device("network", "virtio-pci", &["virtio_pci", "virtio_net"], ""),
                by(&["virtio_pci", "virtio_net"]),
                false,
            ),
            (device("storage", "ahci", &["ahci"], ""), by(&["ahci"]), false),
            (device("storage", "mpt3sas", &["mpt3sas"], ""), Verdict::Lacks { modules: vec!["mpt3sas".into()] }, true),
            (
                device("serial bus", "xhci_hcd", &["xhci-pci"], ""),
                Verdict::Lacks { modules: vec!["xhci-pci".into()] },
                false,
            ),
            (device("storage", "virtio-pci", &[], ""), by(&["virtio-pci"]), false),
            (device("storage", "nvme", &[], ""), Verdict::Unknown { driver: "nvme".into() }, true),
            (device("network", "virtio-pci", &["virtio_pci"], "virtio:d1v1"), Verdict::NoDriver, true),
            (device("network", "", &[], "pci:v8086d10d3"), by(&["e1000e"]), false),
            (
                device("network", "mlx4_core", &["mlx4_core"], ""),
                Verdict::Lacks { modules: vec!["mlx4_en".into()] },
                true,
            ),
            (device("network", "", &[], "pci:v1d0fdec20"), Verdict::NoDriver, true),
            (device("display", "", &[], "pci:v10de"), Verdict::NoDriver, false),
            (would_take(&["igc"]), Verdict::Lacks { modules: vec!["igc".into()] }, true),
            (would_take(&["igc", "igd"]), Verdict::Lacks { modules: vec!["igc or igd".into()] }, true),
            (would_take(&["igc", "ahci"]), by(&["ahci"]), false),
            (
                DeviceFacts { driver: "virtio-pci".into(), ..would_take(&["virtio_gpu"]) },
                Verdict::Lacks { modules: vec!["virtio_gpu".into()] },
                true,
            ),
        ];
        let text = machine(cases.iter().map(|(device, ..)| device.clone()).collect());
        let judged = judged(&text).unwrap();
        assert_eq!(judged.len(), cases.len());
        for (one, (_, verdict, missed)) in judged.iter().zip(&cases) {
            assert_eq!((&one.verdict, one.is_missed(), one.machine.as_str()), (verdict, *missed, "node-1"));
        }
    }

    #[test]
    fn facts_alone_are_judged_too() {
        let facts = MachineFacts { devices: vec![device("storage", "", &[], "")], ..MachineFacts::default() };
        let judged = judged(&serde_json::to_string(&facts).unwrap()).unwrap();
        assert_eq!(
            judged.iter().map(|one| (one.machine.as_str(), one.is_missed())).collect::<Vec<_>>(),
            [("node.yaml", true)]
        );
    }

    #[test]
    fn files_without_facts_are_refused_with_the_reason() {
        let secret = "apiVersion: landfall.dev/v1alpha1\nkind: Secret\nmetadata: {name: a}\nspec: {data: {b: c}}\n";
        let bare = MACHINE.replace("  facts: FACTS\n", "");
        let empty = machine(Vec::new());
        for (text, reason) in
            [(bare.as_str(), "has no facts"), (empty.as_str(), "no device"), (secret, "no machine"), ("{", "node.yaml")]
        {
            let error = judged(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
