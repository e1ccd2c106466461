//! What the engine goes by.

use std::time::Duration;

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
}

impl Settings {
    /// As configured.
    pub fn from_config(config: &Config) -> Self {
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
        }
    }
}
