//! Rules across the fields of a document, which a schema cannot express.

mod actions;
mod template;

use std::collections::BTreeMap;

use serde_json::Value;

pub use actions::MAX_ACTIONS;

use crate::action::Rules;
use crate::dns_label::{LABEL_HINT, is_dns_label};
use crate::expression::check_expressions;
use crate::issue::{Issue, join, one_problem};
use crate::{
    Action, BmcProtocol, BmcSpec, Digest, Document, EnrolmentRule, ErrorCode, InterfaceError, MacAddr, Machine,
    MachineSpec, ManualPower, Metadata, NetworkInterface, Pool, PowerSpec, Problem, Reservation, Secret, SuccessOn,
    WipeSpec, Workflow, is_bmc_place,
};

/// More ports than any machine netboots from.
const MAX_MACS: usize = MachineSpec::MAX_MACS;

/// More machines than one coordinator has.
const MAX_REPLICAS: u32 = 100_000;

/// Characters that tell a person where a machine is.
const MAX_MESSAGE: usize = 200;

/// Labels of one document, or given by one rule.
const MAX_LABELS: usize = 64;
/// Bytes of a label's value.
const MAX_LABEL_VALUE: usize = 253;

impl Document {
    /// Checks rules across fields.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidDocument` or `InvalidTemplate` naming the field; further faults are its causes.
    pub fn validate(&self) -> Result<(), Problem> {
        let issues = self.issues();
        if issues.is_empty() { Ok(()) } else { Err(one_problem(issues)) }
    }

    /// What [`Document::validate`] finds, each fault a problem of its own: for programs that show the place of each. The subject is
    /// the field's path, such as `spec.identity.macs[0]`. Empty if the document is valid.
    pub fn faults(&self) -> Vec<Problem> {
        self.issues().into_iter().map(Issue::into_problem).collect()
    }

    pub(crate) fn issues(&self) -> Vec<Issue> {
        let mut issues = Vec::new();
        metadata(self.metadata(), &mut issues);
        match self {
            Self::Machine(machine) => self::machine(machine, &mut issues),
            Self::Template(template) => template::template(template, &mut issues),
            Self::Workflow(workflow) => self::workflow(workflow, &mut issues),
            Self::Secret(secret) => self::secret(secret, &mut issues),
            Self::EnrolmentRule(rule) => self::enrolment_rule(rule, &mut issues),
            Self::Pool(pool) => self::pool(pool, &mut issues),
        }
        issues
    }
}

/// Checks a rendered list: what [`Document::validate`] checks of a template, without allowance for expressions.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate` naming the field, such as `actions[0].writeImage.image.digest`.
pub fn validate_actions(actions: &[Action]) -> Result<(), Problem> {
    validate_rendered(actions, &[], None)
}

/// Checks rendered lists and the template's success rule: what [`Document::validate`] checks of a template, without
/// allowance for expressions.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate` naming the field, such as `actions[0].writeImage.image.digest`.
pub fn validate_rendered(
    actions: &[Action], on_failure: &[Action], success_on: Option<SuccessOn>,
) -> Result<(), Problem> {
    let mut issues = Vec::new();
    let trees = |list: &[Action]| list.iter().map(serde_json::to_value).collect::<Result<Vec<Value>, _>>();
    match trees(actions).and_then(|main| Ok((main, trees(on_failure)?))) {
        Ok((main, after)) => {
            let lists = Lists {
                template: "",
                fragment: false,
                expressions: false,
                actions: &main,
                on_failure: &after,
                success_on,
            };
            Rules::new(&mut issues).lists(&lists, "");
        }
        Err(error) => issues.push(Issue::new("actions", error.to_string(), "")),
    }
    if issues.is_empty() {
        return Ok(());
    }
    Err(one_problem(issues.into_iter().map(|issue| issue.coded(ErrorCode::InvalidTemplate)).collect()))
}

fn metadata(metadata: &Metadata, issues: &mut Vec<Issue>) {
    label(&metadata.name, "metadata.name", "a name", issues);
    labels(&metadata.labels, "metadata.labels", issues);
}

/// Keys, values and their number. Kubernetes sets no number but bounds every value by 63 characters; here a value may be
/// longer, and the number is far above what people write.
fn labels(labels: &BTreeMap<String, String>, path: &str, issues: &mut Vec<Issue>) {
    if labels.len() > MAX_LABELS {
        let message = format!("there are {} labels; at most {MAX_LABELS} are taken", labels.len());
        // Nothing is said of each: that many sentences help less than one.
        return issues.push(Issue::new(path, message, "keep longer descriptions outside of the document"));
    }
    for (key, value) in labels {
        label_key(key, path, issues);
        if value.len() > MAX_LABEL_VALUE || value.contains(char::is_control) {
            let hint = format!("use at most {MAX_LABEL_VALUE} bytes, on one line");
            issues.push(Issue::new(join(path, key), "the label's value is too long or has control characters", hint));
        }
    }
}

