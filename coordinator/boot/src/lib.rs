//! Boot services: everything a machine talks to from its firmware's first packet to the agent's first.
//!
//! [`dhcp`] names the loader, [`tftp`] serves it, [`http`] serves the script, the boot image, OS images and metadata.
//! They know machines only through [`policy::BootPolicy`], and nothing they serve is secret, except the one-time boot
//! token inside a script.
//!
//! With the coordinator down a machine boots its own disk: there is then no boot offer at all, and firmware goes on to
//! its next device. Every file that an earlier answer may have named is tried a bounded number of times.
//!
//! The crate works without the rest of the coordinator: give it a [`config::Config`] and a [`policy::BootPolicy`].
//!
//! ```no_run
//! use std::{net::IpAddr, sync::Arc};
//!
//! use landfall_api::MacAddr;
//! use landfall_boot::{
//!     BootError, BootServices,
//!     config::{BootConfig, Config, DhcpConfig, HttpConfig, OtherImage, TftpConfig},
//!     policy::{BootPolicy, Decision, PolicyError, PublicFacts, Reservations},
//! };
//! use tokio_util::sync::CancellationToken;
//! use uuid::Uuid;
//!
//! /// Every machine boots its own disk.
//! struct OwnDisk;
//!
//! impl Reservations for OwnDisk {}
//!
//! #[async_trait::async_trait]
//! impl BootPolicy for OwnDisk {
//!     async fn decide(&self, mac: MacAddr, _: Option<Uuid>, _: Option<IpAddr>) -> Result<Decision, PolicyError> {
//!         Ok(Decision::BootDisk { machine: mac.to_string(), receipt: None })
//!     }
//!     async fn known(&self, _: MacAddr) -> Result<bool, PolicyError> {
//!         Ok(true)
//!     }
//!     async fn machine(&self, _: MacAddr) -> Result<Option<PublicFacts>, PolicyError> {
//!         Ok(None)
//!     }
//! }
//!
//! # async fn serve() -> Result<(), BootError> {
//! let config = Config {
//!     advertise: [10, 77, 0, 1].into(),
//!     coordinator_url: "https://10.77.0.1:7443".into(),
//!     other_coordinator_urls: Vec::new(),
//!     takes_over: false,
//!     ca_pins: Vec::new(),
//!     data_dir: "/var/lib/boot".into(),
//!     http: HttpConfig::default(),
//!     boot: BootConfig {
//!         kernel: "/srv/vmlinuz".into(),
//!         initramfs: "/srv/initramfs".into(),
//!         tools: None,
//!         uki: None,
//!         iso: None,
//!         arm64: OtherImage::default(),
//!         bootloaders: "/usr/lib/ipxe".into(),
//!         images: None,
//!         kernel_args: "console=ttyS0,115200".into(),
//!     },
//!     dhcp: DhcpConfig::default(),
//!     tftp: TftpConfig::default(),
//! };
//! let (services, cancel) = (BootServices::start(&config, Vec::new(), Arc::new(OwnDisk)).await?, CancellationToken::new());
//! let dhcp = services.dhcp().start(false).await?;
//! tokio::try_join!(services.run(cancel.clone()), dhcp.run(cancel)).map(drop)
//! # }
//! ```

pub mod arch;
pub mod config;
pub mod dhcp;
pub mod http;
pub mod neighbours;
pub mod policy;
pub mod router_advert;
pub mod tftp;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::config::{BootConfig, Config, DhcpMode};
use self::dhcp::DhcpError;
use self::dhcp::bootfile::ARM64_LOADER;
use self::dhcp::service::DhcpService;
use self::dhcp::v6::service::DhcpV6Service;
use self::http::BootHttp;
use self::http::layer::{Layer, Layers};
use self::http::own_ipxe::OwnIpxe;
use self::http::script::{AgentBoot, KernelArgsError, check_kernel_args};
use self::neighbours::Neighbours;
use self::policy::BootPolicy;
use self::router_advert::{Advert, RouterAdverts};
use self::tftp::{TftpError, TftpService};

