use std::fs;

use super::*;

const MINIMAL: &str = r#"
    data_dir = "/var/lib/landfall"
    advertise = "10.77.0.1"
    [boot]
    kernel = "/boot/vmlinuz"
    initramfs = "/boot/initramfs"
"#;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("c.toml"), text).map_err(|e| e.to_string())
}

/// Every key with a value of its own, or the least there is of it.
fn keys(value: &serde_json::Value, at: &str, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
            keys(value, &format!("{at}{}{key}", if at.is_empty() { "" } else { "." }), out);
        }),
        _ => out.push(at.to_owned()),
    }
}

#[test]
fn the_shipped_example_explains_every_key() {
    let text = include_str!("../../../docs/coordinator.toml");
    parse(text).unwrap();
    // What is off by default stands there as a comment of the form `# key = value`.
    let mut all = String::new();
    let mut explained = false;
    for line in text.lines() {
        let bare = line.strip_prefix("# ").filter(|bare| {
            let is_key = |key: &str| key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            bare.starts_with("[[") || bare.split_once(" = ").is_some_and(|(key, _)| is_key(key))
        });
        let line = bare.unwrap_or(line);
        if !line.starts_with('#') && line.contains(" = ") {
            assert!(explained, "nothing explains {line}");
        }
        explained = line.starts_with('#');
        all.push_str(line);
        all.push('\n');
    }
    let config = parse(&all).unwrap();
    let (mut there, mut written) = (Vec::new(), Vec::new());
    keys(&serde_json::to_value(&config).unwrap(), "", &mut there);
    let text: toml::Value = toml::from_str(&all).unwrap();
    keys(&serde_json::to_value(text).unwrap(), "", &mut written);
    there.sort();
    written.sort();
    assert_eq!(written, there);
}

#[test]
fn an_unknown_key_is_named_with_line_and_suggestion() {
    let error = parse(&format!("{MINIMAL}\n[limits]\nleese = \"5s\"")).unwrap_err();
    assert_eq!(error, "c.toml:9: there is no key \"leese\" here; did you mean \"lease\"?");
    let error = parse(&format!("{MINIMAL}\n[tftp]\nfoo = 1")).unwrap_err();
    assert_eq!(error, "c.toml:9: there is no key \"foo\" here; the keys here are listen, enabled");
    let error = parse("data_dir = [").unwrap_err();
    assert!(error.starts_with("c.toml:1: "), "{error}");
}

#[test]
fn the_minimal_file_has_every_default() {
    let config = parse(MINIMAL).unwrap();
    assert_eq!(config.tls_url(), "https://10.77.0.1:7443");
    assert_eq!(config.boot_services(Vec::new()).http_url(), "http://10.77.0.1:7480");
    assert_eq!(config.dhcp.mode, DhcpMode::Off);
    assert_eq!(config.limits.lease.get(), Duration::from_secs(600));
}

#[test]
fn what_cannot_work_is_refused_by_key() {
    for (more, named) in [
        ("[dhcp]\nmode = \"full\"", "dhcp.interface"),
        ("[dhcp]\nmode = \"full\"\ninterface = \"br0\"", "dhcp.range"),
        ("[dhcp]\nrange = \"10.0.0.9-10.0.0.1\"", "lower address first"),
        ("[limits]\nlease = \"5s\"", "limits.lease"),
        ("[limits]\nlease = \"0s\"", "zero"),
        ("[limits]\nleese = \"5s\"", "leese"),
        ("[limits]\nparallel_installs = 0", "limits.parallel_installs"),
        ("[discovery]\nmax_machines = 0", "discovery.max_machines"),
        ("[discovery]\nsubnets = [\"10.77.0.0\"]", "subnets"),
        ("[manifests]\ndirectory = \"m\"", "manifests.directory"),
        ("[metrics]\nlisten = \"0.0.0.0:7443\"", "metrics.listen"),
        ("[log]\nfilter = \"a=b=c\"", "log.filter"),
        ("[boot.arm64]\nkernel = \"/k\"", "boot.arm64"),
        ("[boot.arm64]\nkernel_args = \"a || b\"", "boot.arm64.kernel_args: contains"),
        ("[manifests]\nrescan = \"0s\"", "zero"),
        ("[store]\nca = \"/ca.pem\"", "store.url: is missing"),
        ("[store]\nurl = \"postgresql://a:b@h/d\"", "store.url: the store's URL contains a password"),
        ("[store]\nurl = \"postgresql://h/d\"", "store.url: the store's URL is invalid"),
        ("[store]\nurl = \"postgresql://a@h/d\"\nkey = \"/k\"", "store: has only one"),
        ("[store]\nurl = \"postgresql://a@h/d\"\nkey = \"/k\"\ncertificate = \"/c\"", "store.ca: is missing"),
    ] {
        let error = parse(&format!("{MINIMAL}\n{more}")).unwrap_err();
        assert!(error.contains(named), "{more}: {error}");
    }
}

