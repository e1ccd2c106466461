//! What the engine goes by.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Action, Machine, Problem, message::ToolsLayer};

use crate::config::{Config, DiscoveryConfig};
use crate::tools_layer::ToolsLayers;

/// What of the configuration the engine goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long an agent may act unheard.
    pub lease: Duration,
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// From the boot script to the enrolment.
    pub boot_token_ttl: Duration,
    /// How long a machine's certificate is good for.
    pub certificate_ttl: Duration,
    /// From the reboot to the phone-home, where the template names none.
    pub phone_home_deadline: Duration,
    /// From the request of a workflow to its machine's agent.
    pub netboot_deadline: Duration,
    /// The address at which machines reach this coordinator.
    pub advertise: IpAddr,
    /// Where installed systems phone home.
    pub phone_home_url: String,
    /// The coordinators that take this one's place, `https://host:port`.
    pub others: Vec<String>,
    /// A large file of the coordinator's own, for tests of the network.
    pub boot_image_url: String,
    /// The boot medium of x86-64 machines, for their BMCs; absent: there is none.
    pub medium_url: Option<String>,
    /// That of arm64 machines.
    pub arm64_medium_url: Option<String>,
    /// How many installs run at once; at least 1.
    pub parallel_installs: usize,
    /// Between two machines that are switched on.
    pub power_on_interval: Duration,
    /// Which machines may be discovered.
    pub discovery: DiscoveryConfig,
    /// What actions need that the agent cannot perform itself.
    pub tools: ToolsLayers,
    /// This coordinator's URL, where several have one database.
    pub own: Option<Arc<str>>,
}

impl Settings {
    /// As configured. `tools`: what [`crate::tools_layer::read`] found.
    pub fn from_config(config: &Config, tools: ToolsLayers) -> Self {
        Self {
            lease: config.limits.lease.get(),
            heartbeat: config.limits.heartbeat.get(),
            boot_token_ttl: config.limits.boot_token_ttl.get(),
            certificate_ttl: config.limits.certificate_ttl.get(),
            phone_home_deadline: config.limits.phone_home_deadline.get(),
            netboot_deadline: config.limits.netboot_deadline.get(),
            advertise: config.advertise,
            phone_home_url: format!("{}/phone-home", config.tls_url()),
            others: config.others.clone(),
            boot_image_url: format!("{}/boot/initramfs", config.http_url()),
            medium_url: config.boot.iso.as_ref().map(|_| format!("{}/boot/landfall.iso", config.http_url())),
            arm64_medium_url: (config.boot.arm64.iso.as_ref())
                .map(|_| format!("{}/boot/landfall-arm64.iso", config.http_url())),
            parallel_installs: config.limits.parallel_installs as usize,
            power_on_interval: config.limits.power_on_interval.get(),
            discovery: config.discovery.clone(),
            tools,
            own: config.store.url.is_some().then(|| config.tls_url().into()),
        }
    }

    /// The layer that these actions of a list for the machine need; `None`: none of them needs it. Of a list that makes a layout
    /// (`lays_out`) actions that the agent performs itself need it too: the worker opens for them what `storage` made.
    ///
    /// # Errors
    /// [`Problem`] with code `NoToolsLayer`: one of them needs it, and there is none for such a machine.
    pub fn tools_for<'a>(
        &self, machine: &Machine, lays_out: bool, actions: impl IntoIterator<Item = &'a Action>,
    ) -> Result<Option<&ToolsLayer>, Problem> {
        let Some(needs) = actions.into_iter().find(|action| needs_layer(action, lays_out)) else { return Ok(None) };
        let facts = machine.status.as_ref().and_then(|status| status.facts.as_ref());
        let known = facts.map(|facts| facts.cpu.architecture.as_str()).filter(|architecture| !architecture.is_empty());
        self.tools.of(known).map(Some).map_err(|mut problem| {
            problem.message = format!("action \"{}\" needs the tools layer: {}", needs.name, problem.message);
            problem.at(format!("{}.{}", needs.name, needs.spec.key()))
        })
    }
}

/// Whether an action of a list needs the layer; `lays_out`: the list makes a layout, which is opened, or committed before what starts
/// it or writes another system.
const fn needs_layer(action: &Action, lays_out: bool) -> bool {
    let info = action.spec.info();
    info.tools || lays_out && (info.means_written_disk || info.writes_image || info.is_last_step())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_done_on_a_layout_needs_the_layer() {
        let action = |value| serde_json::from_value::<Action>(value).unwrap();
        let disks = action(json!({"name": "disks", "storage": {"disks": [{"partitions": [{"role": "root"}]}]}}));
        let seed = action(json!({"name": "seed", "cloudInit": {}}));
        let restart = action(json!({"name": "restart", "reboot": {}}));
        let needs = |lays_out| [&disks, &seed, &restart].map(|action| needs_layer(action, lays_out));
        assert_eq!(needs(true), [true, true, true]);
        assert_eq!(needs(false), [true, false, false], "the seed of an image");
    }
}
