//! The routes as a client sees them.

use std::{collections::BTreeMap, fs, sync::Mutex};

use async_trait::async_trait;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;
use crate::config::OtherImage;
use crate::dhcp::service::Leases;
use crate::policy::{PolicyError, PublicFacts, Reservations};

struct Table(BTreeMap<MacAddr, Decision>, Arc<Mutex<Vec<String>>>);

impl Reservations for Table {}

#[async_trait]
impl BootPolicy for Table {
    async fn decide(&self, mac: MacAddr, _: Option<Uuid>, _: Option<IpAddr>) -> Result<Decision, PolicyError> {
        match self.0.get(&mac) {
            Some(Decision::Unknown) => Err(PolicyError { mac, reason: "the store is gone".into() }),
            Some(decision) => Ok(decision.clone()),
            None => Ok(Decision::Unknown),
        }
    }
    async fn known(&self, mac: MacAddr) -> Result<bool, PolicyError> {
        Ok(self.0.contains_key(&mac))
    }
    async fn machine(&self, mac: MacAddr) -> Result<Option<PublicFacts>, PolicyError> {
        // Addresses that differ in the last octet only are one machine's.
        let uid = Uuid::from_u128(mac.0[4].into());
        Ok(self.0.get(&mac).map(|_| PublicFacts { name: "web-1".into(), uid, by_token_only: mac.0[3] == 0 }))
    }
    fn unserved(&self, request: Unserved) {
        let Unserved { mac, client, unknown, reason, .. } = request;
        self.1.lock().unwrap().push(format!("{mac} {client} {unknown} {reason}"));
    }
    fn served(&self, mac: MacAddr, _: Service) {
        self.1.lock().unwrap().push(format!("{mac} served"));
    }
}

struct Site {
    directory: tempfile::TempDir,
    router: Router,
    shared: Arc<BootHttp>,
    neighbours: Neighbours,
    /// What the policy was informed of.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn new() -> Self {
        Self::with(OtherImage::default())
    }

    fn with(arm64: OtherImage) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("images/debian")).unwrap();
        fs::write(root.join("images/debian/disk.img"), b"0123456789").unwrap();
        fs::write(root.join("images/.key"), b"hidden").unwrap();
        fs::write(root.join("secret"), b"secret").unwrap();
        fs::write(root.join("vmlinuz"), b"kernel").unwrap();
        fs::write(root.join("initramfs"), b"initramfs").unwrap();
        fs::write(root.join("tools"), b"hsqs").unwrap();
        fs::write(root.join("uki"), uki::tests::image(false)).unwrap();
        let work = Decision::RunAgent { machine: "web-1".into(), token: "t0ken".into(), network: vec![] };
        let broken = Decision::Unknown;
        let table = BTreeMap::from([
            ("52:54:00:00:00:01".parse().unwrap(), work),
            ("52:54:00:00:00:02".parse().unwrap(), broken),
            ("52:54:00:00:01:01".parse().unwrap(), Decision::BootDisk { machine: "web-2".into(), receipt: None }),
            ("52:54:00:01:01:01".parse().unwrap(), Decision::BootDisk { machine: "web-3".into(), receipt: None }),
        ]);
        let arp = root.join("arp");
        let line = |last: u8, mac: &str| format!("10.77.0.{last} 0x1 0x2 52:54:00:00:{mac} * br0\n");
        let lines = [line(1, "00:01"), line(2, "00:02"), line(3, "01:01"), line(4, "09:09")];
        let approved = "10.77.0.7 0x1 0x2 52:54:00:01:01:01 * br0\n";
        fs::write(&arp, format!("IP address\n{}{approved}", lines.concat())).unwrap();
        let neighbours = Neighbours::with_table(arp);
        let seen = Arc::default();
        let shared = BootHttp {
            files: ArcSwap::from_pointee(BootConfig {
                kernel: root.join("vmlinuz"),
                initramfs: root.join("initramfs"),
                uki: Some(root.join("uki")),
                iso: None,
                tools: None,
                arm64,
                bootloaders: root.to_owned(),
                images: Some(root.join("images")),
                kernel_args: String::new(),
            }),
            layers: Layers::default(),
            agent: ArcSwap::from_pointee(AgentBoot {
                http_url: "http://10.77.0.1:7480".into(),
                tls_url: "https://10.77.0.1:7443".into(),
                other_tls_urls: Vec::new(),
                ca_pins: vec!["sha256:aa".into()],
                kernel_args: String::new(),
                arm64_kernel_args: "console=ttyAMA0".into(),
            }),
            policy: Arc::new(Table(table, Arc::clone(&seen))),
            neighbours: neighbours.clone(),
            own_ipxe: OwnIpxe::new(Some(Ipv4Addr::new(10, 77, 0, 1).into()), true),
            scripts: Scripts::default(),
        };
        shared.layers.put(vec![layer::Layer::open(&root.join("tools")).unwrap()]);
        let shared = Arc::new(shared);
        Self { directory, router: router(shared.clone()), shared, neighbours, seen }
    }

    /// Whether a boot token of 52:54:00:00:00:01 is handed to that address.
    async fn token_for(&self, address: &str) -> bool {
        let mut request =
            http::Request::get("/boot/ipxe?mac=52:54:00:00:00:01").body(axum::body::Body::empty()).unwrap();
        request.extensions_mut().insert(Client(SocketAddr::new(address.parse().unwrap(), 1024)));
        let body = self.router.clone().oneshot(request).await.unwrap().into_body();
        String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()).contains("landfall.token=")
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status, head.headers, String::from_utf8_lossy(&body).into_owned())
    }
}