fn label_key(key: &str, path: &str, issues: &mut Vec<Issue>) {
    if key.is_empty() || key.len() > 253 || key.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let hint = "use 1 to 253 characters without spaces";
        issues.push(Issue::new(join(path, key), format!("\"{key}\" is not a label's name"), hint));
    }
}

fn label(text: &str, path: &str, what: &str, issues: &mut Vec<Issue>) {
    if !is_dns_label(text) {
        issues.push(Issue::new(path, format!("\"{text}\" cannot be {what}"), LABEL_HINT));
    }
}

fn machine(machine: &Machine, issues: &mut Vec<Issue>) {
    network(&machine.spec.network, issues);
    reservations(&machine.spec.reservations, issues);
    if let Some(spec) = &machine.spec.bmc {
        bmc(spec, issues);
    }
    if machine.spec.power.is_some() && machine.spec.bmc.is_some() {
        issues.push(Issue::new("spec.power", "the machine has a BMC too", "keep spec.bmc, which can do more"));
    }
    if let Some(PowerSpec::Manual(ManualPower { message: Some(message) })) = &machine.spec.power
        && (message.chars().count() > MAX_MESSAGE || message.contains(char::is_control))
    {
        let hint = format!("write one line of at most {MAX_MESSAGE} characters");
        issues.push(Issue::new("spec.power.manual.message", "the message is too long, or has several lines", hint));
    }
    if let Some(PowerSpec::WakeOnLan(spec)) = &machine.spec.power {
        let at = "spec.power.wakeOnLan";
        for (n, mac) in spec.macs.iter().enumerate() {
            port(*mac, &format!("{at}.macs[{n}]"), issues);
        }
        if spec.macs.len() > MAX_MACS {
            let message = format!("there are {} addresses; the limit is {MAX_MACS}", spec.macs.len());
            issues.push(Issue::new(join(at, "macs"), message, "list the ports that wake the machine alone"));
        }
        if spec.port == Some(0) {
            issues.push(Issue::new(join(at, "port"), "0 is no port", "leave it out for 9"));
        }
    }
    let identity = &machine.spec.identity;
    let lists_ports =
        |bmc: &BmcSpec| matches!(bmc.address.protocol(), BmcProtocol::Redfish | BmcProtocol::PlainRedfish);
    let by_bmc = machine.spec.bmc.as_ref().is_some_and(lists_ports) && identity.is_empty();
    if identity.macs.is_empty() && !by_bmc {
        let hint =
            "list the addresses of the ports it may netboot from; a machine whose BMC has Redfish needs no identity";
        issues.push(Issue::new("spec.identity.macs", "a machine needs at least one MAC address", hint));
    }
    if identity.macs.len() > MAX_MACS {
        let message = format!("there are {} addresses; the limit is {MAX_MACS}", identity.macs.len());
        issues.push(Issue::new("spec.identity.macs", message, "list only the ports it may netboot from"));
    }
    let mut seen = BTreeMap::new();
    for (i, mac) in identity.macs.iter().enumerate() {
        let path = format!("spec.identity.macs[{i}]");
        if let Some(first) = seen.insert(*mac, i) {
            issues.push(Issue::new(
                &path,
                format!("{mac} is listed twice (also at [{first}])"),
                "remove one of the two",
            ));
        }
        port(*mac, &path, issues);
    }
    if identity.serial.as_deref().is_some_and(|s| s.trim().is_empty()) {
        issues
            .push(Issue::new("spec.identity.serial", "an empty serial number matches nothing", "leave the field out"));
    }
}

fn port(mac: MacAddr, path: &str, issues: &mut Vec<Issue>) {
    if !mac.is_of_a_port() {
        let message = format!("{mac} is a group address, which a port cannot have");
        issues.push(Issue::new(path, message, "write the address printed on the port or shown by the firmware"));
    }
}

/// Bytes that a machine's network may take of the kernel's command line, which holds 2048 on x86 (COMMAND_LINE_SIZE): the coordinator's
/// address, its pins, the token and words of the configuration stand there as well.
const MAX_NETWORK_BYTES: usize = 1024;

fn network(network: &[NetworkInterface], issues: &mut Vec<Issue>) {
    for (n, interface) in network.iter().enumerate() {
        let wrong = interface.check().and_then(|()| interface.check_beside(&network[..n]));
        if let Err(InterfaceError { field, what, hint }) = wrong {
            let path = format!("spec.network[{n}]");
            let path = if field.is_empty() { path } else { join(&path, field) };
            issues.push(Issue::new(path, what, hint));
        }
    }
    let bytes: usize = network.iter().map(|interface| interface.to_string().len()).sum();
    if bytes > MAX_NETWORK_BYTES {
        let message = format!("it takes {bytes} bytes of the kernel's command line; the limit is {MAX_NETWORK_BYTES}");
        issues.push(Issue::new(
            "spec.network",
            message,
            "leave out name servers and routes that the agent does not need",
        ));
    }
}

