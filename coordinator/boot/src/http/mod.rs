//! Plain HTTP: boot scripts, the boot image, OS images, metadata. Read-only, and nothing on it is secret but the one-time
//! boot token in a script.
//!
//! | path | what |
//! |---|---|
//! | `/boot/ipxe?mac=…[&uuid=…]` | the machine's script |
//! | `/boot/kernel`, `/boot/initramfs` | the boot image; with `-arm64` at the end that of arm64 machines |
//! | `/boot/landfall.iso`, `/boot/landfall-arm64.iso` | the boot medium, for BMCs that have it as a virtual CD |
//! | `/boot/uki/<mac>.efi`, `/boot/uki-arm64/<mac>.efi` | the unified kernel image with the machine's command line, for UEFI HTTP Boot |
//! | `/boot/tools/<digest>` | the tools layer with that digest |
//! | `/boot/find-disk?workflow=…` | for BIOS: the program that starts the disk with that workflow's receipt (`&action=N`: of that action) |
//! | `/boot/snponly.efi` and the other loaders | for UEFI HTTP Boot |
//! | `/images/<path>` | OS images |
//! | `/metadata/…` | see [`metadata`] |

pub mod file;
pub mod find_disk;
pub mod layer;
pub mod metadata;
pub mod own_ipxe;
pub mod range;
pub mod script;
pub mod serve;
pub mod token;
pub mod uki;

mod log;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::get;
use axum::{Router, middleware};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use landfall_api::MacAddr;
use serde::Deserialize;
use tokio::time::timeout;
use uuid::Uuid;

use self::file::{plain, respond};
use self::layer::Layers;
use self::metadata::Asker;
use self::own_ipxe::OwnIpxe;
use self::script::AgentBoot;
use super::neighbours::{Behind, Neighbours};
use super::policy::{BootPolicy, Decision, Service, Unserved};
use super::tftp::LOADERS;
use crate::{arch::Arch, config::BootConfig};
use landfall_edge::gate::{Limiter, Limiters, MAX_ADDRESSES, Rate};

/// How long the engine may take to decide; the machine's screen shows nothing meanwhile.
const DECISION_LIMIT: Duration = Duration::from_secs(10);

/// Log lines per second about requests in another machine's name: any host can cause them.
static IMPOSTORS: Limiter = Limiter::a_second(10);

/// The other end of a connection, in every request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct Client(pub SocketAddr);

/// What the routes share.
pub struct BootHttp {
    /// Files to serve; a reload replaces them.
    pub files: ArcSwap<BootConfig>,
    /// The tools layers.
    pub layers: Layers,
    /// What scripts say.
    pub agent: ArcSwap<AgentBoot>,
    /// Who may boot what.
    pub policy: Arc<dyn BootPolicy>,
    /// The host at an address.
    pub neighbours: Neighbours,
    /// Whom to give our own iPXE first.
    pub own_ipxe: OwnIpxe,
    /// How fast one address may ask for scripts.
    pub scripts: Scripts,
}

/// How fast one address may ask for scripts: each may hold a token, which the store keeps until it has run out. A machine asks
/// for two or three a boot; a whole site may come through one address.
#[derive(Debug)]
pub struct Scripts(Limiters<IpAddr>);

impl Default for Scripts {
    fn default() -> Self {
        Self(Limiters::new(Rate::a_second(SCRIPTS_A_SECOND, SCRIPTS_SAVED), MAX_ADDRESSES))
    }
}

/// Scripts a second for one address (this host itself: no limit).
pub const SCRIPTS_A_SECOND: u32 = 10;
/// An address that was quiet may ask for the worth of so long at once.
const SCRIPTS_SAVED: Duration = Duration::from_secs(10);

/// The routes. Serve them with [`serve::serve`], which fills in [`Client`].
pub fn router(shared: Arc<BootHttp>) -> Router {
    Router::new()
        .route("/boot/ipxe", get(ipxe))
        .route("/boot/find-disk", get(find_disk_program))
        .route("/boot/tools/{digest}", get(tools_layer))
        .route(
            "/boot/uki/{name}",
            get(async |state, name, request| machines_uki(Arch::X86_64, state, name, request).await),
        )
        .route(
            "/boot/uki-arm64/{name}",
            get(async |state, name, request| machines_uki(Arch::Arm64, state, name, request).await),
        )
        .route("/boot/{name}", get(boot_file))
        .route("/images/{*path}", get(image))
        .route("/metadata", get(metadata_root))
        .route("/metadata/", get(metadata_root))
        .route("/metadata/{*path}", get(metadata))
        .fallback(async || plain(StatusCode::NOT_FOUND, "nothing here\n"))
        .layer(middleware::from_fn(log_request))
        .with_state(shared)
}