#[tokio::test]
async fn a_uki_carries_the_command_line_of_its_machine() {
    let site = Site::new();
    let (status, headers, body) = site.ask("HEAD", "/boot/uki/52-54-00-00-00-01.efi", &[]).await;
    let length = uki::tests::image(false).len().to_string();
    assert_eq!((status, body.as_str(), headers["content-length"].to_str().unwrap()), (StatusCode::OK, "", &*length));
    // The whole line does not fit into 64 bytes.
    let (status, _, _) = site.ask("GET", "/boot/uki/52-54-00-00-00-01.efi", &[]).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let (line, rest) = ("landfall.coordinator=https://10.77.0.1:7443 landfall.ca=sha256:aa", "kernel and initramfs");
    let mut large = uki::tests::image(false);
    large[0x150..0x15c].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    large.splice(0x240..0x240, [b' '; 192]);
    fs::write(site.directory.path().join("uki"), &large).unwrap();
    let (status, headers, body) = site.ask("GET", "/boot/uki/52-54-00-00-00-01.efi", &[]).await;
    assert_eq!((status, headers["content-type"].to_str().unwrap()), (StatusCode::OK, "application/efi"));
    assert_eq!(
        (&headers["cache-control"], &headers["content-length"]),
        (&"no-store".parse().unwrap(), &large.len().into())
    );
    let (_, after) = body.split_once(line).unwrap();
    assert!(after.starts_with(" landfall.token=t0ken BOOTIF=01-52-54-00-00-00-01  panic=30 "), "{after}");
    assert!(body.ends_with(&format!("  {rest}")), "{after}");
    for (name, why) in [
        ("52-54-00-00-01-01.efi", "web-2 has no workflow"),
        ("52-54-00-00-09-01.efi", "no machine has the address"),
        ("52-54-00-00-00-02.efi", "could not decide"),
        ("52-54-00-00-00-01", "the name is a port's address"),
        ("x.efi", "the name is a port's address"),
    ] {
        let (status, _, body) = site.ask("GET", &format!("/boot/uki/{name}"), &[]).await;
        assert!(status == StatusCode::NOT_FOUND && body.contains(why), "{name}: {status} {body}");
    }
    let uki = Some(site.directory.path().join("uki"));
    let arm64 = OtherImage { uki, kernel_args: "console=ttyAMA0".into(), ..OtherImage::default() };
    let (of_arm64, path) = (Site::with(arm64), "/boot/uki-arm64/52-54-00-00-00-01.efi");
    let (_, _, body) = of_arm64.ask("GET", path, &[]).await;
    assert!(body.contains(" BOOTIF=01-52-54-00-00-00-01 console=ttyAMA0 panic=30 "), "{body}");
    assert!(site.ask("GET", path, &[]).await.2.contains("set boot.arm64.uki"));
    fs::write(site.directory.path().join("uki"), uki::tests::image(true)).unwrap();
    let (_, _, body) = site.ask("GET", "/boot/uki/52-54-00-00-00-01.efi", &[]).await;
    assert!(body.contains("as it was made") && !body.contains("t0ken"), "a signed one stays as it is");
}