fn reservations(reservations: &[Reservation], issues: &mut Vec<Issue>) {
    if reservations.len() > MAX_MACS {
        let message = format!("there are {} addresses; the limit is {MAX_MACS}", reservations.len());
        issues.push(Issue::new("spec.reservations", message, "list only ports of this machine"));
    }
    for (n, Reservation { mac, address }) in reservations.iter().enumerate() {
        port(*mac, &format!("spec.reservations[{n}].mac"), issues);
        let mut issue = |field: &str, message: String, hint: &str| {
            issues.push(Issue::new(format!("spec.reservations[{n}].{field}"), message, hint));
        };
        if reservations[..n].iter().any(|other| other.mac == *mac) {
            issue("mac", format!("{mac} has two addresses"), "remove one of the two");
        }
        if reservations[..n].iter().any(|other| other.address == *address) {
            issue("address", format!("{address} is reserved for two ports"), "remove one of the two");
        }
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback() {
            issue("address", format!("{address} is not an address of a host"), "write one of the port's subnet");
        }
    }
}

/// Certificates of authorities that one BMC may name.
const MAX_AUTHORITIES: usize = 16;

fn bmc(spec: &BmcSpec, issues: &mut Vec<Issue>) {
    label(&spec.credentials, "spec.bmc.credentials", "a secret's name", issues);
    if spec.certificate.is_some_and(|digest| !matches!(digest, Digest::Sha256(_))) {
        let hint = "write sha256: and the 64 hexadecimal digits that the condition BMCReachable shows";
        issues.push(Issue::new("spec.bmc.certificate", "a certificate is named by its SHA-256 digest", hint));
    }
    let without = match spec.address.protocol() {
        BmcProtocol::Redfish | BmcProtocol::Webhook => None,
        BmcProtocol::PlainRedfish => Some("redfish+http:// has no certificate"),
        BmcProtocol::Ipmi => Some("ipmi:// has no certificate"),
        BmcProtocol::PlainWebhook => Some("webhook+http:// has no certificate"),
    };
    if let Some(message) = without {
        let hint = "remove it, or write redfish+https://";
        for (named, field) in
            [(spec.certificate.is_some(), "certificate"), (!spec.ca_certificates.is_empty(), "caCertificates")]
        {
            if named {
                issues.push(Issue::new(join("spec.bmc", field), message, hint));
            }
        }
    }
    if let Some(console) = spec.console.as_ref().filter(|console| console.protocol() != BmcProtocol::Ipmi) {
        let message = format!("\"{console}\" is not an address of IPMI, which the serial console needs");
        let hint = format!("write ipmi://{}", console.host());
        issues.push(Issue::new("spec.bmc.console", message, hint));
    }
    for (n, way) in spec.ways.iter().enumerate() {
        let at = format!("spec.bmc.ways[{n}]");
        if spec.ways[..n].contains(way) {
            issues.push(Issue::new(at, format!("{way} is there twice"), "each way is tried once; remove one"));
        } else if !spec.has(*way) {
            issues.push(Issue::new(
                at,
                format!("{} has no {way}", spec.address),
                "remove it, or write redfish+https://",
            ));
        }
    }
    match &spec.webhook {
        Some(webhook) if spec.address.protocol().is_webhook() => webhook.check("spec.bmc.webhook", issues),
        Some(_) => {
            let hint = "remove it, or write webhook+https:// in the address";
            issues.push(Issue::new("spec.bmc.webhook", format!("{} is no webhook", spec.address), hint));
        }
        None if spec.address.protocol().is_webhook() => {
            let hint = "state the calls on, off and status";
            issues.push(Issue::new("spec.bmc.webhook", "the calls are missing", hint));
        }
        None => {}
    }
    if spec.ca_certificates.len() > MAX_AUTHORITIES {
        let message = format!("there are {}; the limit is {MAX_AUTHORITIES}", spec.ca_certificates.len());
        issues.push(Issue::new("spec.bmc.caCertificates", message, "name the authorities of this BMC alone"));
    }
}

fn workflow(workflow: &Workflow, issues: &mut Vec<Issue>) {
    label(&workflow.spec.machine, "spec.machine", "a machine's name", issues);
    if workflow.spec.template != crate::BUILT_IN_DEPROVISION {
        label(&workflow.spec.template, "spec.template", "a template's name", issues);
    }
}

/// Bytes of all of a secret's values together: keys and certificates, not images.
const MAX_SECRET_BYTES: usize = 256 << 10;