async fn log_request(request: Request, next: Next) -> Response {
    let entry = log::Entry::of(&request);
    entry.attach(next.run(request).await)
}

#[derive(Debug, Deserialize)]
struct ScriptQuery {
    mac: String,
    #[serde(default)]
    uuid: String,
    #[serde(default)]
    platform: String,
    #[serde(default)]
    arch: String,
    #[serde(default)]
    chip: String,
}

type ScriptQueryResult = Result<Query<ScriptQuery>, QueryRejection>;

async fn ipxe(State(shared): State<Arc<BootHttp>>, query: ScriptQueryResult, request: Request) -> Response {
    let Ok(Query(query)) = query else {
        return plain(StatusCode::BAD_REQUEST, "the parameter mac is missing: /boot/ipxe?mac=52:54:00:12:34:56\n");
    };
    let client = request.extensions().get::<Client>();
    if let Some(refused) = too_many(&shared, client) {
        return refused;
    }
    let Ok(mac) = query.mac.parse::<MacAddr>() else {
        return plain(StatusCode::BAD_REQUEST, format!("mac={:?} is not an Ethernet address\n", query.mac));
    };
    let arch = Arch::of_ipxe(&query.arch);
    // What iPXE could not fill in, or the firmware has only a placeholder for, is not known: no reason to refuse.
    let uuid = query.uuid.parse::<Uuid>().ok().filter(|uuid| !uuid.is_nil() && !uuid.is_max());
    if let Some(loader) = shared.own_ipxe.loader_for(mac, &query.platform, arch, &query.chip) {
        // As it was read, not as it was sent: a line's end in it would be another line of the script.
        let uuid = uuid.map_or_else(String::new, |uuid| uuid.to_string());
        let arch = if arch == Some(Arch::Arm64) { "arm64" } else { "" };
        let again = format!("{}/boot/ipxe?mac={mac}&uuid={uuid}&arch={arch}", shared.agent.load().http_url);
        return plain(StatusCode::OK, script::load_own_ipxe(&loader, &again));
    }
    let asks = Asks { mac, client: "ipxe", from: client.map(|client| client.0.ip().to_canonical()) };
    let script = match decide(&shared, client, &asks, uuid).await {
        Ok(decision) => {
            let image = image_of(arch, &shared.files.load());
            let to_agent = matches!(decision, Decision::RunAgent { .. } | Decision::Approve { .. });
            match image {
                None if to_agent => {
                    let arch = sent_as(&query.arch);
                    tracing::warn!(service = "http", %mac, arch, NO_IMAGE);
                    shared.policy.unserved(asks.unserved(&format!("architecture {arch}: {NO_IMAGE}"), false));
                }
                Some(_) if to_agent => shared.policy.served(mac, Service::Http),
                _ => {}
            }
            script::render(&decision, mac, image, &shared.agent.load())
        }
        Err(why) => script::to_disk(&format!("{why}. Starting this machine's own disk.")),
    };
    for_one(plain(StatusCode::OK, script))
}

/// Refuses an address that asks for too many tokens.
fn too_many(shared: &BootHttp, client: Option<&Client>) -> Option<Response> {
    let refused = client.is_some_and(|client| !shared.scripts.0.step_of(client.0.ip()));
    refused.then(|| plain(StatusCode::TOO_MANY_REQUESTS, "too many requests for scripts from this address\n"))
}