#[tokio::test]
async fn an_image_resumes_unless_it_was_replaced() {
    let site = Site::new();
    let path = "/images/debian/disk.img";
    let (status, headers, body) = site.ask("GET", path, &[]).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "0123456789"));
    let etag = headers["etag"].to_str().unwrap().to_owned();
    assert!(etag.starts_with('"'), "strong: {etag}");

    let resume = [("range", "bytes=4-"), ("if-range", etag.as_str())];
    let (status, headers, body) = site.ask("GET", path, &resume).await;
    assert_eq!((status, body.as_str()), (StatusCode::PARTIAL_CONTENT, "456789"));
    assert_eq!(
        (&headers["content-range"], &headers["content-length"]),
        (&HeaderValue::from_static("bytes 4-9/10"), &HeaderValue::from_static("6"))
    );

    // Same size, same time of modification, another file.
    let file = site.directory.path().join("images/debian/disk.img");
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    let new = file.with_extension("new");
    fs::write(&new, b"abcdefghij").unwrap();
    fs::File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
    fs::rename(&new, &file).unwrap();
    let (status, _, body) = site.ask("GET", path, &resume).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "abcdefghij"));

    let (status, headers, _) = site.ask("GET", path, &[("range", "bytes=10-")]).await;
    assert_eq!(
        (status, &headers["content-range"]),
        (StatusCode::RANGE_NOT_SATISFIABLE, &HeaderValue::from_static("bytes */10"))
    );
}

#[tokio::test]
async fn head_tells_the_size_and_sends_nothing() {
    let (status, headers, body) = Site::new().ask("HEAD", "/images/debian/disk.img", &[]).await;
    assert_eq!(
        (status, &headers["content-length"], body.as_str()),
        (StatusCode::OK, &HeaderValue::from_static("10"), "")
    );
}

