//! What is plugged into PCI and USB.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landfall_api::{DeviceFacts, smbios_text};

use crate::drivers::{Undriven, why_undriven};

use super::{children, link_name, name_of, read};

/// Devices of use, by bus and address, from `/sys/bus`.
pub(super) fn facts(bus: &Path) -> Vec<DeviceFacts> {
    let mut found: Vec<DeviceFacts> = children(&bus.join("pci/devices")).iter().filter_map(|path| pci(path)).collect();
    found.extend(children(&bus.join("usb/devices")).iter().filter_map(|path| usb(path)));
    found
}

/// A number of the kernel's (`0x15d9`) as four digits.
fn id(path: &Path) -> String {
    read(path).trim_start_matches("0x").to_ascii_lowercase()
}

fn pci(path: &Path) -> Option<DeviceFacts> {
    let class = u32::from_str_radix(&id(&path.join("class")), 16).ok()?;
    let driver = link_name(&path.join("driver"));
    let [_, base, sub, _] = class.to_be_bytes();
    // Codes of the PCI Code and ID Assignment Specification, 1.16, section 1.
    let word = match (base, sub) {
        (0x01, _) => "storage",
        (0x02, _) => "network",
        (0x03, _) => "display",
        (0x04, _) => "multimedia",
        // Host memory, bridges, interrupt controllers and timers, and the counters of processors: a server has hundreds.
        (0x05 | 0x06 | 0x11, _) | (0x08, 0x00..=0x04 | 0x06 | 0x80) => return None,
        (0x07, _) => "communication",
        (0x08, 0x05) => "storage",
        (0x09, _) => "input",
        (0x0b | 0x40, _) => "processor",
        // Fibre Channel; InfiniBand.
        (0x0c, 0x04) => "storage",
        (0x0c, 0x06) => "network",
        (0x0c, _) => "serial bus",
        (0x0d, _) => "wireless",
        (0x10, _) => "encryption",
        (0x12, _) => "accelerator",
        _ => "other",
    };
    let behind: Vec<_> = children(path).into_iter().filter(|one| name_of(one).starts_with("virtio")).collect();
    let idle = behind.iter().find(|one| link_name(&one.join("driver")).is_empty());
    let looked_for =
        idle.filter(|_| !driver.is_empty()).map_or_else(|| modalias(path, &driver), |one| modalias(one, ""));
    let subsystem = [id(&path.join("subsystem_vendor")), id(&path.join("subsystem_device"))];
    let Undriven { problem, missing } = why_undriven(&looked_for);
    Some(DeviceFacts {
        bus: "pci".into(),
        address: name_of(path),
        class: word.into(),
        vendor: id(&path.join("vendor")),
        device: id(&path.join("device")),
        // Zeroes where it has none.
        subsystem: if subsystem.iter().any(|id| id != "0000") { subsystem.join(":") } else { String::new() },
        name: String::new(),
        problem,
        missing_modules: missing,
        modalias: looked_for,
        modules: modules([path.to_owned()].into_iter().chain(behind.iter().cloned())),
        driver,
    })
}

/// A driver belongs to an interface of a device, a directory in it: `1-4.2:1.0`.
fn usb(path: &Path) -> Option<DeviceFacts> {
    let address = name_of(path);
    // Interfaces, and the hubs that controllers have in themselves.
    if address.contains(':') || address.starts_with("usb") {
        return None;
    }
    let within = children(path);
    let interfaces: Vec<_> = within.iter().filter(|one| name_of(one).starts_with(&format!("{address}:"))).collect();
    let class = match u8::from_str_radix(&read(&path.join("bDeviceClass")), 16).ok()? {
        // Each interface has its own.
        0x00 | 0xef => {
            let first = interfaces.first().map(|one| read(&one.join("bInterfaceClass"))).unwrap_or_default();
            u8::from_str_radix(&first, 16).unwrap_or(0xff)
        }
        class => class,
    };
    // Codes of usb.org's list of defined classes.
    let is_port = interfaces.iter().any(|one| one.join("net").exists());
    let word = match class {
        _ if is_port => "network",
        0x01 | 0x0e | 0x10 => "multimedia",
        0x02 | 0x0a => "communication",
        0x03 => "input",
        0x08 => "storage",
        // A hub.
        0x09 => return None,
        0x0b => "smart card",
        0xe0 => "wireless",
        _ => "other",
    };
    let driver = interfaces.iter().map(|one| link_name(&one.join("driver"))).find(|name| !name.is_empty());
    let driver = driver.unwrap_or_default();
    let name = [read(&path.join("manufacturer")), read(&path.join("product"))].map(|text| smbios_text(&text)).join(" ");
    let looked_for = interfaces.first().map(|one| modalias(one, &driver)).unwrap_or_default();
    let Undriven { problem, missing } = why_undriven(&looked_for);
    Some(DeviceFacts {
        bus: "usb".into(),
        class: word.into(),
        vendor: id(&path.join("idVendor")),
        device: id(&path.join("idProduct")),
        subsystem: String::new(),
        name: name.trim().to_owned(),
        problem,
        missing_modules: missing,
        modalias: looked_for,
        modules: modules(interfaces.into_iter().cloned()),
        driver,
        address,
    })
}