fn secret(secret: &Secret, issues: &mut Vec<Issue>) {
    for key in secret.spec.data.keys() {
        let identifier = (1..=63).contains(&key.len())
            && key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !identifier {
            let hint = "use letters, digits and \"_\", at most 63, not beginning with a digit";
            issues.push(Issue::new(join("spec.data", key), format!("\"{key}\" cannot be a key"), hint));
        }
    }
    let bytes: usize = secret.spec.data.values().map(String::len).sum();
    if bytes > MAX_SECRET_BYTES {
        let message = format!("the values have {bytes} bytes; the limit is {MAX_SECRET_BYTES}");
        issues.push(Issue::new(
            "spec.data",
            message,
            "a secret is for keys and passwords; serve large files over HTTP",
        ));
    }
    for (n, machine) in secret.spec.machines.iter().enumerate() {
        label(machine, &format!("spec.machines[{n}]"), "a machine's name", issues);
    }
    for (n, place) in secret.spec.bmcs.iter().enumerate().filter(|(_, place)| !is_bmc_place(place)) {
        let hint = "write a network such as 192.0.2.0/24, an address, a host's name, or *. and a domain";
        issues.push(Issue::new(format!("spec.bmcs[{n}]"), format!("\"{place}\" names no BMC"), hint));
    }
}

fn when(when: &BTreeMap<String, String>, issues: &mut Vec<Issue>) {
    for (path, fault) in crate::fact_match::faults(when) {
        let hint = "the facts are those that `landfall get machine NAME -o yaml` shows under status.facts";
        issues.push(Issue::new(join("spec.when", &path), fault.to_string(), hint));
    }
}

fn pool(pool: &Pool, issues: &mut Vec<Issue>) {
    let spec = &pool.spec;
    label(&spec.template, "spec.template", "a template's name", issues);
    when(&spec.when, issues);
    labels(&spec.match_labels, "spec.matchLabels", issues);
    if spec.replicas > MAX_REPLICAS {
        let hint = format!("write a number from 0 to {MAX_REPLICAS}");
        issues.push(Issue::new("spec.replicas", format!("{} machines are too many", spec.replicas), hint));
    }
    if spec.match_labels.is_empty() && spec.when.is_empty() {
        let hint = "state the labels of its machines, such as matchLabels: {rack: r7}";
        issues.push(Issue::new("spec.matchLabels", "the pool would claim any machine", hint));
    }
    if spec.max_unavailable == 0 {
        let hint = "write 1 or more; `paused: true` has nothing begin";
        issues.push(Issue::new("spec.maxUnavailable", "0 machines at once install none", hint));
    }
    let release = WipeSpec { disks: Vec::new(), level: spec.release.level, fallback: spec.release.fallback.clone() };
    if let Err(problem) = release.check_levels() {
        issues.push(Issue::new("spec.release.fallback", problem.message, problem.hint));
    }
}

fn enrolment_rule(rule: &EnrolmentRule, issues: &mut Vec<Issue>) {
    when(&rule.spec.when, issues);
    if let Some(template) = &rule.spec.template {
        label(template, "spec.template", "a template's name", issues);
    }
    labels(&rule.spec.labels, "spec.labels", issues);
    if let Some(name) = &rule.spec.name {
        rule_name(name, issues);
    }
}

/// An expression over `facts`.
fn rule_name(text: &str, issues: &mut Vec<Issue>) {
    let path = "spec.name";
    if let Err(error) = check_expressions(text) {
        return issues.push(Issue::new(path, error.to_string(), error.hint()));
    }
    let hint = "write an expression such as {{ facts.smbios.serial }}";
    match minijinja::Environment::new().template_from_str(text) {
        Ok(template) => {
            if let Some(other) = template.undeclared_variables(false).into_iter().find(|name| name != "facts") {
                issues.push(Issue::new(path, format!("\"{other}\" is an unknown name"), hint));
            }
        }
        Err(error) => {
            let message = format!("the expression does not parse: {}", error.detail().unwrap_or("syntax error"));
            issues.push(Issue::new(path, message, hint));
        }
    }
}

/// The lists of a template, or rendered lists, and the success rule.
struct Lists<'a> {
    /// The template's name; empty for rendered lists.
    template: &'a str,
    /// Whether other actions may stand around them.
    fragment: bool,
    /// Whether an expression may stand for any value: so in a template, not in a rendered list.
    expressions: bool,
    actions: &'a [Value],
    on_failure: &'a [Value],
    success_on: Option<SuccessOn>,
}

impl Lists<'_> {
    /// Whether actions belong to the main list that are not in it yet.
    fn is_open(&self) -> bool {
        self.fragment || self.actions.iter().any(crate::list_item::is_open)
    }
}

#[cfg(test)]
pub(crate) mod tests;
