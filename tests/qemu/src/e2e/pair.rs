//! Two coordinators with one database, on one network.

use std::net::Ipv4Addr;
use std::path::Path;

use landfall_lab::{CoordinatorOptions, CoordinatorProcess, DhcpMode, Namespace, Network};

use super::Context;
use super::scene::Scene;

/// The first of the two, which leads, and the other one.
pub(super) struct Pair {
    pub(super) scene: Scene,
    pub(super) other: CoordinatorProcess,
    /// Where the other one lives.
    pub(super) _neighbour: Namespace,
    pub(super) _database: landfall_postgres::Server,
}

impl Pair {
    pub(super) async fn start(context: Context, network: Network, dhcp: DhcpMode) -> anyhow::Result<Self> {
        let database = tokio::task::spawn_blocking(|| landfall_postgres::Server::start(&[])).await?;
        let more = format!("[store]\nurl = \"{}\"", database.create());
        let neighbour = network.neighbour()?;
        let beside = |address: &Ipv4Addr| vec![format!("https://{address}:7443")];
        let options =
            CoordinatorOptions { dhcp, more, others: beside(&Network::NEIGHBOUR), ..Scene::options(&context)? };
        let scene = Scene::start_from(context, network, options.clone()).await?;
        let dir = scene.context.dir.join("other");
        std::fs::create_dir_all(dir.join("coordinator"))?;
        let key = |dir: &Path| dir.join("coordinator/secrets.key");
        std::fs::copy(key(&scene.context.dir), key(&dir))?;
        let options = CoordinatorOptions { others: beside(&Network::ADDRESS), ..options };
        let other = CoordinatorProcess::beside(&options, &neighbour, &dir).await?;
        Ok(Self { scene, other, _neighbour: neighbour, _database: database })
    }
}
