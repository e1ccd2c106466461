//! What the engine goes by.

use std::time::Duration;

use landfall_api::{Action, ErrorCode, Problem, message::ToolsLayer};

use crate::config::{Config, DiscoveryConfig};

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
    /// Where installed systems phone home.
    pub phone_home_url: String,
    /// How many installs run at once; at least 1.
    pub parallel_installs: usize,
    /// Which machines may be discovered.
    pub discovery: DiscoveryConfig,
    /// What actions need that the agent cannot perform itself.
    pub tools: Option<ToolsLayer>,
}

impl Settings {
    /// As configured. `tools`: what [`crate::tools_layer::read`] found.
    pub fn from_config(config: &Config, tools: Option<ToolsLayer>) -> Self {
        Self {
            lease: config.limits.lease.get(),
            heartbeat: config.limits.heartbeat.get(),
            boot_token_ttl: config.limits.boot_token_ttl.get(),
            certificate_ttl: config.limits.certificate_ttl.get(),
            phone_home_deadline: config.limits.phone_home_deadline.get(),
            netboot_deadline: config.limits.netboot_deadline.get(),
            phone_home_url: format!("{}/phone-home", config.tls_url()),
            parallel_installs: config.limits.parallel_installs as usize,
            discovery: config.discovery.clone(),
            tools,
        }
    }

    /// Why these actions cannot be done: one of them needs the tools layer, and there is none.
    pub fn without_tools<'a>(&self, actions: impl IntoIterator<Item = &'a Action>) -> Option<Problem> {
        let needs = actions.into_iter().find(|action| action.spec.info().tools).filter(|_| self.tools.is_none())?;
        let message = format!("action \"{}\" needs the tools layer, and this coordinator has none", needs.name);
        let hint =
            "make one with landfall-image tools, name it as boot.tools in the coordinator's configuration, and reload";
        Some(Problem::new(ErrorCode::NoToolsLayer, message).hint(hint).at(format!(
            "{}.{}",
            needs.name,
            needs.spec.key()
        )))
    }
}