#[test]
fn others_must_be_addresses_that_agents_take() {
    let of = |others: &str, store: &str| parse(&format!("others = {others}\n{MINIMAL}\n{store}"));
    let store = "[store]\nurl = \"postgresql://a@localhost/d\"";
    let whole =
        of("[\"https://192.0.2.11:7443\", \"https://[fd77::2]:7443\", \"https://b.example:1\"]", store).unwrap();
    let http = ["http://192.0.2.11:7480", "http://[fd77::2]:7480", "http://b.example:7480"];
    assert_eq!(whole.other_http_urls(), http);
    let eight = format!("[{}]", ["\"https://b:1\""; 8].join(","));
    for (others, store, named) in [
        ("[\"https://b:7443\"]", "", "others: is stated, but the store is this host's own"),
        (&eight, store, "others: has more than 7"),
        ("[\"b:7443\"]", store, "others: has \"b:7443\""),
        ("[\"http://b:7443\"]", store, "others: has"),
        ("[\"https://b\"]", store, "others: has"),
        ("[\"https://b:7443/\"]", store, "others: has"),
        ("[\"https://b:7443/x\"]", store, "others: has"),
        ("[\"https://b:7443?x\"]", store, "others: has"),
    ] {
        let error = of(others, store).unwrap_err();
        assert!(error.contains(named), "{others}: {error}");
    }
}

#[test]
fn a_sqlite_store_is_never_left_behind_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreConfig { url: Some("postgresql://a@localhost/d".into()), ..StoreConfig::default() };
    assert!(store.postgres(directory.path()).unwrap().is_some());
    fs::write(directory.path().join(landfall_store::DATABASE), "").unwrap();
    let Err(error) = store.postgres(directory.path()) else { panic!("its machines would be forgotten") };
    assert!(error.what.contains("landfall.db"), "{error:?}");
    assert!(StoreConfig::default().postgres(directory.path()).unwrap().is_none());
}

#[test]
fn a_kernel_image_for_another_processor_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = vec![0; 0x40];
    program[0x3c] = 0x40;
    program.extend(b"PE\0\0\x64\xaa");
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(at("arm64.efi"), program).unwrap();
    fs::write(at("file"), "kernel").unwrap();
    let checked = |keys: &str| {
        let text = format!(
            "data_dir = \"/d\"\nadvertise = \"10.77.0.1\"\n[boot]\nkernel = \"{0}\"\ninitramfs = \"{0}\"\n{keys}\n[tftp]\nenabled = false\n",
            at("file")
        );
        Config::parse(Path::new("c.toml"), &text).unwrap().check_files().map_err(|error| error.to_string())
    };
    let uki = |name: &str| format!("uki = \"{}\"", at(name));
    assert_eq!(checked(&format!("[boot.arm64]\n{}", uki("arm64.efi"))), Ok(()));
    for (keys, said) in [
        (uki("arm64.efi"), "arm64.efi is for arm64, not for x86-64"),
        (format!("[boot.arm64]\n{}", uki("file")), "is no program of UEFI for arm64"),
        (uki("missing"), "is not a file; create it with landfall-image uki"),
    ] {
        assert!(checked(&keys).unwrap_err().contains(said), "{keys}");
    }
}

#[test]
fn an_ipv6_address_is_checked_with_what_it_needs() {
    let parse = |advertise: &str, dhcp: &str| {
        let text = format!(
            "data_dir = \"/d\"\nadvertise = \"{advertise}\"\n[boot]\nkernel = \"/k\"\ninitramfs = \"/i\"\n[dhcp]\n\
             mode = \"full\"\ninterface = \"e\"\n{dhcp}\n"
        );
        Config::parse(Path::new("c.toml"), &text)
    };
    let config = parse("fd77::1", "dns = [\"fd77::53\"]").unwrap();
    assert_eq!(
        (config.tls_url().as_str(), config.http_url().as_str()),
        ("https://[fd77::1]:7443", "http://[fd77::1]:7480")
    );
    let every = [config.http.listen, config.tls.listen, config.tftp.listen].map(|listen| listen.ip().to_string());
    assert_eq!(every, ["::"; 3]);
    for (advertise, dhcp, key) in [
        ("fd77::1", "range = \"10.0.0.2-10.0.0.9\"", "dhcp"),
        ("fd77::1", "router = \"10.0.0.1\"", "dhcp"),
        ("fd77::1", "dns = [\"10.0.0.1\"]", "dhcp.dns"),
        ("fd77::1", "prefix_length = 65", "dhcp.prefix_length"),
        ("fe80::1", "", "advertise"),
        ("ff02::1", "", "advertise"),
        ("::1", "", "advertise"),
        ("::", "", "advertise"),
        ("::ffff:10.0.0.1", "", "advertise"),
        ("10.0.0.1", "range = \"10.0.0.2-10.0.0.9\"\ndns = [\"fd77::53\"]", "dhcp.dns"),
    ] {
        let error = parse(advertise, dhcp).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{key}: ")), "{advertise} {dhcp}: {error}");
    }
}
