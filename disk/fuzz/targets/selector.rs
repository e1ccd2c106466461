//! Disk selectors, as they come in a document.
#![no_main]

use landfall_api::{DiskFacts, DiskId, DiskSelector};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let Ok(selector) = serde_json::from_slice::<DiskSelector>(data) else { return };
    let disk = DiskFacts {
        id: DiskId {
            wwn: "0x5000c500a1b2c3d4".into(),
            serial: "S4EVNF0M".into(),
            path: "pci-0000:00:04.0".into(),
            name: "sda".into(),
            model: "Samsung SSD 870".into(),
            size_bytes: 480 * 1_000_000_000,
        },
        vendor: "ATA".into(),
        transport: "sata".into(),
        hctl: "0:0:1:0".into(),
        ..DiskFacts::default()
    };
    let (valid, mismatches) = (selector.validate(), selector.mismatches(&disk));
    assert_eq!(valid.clone().err(), mismatches.clone().err(), "whether it parses does not depend on the disk");
    assert!(mismatches.is_ok_and(|why| why.len() <= selector.0.len()) || valid.is_err());
    if selector.0.values().any(has_float) {
        // Their last digit may change on the way; sizes in bytes have none.
        return;
    }
    let text = serde_json::to_vec(&selector).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<DiskSelector>(&text).expect("what is written can be read"), selector);
});

fn has_float(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_float),
        Value::Object(fields) => fields.values().any(has_float),
        scalar => scalar.is_f64(),
    }
}