/// Why the boot services cannot start or go on.
#[allow(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The configured kernel arguments would not survive iPXE.
    #[error(transparent)]
    KernelArgs(#[from] KernelArgsError),
    /// DHCP.
    #[error(transparent)]
    Dhcp(#[from] DhcpError),
    /// TFTP.
    #[error(transparent)]
    Tftp(#[from] TftpError),
    /// The plain HTTP port cannot be had.
    #[error("cannot listen for HTTP on {listen}; check whether another program uses the port")]
    HttpBind { listen: SocketAddr, source: io::Error },
    /// Accepting connections failed for good.
    #[error("accepting HTTP connections failed")]
    Http(#[source] io::Error),
    /// A service panicked.
    #[error("a boot service ended unexpectedly")]
    Panicked(#[source] tokio::task::JoinError),
}

/// Every boot service, bound and checked: from here on nothing about the configuration can fail.
pub struct BootServices {
    dhcp: Dhcp,
    tftp: Option<TftpService>,
    listener: TcpListener,
    http: Arc<BootHttp>,
}

/// The DHCP services, which answer what is broadcast: of several coordinators one runs them.
#[derive(Clone)]
pub struct Dhcp {
    config: Config,
    policy: Arc<dyn BootPolicy>,
    neighbours: Neighbours,
    discovery: Arc<AtomicBool>,
}

/// DHCP services that listen.
pub struct DhcpServices {
    neighbours: Neighbours,
    dhcp: Option<DhcpService>,
    dhcp_v6: Option<DhcpV6Service>,
    adverts: Option<RouterAdverts>,
}

/// What of running boot services a new configuration changes.
pub struct BootReload {
    http: Arc<BootHttp>,
    discovery: Arc<AtomicBool>,
}

impl BootReload {
    /// Serves these files and layers with these kernel arguments from now on, and answers unknown machines if `discovery` is true.
    ///
    /// # Errors
    /// [`KernelArgsError`]; nothing is changed then.
    pub fn reload(&self, boot: &BootConfig, layers: Vec<Layer>, discovery: bool) -> Result<(), KernelArgsError> {
        check_kernel_args(boot)?;
        self.http.layers.put(layers);
        self.http.files.store(Arc::new(boot.clone()));
        let (kernel_args, arm64_kernel_args) = (boot.kernel_args.clone(), boot.arm64.kernel_args.clone());
        let agent = AgentBoot { kernel_args, arm64_kernel_args, ..AgentBoot::clone(&self.http.agent.load()) };
        self.http.agent.store(Arc::new(agent));
        self.discovery.store(discovery, Ordering::Relaxed);
        Ok(())
    }
}

impl Dhcp {
    /// Whether several coordinators may serve one network: only if they give no addresses. A machine takes the answer of one of them.
    pub fn may_be_several(&self) -> bool {
        self.config.dhcp.mode != DhcpMode::Full
    }

    /// Binds its ports, where it is configured. With `dhcp.mode = "full"` it first asks the network for another DHCP server, which takes
    /// 3 s; not if `takes_over`: another coordinator served this network until now, and may not know yet that it is no longer wanted.
    ///
    /// # Errors
    /// [`BootError`]; nothing is left listening.
    pub async fn start(&self, takes_over: bool) -> Result<DhcpServices, BootError> {
        let config = Config { takes_over, ..self.config.clone() };
        let whom = (self.policy.clone(), self.discovery.clone());
        let (dhcp, dhcp_v6) = match config.advertise {
            IpAddr::V4(own) => (DhcpService::start(&config, own, whom).await?, None),
            IpAddr::V6(own) => (None, DhcpV6Service::start(&config, own, whom).await?),
        };
        if let Some((interface, leases)) = dhcp.as_ref().and_then(DhcpService::leases) {
            self.neighbours.learn(interface, leases);
        }
        if let Some(link) = dhcp_v6.as_ref().and_then(DhcpV6Service::link) {
            self.neighbours.learn_link(link);
        }
        // If another server manages the network, it also manages IPv6.
        let adverts = match (&dhcp, &config.dhcp.mode, &config.dhcp.interface) {
            (Some(_), DhcpMode::Full, Some(interface)) => RouterAdverts::start(interface, Advert::NoRouter)
                .inspect_err(|error| {
                    let says = "cannot answer router solicitations: iPXE waits 16 s";
                    tracing::info!(service = "radv", interface, %error, says);
                })
                .ok(),
            _ => None,
        };
        Ok(DhcpServices { neighbours: self.neighbours.clone(), dhcp, dhcp_v6, adverts })
    }
}

impl DhcpServices {
    /// Serves until cancelled. When one service fails the others are stopped too.
    ///
    /// # Errors
    /// [`BootError`] of the service that failed first.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), BootError> {
        let Self { neighbours, dhcp, dhcp_v6, adverts } = self;
        let cancel = cancel.child_token();
        let mut services: JoinSet<Result<(), BootError>> = JoinSet::new();
        if let Some(dhcp) = dhcp {
            let cancel = cancel.clone();
            services.spawn(async move { Ok(dhcp.run(cancel).await?) });
        }
        if let Some(dhcp) = dhcp_v6 {
            let cancel = cancel.clone();
            services.spawn(async move { Ok(dhcp.run(cancel).await?) });
        }
        if let Some(adverts) = adverts {
            let cancel = cancel.clone();
            services.spawn(async move {
                adverts.run(cancel).await;
                Ok(())
            });
        }
        let outcome = all(services, &cancel).await;
        // Where there is none to wait for.
        cancel.cancelled().await;
        neighbours.forget();
        outcome
    }
}

/// Waits for all of them. When one fails the others are stopped.
async fn all(mut services: JoinSet<Result<(), BootError>>, cancel: &CancellationToken) -> Result<(), BootError> {
    let mut outcome = Ok(());
    while let Some(ended) = services.join_next().await {
        // The first failure is the cause, later ones its consequence.
        if let Err(error) = ended.unwrap_or_else(|e| Err(BootError::Panicked(e))) {
            cancel.cancel();
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}

impl BootServices {
    /// Binds every port but those of [`Self::dhcp`]; `layers`: the tools layers to serve.
    ///
    /// # Errors
    /// [`BootError`] saying which service and why; nothing is left listening.
    pub async fn start(config: &Config, layers: Vec<Layer>, policy: Arc<dyn BootPolicy>) -> Result<Self, BootError> {
        check_kernel_args(&config.boot)?;
        let neighbours = Neighbours::default();
        let listen = config.http.listen;
        let listener = TcpListener::bind(listen).await.map_err(|source| BootError::HttpBind { listen, source })?;
        let tftp = if config.tftp.enabled {
            let directory = config.boot.bootloaders.clone();
            Some(TftpService::start(config.tftp.listen, directory, config.advertise, neighbours.clone()).await?)
        } else {
            None
        };
        let discovery = Arc::new(AtomicBool::new(config.dhcp.discovery));
        let (config_of, neighbours_of) = (config.clone(), neighbours.clone());
        let dhcp = Dhcp { config: config_of, policy: policy.clone(), neighbours: neighbours_of, discovery };
        let own_ipxe =
            OwnIpxe::new(tftp.as_ref().map(|_| config.advertise), config.boot.bootloaders.join(ARM64_LOADER).is_file());
        let (files, agent) = (ArcSwap::from_pointee(config.boot.clone()), ArcSwap::from_pointee(AgentBoot::of(config)));
        let scripts = http::Scripts::default();
        let served = Layers::default();
        served.put(layers);
        let http = Arc::new(BootHttp { files, layers: served, agent, policy, neighbours, own_ipxe, scripts });
        Ok(Self { dhcp, tftp, listener, http })
    }

    /// The route of boot tokens, for the coordinator's TLS port; see [`http::token`].
    pub fn tokens(&self) -> axum::Router {
        http::token::router(self.http.clone())
    }

    /// What can be changed while they run.
    pub fn reload(&self) -> BootReload {
        BootReload { http: self.http.clone(), discovery: self.dhcp.discovery.clone() }
    }

    /// The DHCP services, to be started beside these.
    pub fn dhcp(&self) -> Dhcp {
        self.dhcp.clone()
    }

    /// Serves until cancelled. When one service fails the others are stopped too: half a boot chain is useless.
    ///
    /// # Errors
    /// [`BootError`] of the service that failed first.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), BootError> {
        let cancel = cancel.child_token();
        let mut services: JoinSet<Result<(), BootError>> = JoinSet::new();
        if let Some(tftp) = self.tftp {
            let cancel = cancel.clone();
            services.spawn(async move { Ok(tftp.run(cancel).await?) });
        }
        let (listener, router, stop) = (self.listener, http::router(self.http), cancel.clone());
        let http = http::serve::serve(listener, router, stop);
        services.spawn(async move { http.await.map_err(BootError::Http) });
        all(services, &cancel).await
    }
}