/// The modules that drive these, each once.
fn modules(devices: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let names = devices.map(|device| link_name(&device.join("driver/module"))).filter(|name| !name.is_empty());
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn modalias(path: &Path, driver: &str) -> String {
    if driver.is_empty() { read(&path.join("modalias")) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{link, tree};
    use super::*;

    #[test]
    fn devices_have_their_numbers_and_drivers() {
        let pci = |address: &str, class: &str, more: &[(&str, &str)]| {
            let mut files = vec![("class", class), ("vendor", "0x10de"), ("device", "0x2684")];
            files.extend(more);
            files
                .into_iter()
                .map(|(name, text)| (format!("pci/devices/{address}/{name}"), text.to_owned()))
                .collect::<Vec<_>>()
        };
        let own = [("subsystem_vendor", "0x15d9"), ("subsystem_device", "0x0968"), ("modalias", "pci:v10de")];
        let none = [("subsystem_vendor", "0x0000"), ("subsystem_device", "0x0000")];
        let usb = |path: &str, text: &str| (format!("usb/devices/{path}"), text.to_owned());
        let all = [
            pci("0000:00:00.0", "0x060000", &none),
            pci("0000:3b:00.0", "0x030000", &own),
            pci("0000:00:04.0", "0x080501", &none),
            pci("0000:00:05.0", "0x080700", &none),
            pci("0000:00:06.0", "garbage", &none),
            vec![
                usb("usb1/bDeviceClass", "09"),
                usb("1-4/bDeviceClass", "00"),
                usb("1-4/idVendor", "046b"),
                usb("1-4/idProduct", "ff10"),
                usb("1-4/manufacturer", "American Megatrends Inc."),
                usb("1-4/product", "Virtual Keyboard"),
                usb("1-4/1-4:1.0/bInterfaceClass", "03"),
                usb("1-4:1.0/bInterfaceClass", "03"),
                usb("1-5/bDeviceClass", "09"),
            ],
        ]
        .concat();
        let files: Vec<_> = all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let bus = tree(&files);
        link(&bus.path().join("usb/devices/1-4/1-4:1.0/driver"), "../../drivers/usbhid");
        for (path, module) in [("0000:00:04.0/driver", "virtio_pci"), ("0000:00:04.0/virtio1/driver", "virtio_blk")] {
            let driver = bus.path().join("drivers").join(module);
            std::fs::create_dir_all(&driver).unwrap();
            link(&driver.join("module"), &format!("../../module/{module}"));
            let at = bus.path().join("pci/devices").join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            link(&at, driver.to_str().unwrap());
        }
        let seen = facts(bus.path());
        let short: Vec<_> =
            seen.iter().map(|d| [&d.address, &d.class, &d.driver, &d.modalias].map(String::as_str)).collect();
        assert_eq!(
            short,
            [
                ["0000:00:04.0", "storage", "virtio_pci", ""],
                ["0000:00:05.0", "other", "", ""],
                ["0000:3b:00.0", "display", "", "pci:v10de"],
                ["1-4", "input", "usbhid", ""],
            ]
        );
        assert_eq!(
            (&seen[0].modules[..], &seen[3].modules[..]),
            (&["virtio_blk", "virtio_pci"].map(String::from)[..], &[][..])
        );
        assert_eq!([&seen[2].vendor, &seen[2].device, &seen[2].subsystem], ["10de", "2684", "15d9:0968"]);
        assert_eq!((seen[0].subsystem.as_str(), seen[3].vendor.as_str()), ("", "046b"));
        assert_eq!(seen[3].name, "American Megatrends Inc. Virtual Keyboard");
        assert!(facts(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn ports_behind_usb_and_virtio_count_as_what_they_are() {
        let bus = tree(&[
            ("pci/devices/0000:00:03.0/class", "0x020000"),
            ("pci/devices/0000:00:03.0/virtio0/modalias", "virtio:d00000001v00001AF4"),
            ("pci/devices/0000:00:04.0/class", "0x0c0400"),
            ("usb/devices/1-1/bDeviceClass", "ff"),
            ("usb/devices/1-1/1-1:1.0/net/eth0/address", "52:54:00:00:00:01"),
        ]);
        link(&bus.path().join("pci/devices/0000:00:03.0/driver"), "../drivers/virtio-pci");
        let seen = facts(bus.path());
        let short: Vec<_> = seen.iter().map(|d| [&d.class, &d.driver, &d.modalias].map(String::as_str)).collect();
        let idle = "virtio:d00000001v00001AF4";
        assert_eq!(short, [["network", "virtio-pci", idle], ["storage", "", ""], ["network", "", ""]]);
    }
}
