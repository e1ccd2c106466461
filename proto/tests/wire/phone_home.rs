//! What an installed system says, as JSON.

use landfall_api::message::PhoneHomeReport;
use landfall_golden as golden;

#[test]
fn the_phone_home_report() {
    let report = PhoneHomeReport {
        hostname: "web-1".into(),
        boot_id: "6f1c0b1e-7d0c-4c0e-9d8b-2f7b8a2f0f11".into(),
        os_release: "Debian GNU/Linux 12 (bookworm)".into(),
        kernel: "6.1.0-18-amd64".into(),
        uptime_seconds: 31,
        machine_id: "0123456789abcdef0123456789abcdef".into(),
    };
    golden::same("wire/agent/phone-home.json", &format!("{}\n", serde_json::to_string(&report).unwrap()));
    let read: PhoneHomeReport = serde_json::from_str(&golden::text("wire/agent/phone-home.json")).unwrap();
    assert_eq!(read, report);
}
