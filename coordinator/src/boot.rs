//! The boot services' view of the engine: the one place where [`BootPolicy`] meets the rest of the coordinator.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use async_trait::async_trait;
use landfall_api::MacAddr;
use uuid::Uuid;

use landfall_boot::dhcp::lease_file::LeaseFile;
use landfall_boot::http::layer::Layer;
use landfall_boot::policy::{
    BootPolicy, Decision, PolicyError, PublicFacts, Reservations, Service, SharedFile, Unserved,
};
use landfall_boot::{BootError, BootServices};

use landfall_edge::gate::Limiter;

use crate::dhcp_leases::SharedLeases;
use crate::engine::by_token_only;
use crate::state::Coordinator;

/// Ports a second that are remembered anew: any host can send in the name of as many as it likes, and each pushes another one out.
static NEW_SIGHTINGS: Limiter = Limiter::a_second(100);

impl Reservations for Coordinator {
    fn address_for(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.engine.boot().address_for(mac)
    }

    fn reserved_for(&self, address: Ipv4Addr) -> Option<MacAddr> {
        self.engine.boot().reserved_for(address)
    }
}

#[async_trait]
impl BootPolicy for Coordinator {
    async fn decide(
        &self, mac: MacAddr, smbios_uuid: Option<Uuid>, from: Option<IpAddr>,
    ) -> Result<Decision, PolicyError> {
        if self.has_lost_store_to_others() {
            return Err(PolicyError { mac, reason: "this coordinator has lost its store".to_owned() });
        }
        let decided = self.engine.boot().boot_decision_from(mac, smbios_uuid, from).await;
        decided.map_err(|problem| PolicyError { mac, reason: problem.to_string() })
    }

    async fn known(&self, mac: MacAddr) -> Result<bool, PolicyError> {
        Ok(self.engine.boot().known_mac(mac).await)
    }

    async fn machine(&self, mac: MacAddr) -> Result<Option<PublicFacts>, PolicyError> {
        let Some(name) = self.engine.boot().machine_of_mac(mac) else { return Ok(None) };
        match self.store.machine(&name).await {
            // Nothing: deleted between the two questions.
            Ok(found) => Ok(found.and_then(|machine| {
                let by_token_only = by_token_only(&machine);
                machine.metadata.uid.map(|uid| PublicFacts { name, uid, by_token_only })
            })),
            Err(error) => Err(PolicyError { mac, reason: error.to_string() }),
        }
    }

    fn gives_addresses(&self) -> bool {
        self.engine.fleet().is_sure_to_lead().is_ok()
    }

    fn can_serve(&self) -> bool {
        !self.engine.fleet().has_lost_store()
    }

    fn shared_file(&self) -> Option<Arc<dyn SharedFile>> {
        self.config.store.url.as_ref()?;
        let before = LeaseFile::own(&self.config.data_dir);
        let still_leads = self.engine.fleet().beside().still_leads();
        Some(Arc::new(SharedLeases::new(self.store.clone(), before, still_leads)))
    }

    fn unserved(&self, request: Unserved) {
        if self.ops.sightings.knows(request.mac) || NEW_SIGHTINGS.step().is_some() {
            self.ops.sightings.unserved(request, self.engine.fleet().now());
        }
    }

    fn served(&self, mac: MacAddr, service: Service) {
        self.ops.sightings.served(mac, service);
    }
}

/// Binds the boot services of this coordinator, which serve these tools layers; see [`BootServices::start`].
///
/// # Errors
/// [`BootError`] saying which service and why.
pub async fn start(coordinator: Arc<Coordinator>, layers: Vec<Layer>) -> Result<BootServices, BootError> {
    let config = coordinator.config.boot_services(vec![coordinator.pki.ca_pin().to_string()]);
    BootServices::start(&config, layers, coordinator).await
}
