//! Hardware: a machine, and what a template's actions take from it.

use landfall_api::{MacAddr, YamlNode, YamlValue};
use serde_json::{Map, Value, json};

use super::mask::Expressions;
use crate::fields::{Fields, text_of};
use crate::report::Report;
use crate::{names, todo};

/// One Hardware document.
#[derive(Debug)]
pub(super) struct Hardware {
    /// The file that it stands in.
    pub(super) file: String,
    /// As Workflows name it.
    pub(super) name: String,
    /// The machine's name.
    pub(super) machine: String,
    /// The first line of the document.
    pub(super) line: u64,
    spec: YamlNode,
}

impl Hardware {
    /// Reads a document of that kind.
    pub(super) fn read(file: &str, name: &str, document: &YamlNode) -> Self {
        let empty = YamlNode { line: document.line, column: 1, value: YamlValue::Map(Vec::new()) };
        let spec = Fields::of(document).and_then(|mut fields| fields.get("spec")).cloned().unwrap_or(empty);
        let machine = names::label(name, "machine");
        Self { file: file.to_owned(), name: name.to_owned(), machine, line: document.line, spec }
    }

    /// The value of a path such as `Hardware`, `Disks`, `0`; names as Go's structures or as YAML has them.
    pub(super) fn value(&self, path: &[String]) -> Option<String> {
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        let mut names = path.iter().skip(1).peekable();
        names.next_if(|name| plain(name) == "spec");
        let mut node = &self.spec;
        for name in names {
            node = match &node.value {
                YamlValue::List(items) => items.get(name.parse::<usize>().ok()?)?,
                YamlValue::Map(fields) => &fields.iter().find(|field| plain(&field.name) == plain(name))?.node,
                YamlValue::Scalar { .. } => return None,
            };
        }
        // A disk stands for its device.
        match &node.value {
            YamlValue::Map(_) => text_of(Fields::of(node)?.get("device")?),
            _ => text_of(node),
        }
    }

    /// The `storage` of the instance's metadata, which rootio follows.
    pub(super) fn storage(&self) -> Option<&YamlNode> {
        Fields::of(&self.spec)?.map("metadata")?.map("instance")?.get("storage")
    }

    /// The user-data, masked.
    pub(super) fn user_data(&self) -> Option<(String, &YamlNode)> {
        let mut spec = Fields::of(&self.spec)?;
        let node = spec
            .get("userData")
            .or_else(|| spec.map("instance")?.get("userdata"))
            .or_else(|| spec.map("metadata")?.map("instance")?.get("userdata"))?;
        Some((text_of(node)?, node))
    }

    /// The document of the machine.
    pub(super) fn machine(&self, labels: Map<String, Value>, expressions: &Expressions, report: &mut Report) -> Value {
        let mut macs = Vec::new();
        let Some(mut spec) = Fields::of(&self.spec) else {
            report.todo(self.line, "the Hardware has no spec; add the addresses of its ports");
            return self.document(&labels, vec![todo::value("mac")]);
        };
        for interface in spec.list("interfaces") {
            self.interface(interface, &mut macs, expressions, report);
        }
        if let Some(YamlValue::Map(interfaces)) = spec.get("networkInterfaces").map(|node| &node.value) {
            for interface in interfaces {
                mac(&interface.name, interface.line, &mut macs, expressions, report);
                if let Some(mut fields) = Fields::of(&interface.node) {
                    dhcp(&mut fields, report);
                    fields.finish("the interface", report);
                }
            }
        }
        if macs.is_empty() {
            report.todo(self.line, "the Hardware has no MAC address; add those of the ports that it may netboot from");
            macs.push(todo::value("mac"));
        }
        spec.get("disks");
        self.metadata(&mut spec, report);
        spec.get("userData");
        let bmc = "state the BMC in the machine's spec.bmc, and its account in a Secret (docs/power.md)";
        spec.no_counterpart(&["bmcRef", "bmc"], bmc, report);
        spec.no_counterpart(&["vendorData"], "put it into the cloudInit action of the template", report);
        spec.no_counterpart(&["references"], "state what templates take from there as parameters", report);
        spec.not_needed(&["tinkVersion", "agentID", "arch", "resources", "auto"], "the agent reports facts", report);
        spec.finish("the Hardware", report);
        report.count("document Hardware", true);
        self.document(&labels, macs)
    }

    fn document(&self, labels: &Map<String, Value>, macs: Vec<String>) -> Value {
        let mut metadata = json!({"name": self.machine});
        if let (false, Some(fields)) = (labels.is_empty(), metadata.as_object_mut()) {
            fields.insert("labels".to_owned(), Value::Object(labels.clone()));
        }
        json!({"apiVersion": landfall_api::API_VERSION, "kind": "Machine", "metadata": metadata,
            "spec": {"identity": {"macs": macs}}})
    }