#[tokio::test]
async fn nothing_but_the_images_is_served() {
    let site = Site::new();
    for path in [
        "/images/../secret", "/images/%2e%2e/secret", "/images/..%2fsecret", "/images/%2fetc/passwd", "/images/.key",
        "/images/debian", "/images/debian/", "/images/", "/images/debian/disk.img%00", "/boot/secret",
        "/boot/..%2fsecret", "/boot/images", "/",
    ] {
        let (status, _, body) = site.ask("GET", path, &[]).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {body}");
    }
    assert_eq!(site.ask("PUT", "/images/debian/disk.img", &[]).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_link_is_followed_only_inside_the_images() {
    let site = Site::new();
    let (root, images) = (site.directory.path(), site.directory.path().join("images"));
    std::os::unix::fs::symlink("debian/disk.img", images.join("inside")).unwrap();
    std::os::unix::fs::symlink(root.join("secret"), images.join("outside")).unwrap();
    std::os::unix::fs::symlink(root, images.join("up")).unwrap();
    assert_eq!(site.ask("GET", "/images/inside", &[]).await.2, "0123456789");
    for path in ["/images/outside", "/images/up/secret"] {
        assert_eq!(site.ask("GET", path, &[]).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn an_overlong_file_name_is_not_the_servers_fault() {
    let path = format!("/images/{}", "a".repeat(5000));
    assert_eq!(Site::new().ask("GET", &path, &[]).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_boot_script_fault_leads_to_the_own_disk() {
    let site = Site::new();
    let (status, headers, script) = site.ask("GET", "/boot/ipxe?mac=52:54:00:00:00:01&uuid=${uuid}&x=y", &[]).await;
    assert_eq!((status, &headers["cache-control"]), (StatusCode::OK, &HeaderValue::from_static("no-store")));
    assert!(script.contains("landfall.token=t0ken"), "{script}");
    for mac in ["52-54-00-00-00-02", "52%3A54%3A00%3A00%3A00%3A03"] {
        let (status, _, script) = site.ask("GET", &format!("/boot/ipxe?mac={mac}"), &[]).await;
        assert_eq!(status, StatusCode::OK);
        assert!(script.contains("exit 1") && !script.contains("/boot/kernel"), "{mac}: {script}");
    }
    for bad in ["/boot/ipxe", "/boot/ipxe?mac=", "/boot/ipxe?mac=1:2"] {
        assert_eq!(site.ask("GET", bad, &[]).await.0, StatusCode::BAD_REQUEST, "{bad}");
    }
}

#[tokio::test]
async fn an_agent_without_a_token_gets_one_like_a_script() {
    let site = Site::new();
    let router = token::router(site.shared.clone());
    let ask = async |query: &str, from: &str| {
        let mut request = http::Request::get(format!("/boot-token{query}")).body(axum::body::Body::empty()).unwrap();
        request.extensions_mut().insert(SocketAddr::new(from.parse().unwrap(), 1024));
        let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
        (head.status.as_u16(), String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()).into_owned())
    };
    let uuid = Uuid::from_u128(7);
    for (query, from, status, text) in [
        ("?mac=52:54:00:00:00:01".to_owned(), "10.77.0.1", 200, "t0ken"),
        (format!("?mac=52:54:00:00:00:01&uuid={uuid}"), "10.77.0.1", 200, "t0ken"),
        ("?mac=52:54:00:00:00:01".to_owned(), "10.77.0.3", 404, "only a machine on a link"),
        ("?mac=52:54:00:00:00:01".to_owned(), "10.99.0.1", 404, "only a machine on a link"),
        ("?mac=52:54:00:00:00:01".to_owned(), "2001:db8::7", 404, "only a machine on a link"),
        ("?mac=52:54:00:00:01:01".to_owned(), "10.77.0.3", 409, "web-2 has nothing to run"),
        ("?mac=52:54:00:01:01:01".to_owned(), "10.77.0.7", 404, "must be approved"),
        ("?mac=52:54:00:00:09:09".to_owned(), "10.77.0.4", 404, "no machine has the address"),
        ("?mac=52:54:00:00:00:02".to_owned(), "10.77.0.2", 404, "could not decide"),
        (String::new(), "10.77.0.1", 400, "the parameter mac"),
        ("?mac=1".to_owned(), "10.77.0.1", 400, "the parameter mac"),
    ] {
        let (found, body) = ask(&query, from).await;
        assert!(found == status && body.contains(text), "{query} from {from}: {found} {body}");
    }
}

#[tokio::test]
async fn the_policy_learns_what_was_not_served_and_why() {
    let site = Site::new();
    for (path, seen) in [
        ("/boot/ipxe?mac=52:54:00:00:00:01", "52:54:00:00:00:01 served"),
        ("/boot/ipxe?mac=52:54:00:00:01:01", "52:54:00:00:01:01 served"),
        ("/boot/ipxe?mac=52:54:00:00:00:02", "52:54:00:00:00:02 ipxe false the coordinator could not decide"),
        ("/boot/ipxe?mac=52:54:00:00:00:03", "52:54:00:00:00:03 ipxe true no machine has this address"),
        ("/boot/uki/52-54-00-00-00-03.efi", "52:54:00:00:00:03 http true no machine has this address"),
        ("/boot/ipxe?mac=52:54:00:00:00:01&arch=riscv", "52:54:00:00:00:01 ipxe false architecture riscv: there is no"),
    ] {
        site.seen.lock().unwrap().clear();
        site.ask("GET", path, &[]).await;
        let last = site.seen.lock().unwrap().last().cloned().unwrap_or_default();
        assert!(last.starts_with(seen), "{path}: {last}");
    }
}

#[tokio::test]
async fn no_neighbour_gets_another_machines_boot_token() {
    let site = Site::new();
    for (address, given, why) in [
        ("10.77.0.1", true, "the machine itself"),
        ("::ffff:10.77.0.1", true, "the machine itself, over a socket of both kinds"),
        ("10.77.0.2", true, "another port of it"),
        ("10.77.0.3", false, "another machine"),
        ("10.77.0.4", false, "an unknown machine"),
        ("192.0.2.1", true, "behind a router, so nothing is known"),
    ] {
        assert_eq!(site.token_for(address).await, given, "{why}");
    }
    // With our own DHCP server, an address that we did not lease belongs to no machine.
    let mac = |text: &str| text.parse::<MacAddr>().unwrap();
    let given = [
        (Ipv4Addr::new(10, 77, 0, 5), mac("52:54:00:00:00:01")),
        (Ipv4Addr::new(10, 77, 0, 6), mac("52:54:00:00:01:01")),
    ];
    site.neighbours.learn("br0", Leases::of(given));
    for (address, given) in [("10.77.0.1", false), ("10.77.0.5", true), ("10.77.0.6", false), ("192.0.2.1", true)] {
        assert_eq!(site.token_for(address).await, given, "{address}");
    }
}

#[tokio::test]
async fn a_network_cards_own_ipxe_gets_ours_once() {
    let site = Site::new();
    let rom = "/boot/ipxe?mac=52:54:00:00:00:01&uuid=&platform=pcbios&chip=virtio-net";
    let (_, _, first) = site.ask("GET", rom, &[]).await;
    assert!(
        first.contains("chain --autofree tftp://10.77.0.1/undionly.kpxe ||") && !first.contains("token"),
        "{first}"
    );
    let ours = rom.replace("virtio-net", "undionly");
    assert!(site.ask("GET", &ours, &[]).await.2.contains("landfall.token=t0ken"));
    // The next power-on.
    assert!(site.ask("GET", rom, &[]).await.2.contains("undionly.kpxe"));
    // A loader that still calls itself something else must not go round for ever.
    assert!(site.ask("GET", rom, &[]).await.2.contains("landfall.token=t0ken"));
}

#[tokio::test]
async fn a_stop_ends_a_download_over_a_real_connection() {
    let site = Site::new();
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let cancel = tokio_util::sync::CancellationToken::new();
    let server = tokio::spawn(serve::serve(listener, site.router.clone(), cancel.clone()));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.write_all(b"GET /boot/kernel HTTP/1.1\r\nHost: x\r\nRange: bytes=1-2\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"er") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 206 ") && answer.to_lowercase().contains("content-length: 2"), "{answer}");
    // The connection is kept alive, idle: stopping must not wait for it.
    cancel.cancel();
    tokio::time::timeout(Duration::from_secs(30), server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn each_architecture_gets_its_own_image_or_its_disk() {
    let script = async |site: &Site, arch: &str| {
        let path = format!("/boot/ipxe?mac=52:54:00:00:00:01&uuid=&platform=efi&arch={arch}");
        site.ask("GET", &path, &[]).await.2
    };
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        fs::write(files.path().join(name), name).unwrap();
        Some(files.path().join(name))
    };
    let both = Site::with(OtherImage {
        kernel: file("arm-kernel"),
        initramfs: file("arm-initramfs"),
        iso: file("arm-iso"),
        kernel_args: "console=ttyAMA0".into(),
        ..OtherImage::default()
    });
    let arm64 = script(&both, "arm64").await;
    assert!(arm64.contains("/boot/kernel-arm64 ") && arm64.contains("/boot/initramfs-arm64 "), "{arm64}");
    assert!(arm64.contains(" console=ttyAMA0 panic=30 "), "{arm64}");
    assert_eq!(both.ask("GET", "/boot/kernel-arm64", &[]).await.2, "arm-kernel");
    assert_eq!(both.ask("GET", "/boot/initramfs-arm64", &[]).await.2, "arm-initramfs");
    // BMCs read a medium in parts.
    assert_eq!(both.ask("GET", "/boot/landfall-arm64.iso", &[("Range", "bytes=4-6")]).await.2, "iso");
    assert_eq!(both.ask("GET", "/boot/landfall.iso", &[]).await.0, StatusCode::NOT_FOUND);
    for old in ["", "x86_64", "i386", "$%7Bbuildarch%7D"] {
        assert!(script(&both, old).await.contains("/boot/kernel initrd"), "{old}");
    }
    let x86 = Site::new();
    for (site, arch) in [(&x86, "arm64"), (&both, "riscv64"), (&both, "arm32")] {
        let disk = script(site, arch).await;
        assert!(disk.contains("no boot image for this machine's architecture"), "{disk}");
        assert!(!disk.contains("landfall.token") && !disk.contains("/boot/kernel"), "{disk}");
    }
    assert_eq!(x86.ask("GET", "/boot/kernel-arm64", &[]).await.0, StatusCode::NOT_FOUND);
    assert_eq!(x86.ask("GET", "/boot/tools", &[]).await.0, StatusCode::NOT_FOUND);
    // printf hsqs | sha256sum
    let layer = "/boot/tools/sha256:53bff6664974960b06bcb260bd4b83494c04c71a62623bcadd7986c4d4adf3a1";
    assert_eq!(x86.ask("GET", layer, &[]).await.2, "hsqs");
    assert_eq!(x86.ask("GET", &layer.replace("sha256:", "sha256:0"), &[]).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_arm64_cards_own_ipxe_gets_the_arm64_loader() {
    let site = Site::new();
    let rom = |mac, arch| format!("/boot/ipxe?mac=52:54:00:00:00:{mac}&uuid=&platform=efi&arch={arch}&chip=virtio-net");
    let (_, _, arm64) = site.ask("GET", &rom("01", "arm64"), &[]).await;
    assert!(arm64.contains("tftp://10.77.0.1/snponly-arm64.efi") && arm64.contains("&arch=arm64"), "{arm64}");
    let (_, _, x86) = site.ask("GET", &rom("07", "x86_64"), &[]).await;
    assert!(x86.contains("tftp://10.77.0.1/snponly.efi"), "{x86}");
    let (_, _, other) = site.ask("GET", &rom("08", "riscv64"), &[]).await;
    assert!(!other.contains("tftp://"), "{other}");
}

#[tokio::test]
async fn the_disk_finder_is_served_for_one_workflow() {
    let site = Site::new();
    let uid = "00000000-0000-0000-0000-000000000007";
    for (query, index) in [("", false), ("&action=3", true)] {
        let (status, _, program) = site.ask("GET", &format!("/boot/find-disk?workflow={uid}{query}"), &[]).await;
        assert!(status == StatusCode::OK && program.contains(uid), "{program}");
        assert_eq!(program.contains("\"actionIndex\":3,"), index, "{program}");
    }
    for bad in ["", "?workflow=", "?workflow=7", &format!("?workflow={uid}&action=x")] {
        assert_eq!(site.ask("GET", &format!("/boot/find-disk{bad}"), &[]).await.0, StatusCode::BAD_REQUEST, "{bad}");
    }
}
