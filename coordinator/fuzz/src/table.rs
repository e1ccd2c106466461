//! The boot services' routes over a table of machines.

use std::{net::IpAddr, sync::Arc};

use async_trait::async_trait;
use axum::Router;
use landfall_api::MacAddr;
use landfall_boot::http::layer::Layers;
use landfall_boot::http::own_ipxe::OwnIpxe;
use landfall_boot::http::script::AgentBoot;
use landfall_boot::http::{BootHttp, Scripts, router as routes};
use landfall_boot::neighbours::Neighbours;
use landfall_boot::policy::{BootPolicy, Decision, PolicyError, PublicFacts, ReceiptOf, Reservations};

use uuid::Uuid;

use crate::{MAC, config};

struct Table;

impl Reservations for Table {}

#[async_trait]
impl BootPolicy for Table {
    async fn decide(&self, mac: MacAddr, _: Option<Uuid>, _: Option<IpAddr>) -> Result<Decision, PolicyError> {
        let machine = "m1".to_owned();
        Ok(match (mac.to_string() == MAC, mac.0[0]) {
            (true, _) => Decision::RunAgent { machine, token: "t0ken".into(), network: vec![] },
            (false, 2) => Decision::BootDisk {
                machine,
                receipt: (mac.0[5] == 7).then_some(ReceiptOf { workflow: Uuid::nil(), action: None }),
            },
            (false, 6) => return Err(PolicyError { mac, reason: "the store is gone".into() }),
            (false, _) => Decision::Unknown,
        })
    }
    async fn known(&self, mac: MacAddr) -> Result<bool, PolicyError> {
        Ok(mac.to_string() == MAC)
    }
    async fn machine(&self, mac: MacAddr) -> Result<Option<PublicFacts>, PolicyError> {
        Ok((mac.to_string() == MAC).then(|| PublicFacts { name: "m1".into(), uid: Uuid::nil(), by_token_only: true }))
    }
}

/// The routes; every file is missing.
pub fn router() -> Router {
    let agent = AgentBoot {
        http_url: "http://10.77.0.1:7480".into(),
        tls_url: "https://10.77.0.1:7443".into(),
        other_tls_urls: Vec::new(),
        ca_pins: vec!["sha256:00".into()],
        kernel_args: "console=ttyS0".into(),
        arm64_kernel_args: "console=ttyAMA0".into(),
    };
    routes(Arc::new(BootHttp {
        files: Arc::new(config("/nonexistent").boot).into(),
        layers: Layers::default(),
        agent: Arc::new(agent).into(),
        policy: Arc::new(Table),
        neighbours: Neighbours::default(),
        own_ipxe: OwnIpxe::new(Some([10, 77, 0, 1].into()), true),
        scripts: Scripts::default(),
    }))
}