    fn interface(&self, node: &YamlNode, macs: &mut Vec<String>, expressions: &Expressions, report: &mut Report) {
        let Some(mut fields) = Fields::of(node) else { return };
        if let Some(mut dhcp) = fields.map("dhcp") {
            if let Some(text) = dhcp.text("mac") {
                mac(&text.text, text.line, macs, expressions, report);
            }
            if let Some(name) = dhcp.text("hostname")
                && names::label(&expressions.unmask(&name.text), "") != self.machine
            {
                let message = "the host name differs from the machine's name, which is the default; state hostname in a \
                    cloudInit action";
                report.todo(name.line, message);
            }
            let why = "state the address in the machine's spec.reservations, or in your DHCP server";
            dhcp.no_counterpart(
                &["ip", "name_servers", "time_servers", "domain_name", "classless_static_routes"],
                why,
                report,
            );
            dhcp.not_needed(&["lease_time", "uefi", "arch", "iface_name"], "the firmware's request tells", report);
            dhcp.no_counterpart(&["vlan_id"], "ports netboot untagged", report);
            dhcp.finish("dhcp", report);
        }
        netboot(&mut fields, report);
        fields.no_counterpart(&["isoboot"], "Landfall starts its own image over the network", report);
        fields.not_needed(&["disableDhcp"], "the coordinator answers beside your DHCP server", report);
        fields.finish("the interface", report);
    }

    fn metadata(&self, spec: &mut Fields<'_>, report: &mut Report) {
        for name in ["metadata", "instance"] {
            let Some(mut metadata) = spec.map(name) else { continue };
            if let Some(mut instance) = metadata.map("instance") {
                // Read where a template needs them.
                for read in ["storage", "userdata"] {
                    instance.get(read);
                }
                instance_fields(&mut instance, report);
                instance.finish("the instance", report);
            }
            if name == "instance" {
                metadata.get("userdata");
                instance_fields(&mut metadata, report);
            }
            let why = "the machine's name and labels describe it";
            metadata.not_needed(&["facility", "manufacturer", "state", "custom", "bonding_mode"], why, report);
            metadata.finish("the metadata", report);
        }
    }
}

fn instance_fields(instance: &mut Fields<'_>, report: &mut Report) {
    let why = "the machine's name and labels describe it";
    let known = ["id", "lookupID", "hostname", "state", "operating_system", "operating_system_version", "tags", "plan"];
    instance.not_needed(&known, why, report);
    instance.not_needed(&["allow_pxe", "always_pxe", "rescue", "network_ready"], "the workflow decides", report);
    instance.no_counterpart(
        &["ssh_keys", "sshKeys"],
        "list them in a cloudInit action: users: [{ sshKeys: […] }]",
        report,
    );
    let hash = "apply it as a Secret, and refer to it in a cloudInit action";
    instance.no_counterpart(&["crypted_root_password"], hash, report);
    instance.no_counterpart(&["ips", "networkConfig"], "write it as network of a cloudInit action", report);
    instance.no_counterpart(&["vendordata"], "put it into the cloudInit action of the template", report);
}

fn mac(text: &str, line: u64, macs: &mut Vec<String>, expressions: &Expressions, report: &mut Report) {
    let written = expressions.unmask(text);
    match written.parse::<MacAddr>() {
        Ok(mac) => macs.push(mac.to_string()),
        Err(_) => {
            let message = format!("\"{written}\" is not a MAC address; write six octets such as 52:54:00:12:34:56");
            report.todo(line, message);
            macs.push(todo::value("mac"));
        }
    }
}

fn netboot(fields: &mut Fields<'_>, report: &mut Report) {
    let Some(mut netboot) = fields.map("netboot") else { return };
    for name in ["allowPXE", "allowWorkflow"] {
        if netboot.has(name) && netboot.truth(name) == Some(false) {
            let message = format!(
                "{name} is false; write management: external in the machine's spec if Landfall is never to install it"
            );
            report.todo(netboot.line_of(name), message);
        }
    }
    let own = "Landfall serves its own boot scripts and boot image";
    netboot.no_counterpart(&["ipxe", "osie", "pxelinux", "rpi"], own, report);
    netboot.finish("netboot", report);
}

/// Of the newer shape of Hardware.
fn dhcp(fields: &mut Fields<'_>, report: &mut Report) {
    let why = "state the address in the machine's spec.reservations, or in your DHCP server";
    fields.no_counterpart(&["dhcp", "ipam"], why, report);
    fields.no_counterpart(&["netboot"], "Landfall serves its own boot scripts and boot image", report);
}

/// Labels that documents take.
pub(super) fn labels(metadata: &mut Fields<'_>, expressions: &Expressions) -> Map<String, Value> {
    let Some(YamlValue::Map(fields)) = metadata.get("labels").map(|node| &node.value) else { return Map::new() };
    let text = |node: &YamlNode| text_of(node).map(|text| expressions.unmask(&text));
    fields.iter().filter_map(|field| Some((field.name.clone(), text(&field.node)?.into()))).collect()
}