/// An answer that may hold a token is no one else's.
fn for_one(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const NO_IMAGE: &str = "there is no boot image for the machine's architecture, so it boots its own disk; name one in \
    [boot.arm64] if that is it";

/// A machine that asks what to boot.
struct Asks {
    mac: MacAddr,
    /// What asks: `ipxe`, `http` or `agent`.
    client: &'static str,
    from: Option<IpAddr>,
}

impl Asks {
    fn unserved(&self, reason: &str, unknown: bool) -> Unserved {
        let Self { mac, client, from } = *self;
        Unserved { mac, service: Service::Http, client, from, unknown, reason: reason.to_owned() }
    }
}

/// What the machine boots, or why nothing but its own disk.
async fn decide(
    shared: &BootHttp, client: Option<&Client>, asks: &Asks, uuid: Option<Uuid>,
) -> Result<Decision, String> {
    let decided = decision(shared, client, asks, uuid).await;
    match &decided {
        // Whether there is an image for it, its script says.
        Ok(Decision::RunAgent { .. } | Decision::Approve { .. }) if asks.client == "ipxe" => {}
        Ok(Decision::Unknown) => {
            let reason = "no machine has this address, and discovery is off for the address it asks from; describe it \
                with `landfall apply`, or set dhcp.discovery";
            shared.policy.unserved(asks.unserved(reason, true));
        }
        Ok(_) => shared.policy.served(asks.mac, Service::Http),
        Err(why) => shared.policy.unserved(asks.unserved(why, false)),
    }
    decided
}

async fn decision(
    shared: &BootHttp, client: Option<&Client>, asks: &Asks, uuid: Option<Uuid>,
) -> Result<Decision, String> {
    let Asks { mac, from, .. } = *asks;
    if let Some(why) = impostor(shared, client, mac).await {
        if let Some(left_out) = IMPOSTORS.step() {
            tracing::warn!(service = "http", %mac, ?from, why, left_out, "a boot script was requested from another \
                machine's address");
        }
        return Err(why);
    }
    match timeout(DECISION_LIMIT, shared.policy.decide(mac, uuid, from)).await {
        Ok(Ok(decision)) => Ok(decision),
        Ok(Err(error)) => {
            tracing::error!(service = "http", %mac, %error, "cannot decide what a machine boots");
            Err("the coordinator could not decide; its log has the reason".to_owned())
        }
        Err(_) => {
            tracing::error!(service = "http", %mac, limit = ?DECISION_LIMIT, "cannot decide what a machine boots in time");
            Err("the coordinator did not decide in time".to_owned())
        }
    }
}

/// For firmware that starts a UKI from HTTP. It cannot start the machine's own disk from here: without a workflow there is no such
/// file, and the firmware goes to the next entry of its boot order.
async fn machines_uki(
    arch: Arch, State(shared): State<Arc<BootHttp>>, Path(name): Path<String>, request: Request,
) -> Response {
    let files = shared.files.load_full();
    let (path, key) = match arch {
        Arch::X86_64 => (&files.uki, "boot.uki"),
        Arch::Arm64 => (&files.arm64.uki, "boot.arm64.uki"),
    };
    let Some(path) = path else {
        return plain(StatusCode::NOT_FOUND, format!("no UKI is served; set {key} in the configuration\n"));
    };
    let Some(Ok(mac)) = name.strip_suffix(".efi").map(|mac| mac.replace('-', ":").parse::<MacAddr>()) else {
        let example = format!("/boot/uki{}/52-54-00-12-34-56.efi", arch.ending());
        return plain(StatusCode::NOT_FOUND, format!("the name is a port's address: {example}\n"));
    };
    let boot = shared.agent.load_full();
    if request.method() == Method::HEAD {
        // Firmware asks for the size first; it is the same with any token.
        return uki::respond(path, "").await;
    }
    let client = request.extensions().get::<Client>();
    if let Some(refused) = too_many(&shared, client) {
        return refused;
    }
    let asks = Asks { mac, client: "http", from: client.map(|client| client.0.ip().to_canonical()) };
    let (token, network) = match decide(&shared, client, &asks, None).await {
        Ok(Decision::RunAgent { token, network, .. }) => (Some(token), network),
        Ok(Decision::Approve { network, .. }) => (None, network),
        Ok(Decision::BootDisk { machine, .. }) => {
            return plain(StatusCode::NOT_FOUND, format!("{machine} has no workflow: it boots its own disk\n"));
        }
        Ok(Decision::Unknown) => {
            return plain(StatusCode::NOT_FOUND, format!("no machine has the address {mac}\n"));
        }
        Err(why) => return plain(StatusCode::NOT_FOUND, format!("{why}: the machine boots its own disk\n")),
    };
    for_one(uki::respond(path, &boot.command_line(arch, token.as_deref(), &network, mac)).await)
}

/// The architecture, if there is a boot image for it.
fn image_of(arch: Option<Arch>, files: &BootConfig) -> Option<Arch> {
    arch.filter(|arch| match arch {
        Arch::X86_64 => true,
        Arch::Arm64 => files.arm64.kernel.is_some() && files.arm64.initramfs.is_some(),
    })
}

/// Any host can send this: a word, or nothing of it.
fn sent_as(arch: &str) -> &str {
    if arch.len() <= 16 && arch.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') { arch } else { "unknown" }
}

/// Why the requesting address does not belong to the claimed machine, if so: knowing an Ethernet address must not be
/// enough for a boot token. Of hosts behind a router nothing is known.
async fn impostor(shared: &BootHttp, client: Option<&Client>, claimed: MacAddr) -> Option<String> {
    let peer = client?.0;
    let address = peer.ip().to_canonical();
    match shared.neighbours.behind(peer).await {
        Behind::Unknown => None,
        Behind::Stray => Some(format!("the kernel does not say which port of this link has the address {address}")),
        Behind::Mac(real) if real == claimed || one_machine(shared, real, claimed).await => None,
        Behind::Mac(real) => Some(format!("the address {address} belongs to {real}, not to {claimed}")),
        Behind::Unleased(real) => Some(format!("{real} uses the address {address}, which was not leased to it")),
    }
}

/// Whether both are ports of one described machine, which may load by the one and boot by the other.
async fn one_machine(shared: &BootHttp, one: MacAddr, other: MacAddr) -> bool {
    let of = async |mac| match timeout(DECISION_LIMIT, shared.policy.machine(mac)).await {
        Ok(Ok(machine)) => machine.map(|machine| machine.uid),
        Ok(Err(_)) | Err(_) => None,
    };
    match of(one).await {
        Some(uid) => of(other).await == Some(uid),
        None => false,
    }
}

#[derive(Debug, Deserialize)]
struct FindDiskQuery {
    workflow: Uuid,
    action: Option<u32>,
}

async fn find_disk_program(query: Result<Query<FindDiskQuery>, QueryRejection>) -> Response {
    match query {
        Ok(Query(query)) => Response::new(find_disk::program(query.workflow, query.action).into()),
        Err(_) => plain(StatusCode::BAD_REQUEST, "the parameter workflow is missing: /boot/find-disk?workflow=UID\n"),
    }
}

async fn boot_file(State(shared): State<Arc<BootHttp>>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    let files = shared.files.load_full();
    let BootConfig { kernel, initramfs, iso, arm64, bootloaders, .. } = &*files;
    let loader = LOADERS.contains(&name.as_str()).then(|| bootloaders.join(&name));
    let file = match name.as_str() {
        "kernel" => Some(kernel),
        "initramfs" => Some(initramfs),
        "kernel-arm64" => arm64.kernel.as_ref(),
        "initramfs-arm64" => arm64.initramfs.as_ref(),
        "landfall.iso" => iso.as_ref(),
        "landfall-arm64.iso" => arm64.iso.as_ref(),
        _ => loader.as_ref(),
    };
    match file {
        Some(file) => respond(file, &headers).await,
        None => plain(StatusCode::NOT_FOUND, "no such file\n"),
    }
}

async fn tools_layer(State(shared): State<Arc<BootHttp>>, Path(digest): Path<String>, headers: HeaderMap) -> Response {
    shared.layers.respond(&digest, &headers).await
}

async fn image(State(shared): State<Arc<BootHttp>>, Path(path): Path<String>, headers: HeaderMap) -> Response {
    let files = shared.files.load_full();
    let Some(root) = &files.images else {
        return plain(StatusCode::NOT_FOUND, "no images are served; set boot.images in the configuration\n");
    };
    file::respond_below(root, &path, &headers).await
}

async fn metadata_root(State(shared): State<Arc<BootHttp>>, request: Request) -> Response {
    answer_metadata(&shared, "", request.extensions().get::<Client>().copied()).await
}

async fn metadata(State(shared): State<Arc<BootHttp>>, Path(path): Path<String>, request: Request) -> Response {
    answer_metadata(&shared, &path, request.extensions().get::<Client>().copied()).await
}

async fn answer_metadata(shared: &BootHttp, path: &str, client: Option<Client>) -> Response {
    let Some(ip) = client.and_then(|c| ipv4(c.0.ip())) else {
        return plain(StatusCode::NOT_FOUND, "metadata is served over IPv4\n");
    };
    let Some(mac) = shared.neighbours.mac(SocketAddr::new(ip.into(), 0)).await else {
        return plain(StatusCode::NOT_FOUND, format!("{ip} is not on a link of the coordinator\n"));
    };
    match timeout(DECISION_LIMIT, shared.policy.machine(mac)).await {
        Ok(Ok(Some(machine))) => match self::metadata::get(path, &Asker { ip, mac, machine }) {
            Some(text) => plain(StatusCode::OK, text),
            None => plain(StatusCode::NOT_FOUND, "no such key\n"),
        },
        Ok(Ok(None)) => plain(StatusCode::NOT_FOUND, format!("no machine has the address {mac}\n")),
        Ok(Err(error)) => {
            tracing::error!(service = "http", %mac, %error, "cannot serve metadata");
            plain(StatusCode::SERVICE_UNAVAILABLE, "try again later\n")
        }
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "try again later\n"),
    }
}

fn ipv4(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip.to_canonical() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests;
