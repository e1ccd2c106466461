//! A web server in the place of a BMC, called as a document states it.

use landfall_api::{BmcSpec, PowerState, Webhook};
use landfall_bmc::{BmcError, BootDevice, BootOverride, PowerChange, connect};
use landfall_bmcsim::{BmcSim, PASSWORD, Quirks};
use serde_json::{Value, json};

use crate::common::{ONCE, account, spec};

fn calls() -> Value {
    json!({
        "on": {"path": "/outlets/{{ machine.name }}/on", "body": {"by": "{{ username }}", "key": "{{ password }}\"", "n": [1]}},
        "off": {"path": "/outlets/m1/off", "body": "key={{ password }}"},
        "status": {"path": "/outlets/{{ machine.name }}", "at": "/state", "on": "on", "off": "off"},
        "netboot": {"path": "/outlets/m1/boot", "method": "PUT"},
    })
}

fn stated(sim: &BmcSim, calls: Value) -> BmcSpec {
    BmcSpec { webhook: Some(serde_json::from_value::<Webhook>(calls).unwrap()), ..spec(sim) }
}

#[tokio::test]
async fn each_call_is_made_as_the_document_states_it() {
    let sim = BmcSim::start_webhook(Quirks::default()).await;
    let mut bmc = connect(&stated(&sim, calls()), account(PASSWORD), "m1").await.unwrap();
    assert_eq!(bmc.power().await.unwrap(), Some(PowerState::Off));
    bmc.set_boot(ONCE).await.unwrap();
    bmc.change_power(PowerChange::On).await.unwrap();
    assert_eq!(bmc.power().await.unwrap(), Some(PowerState::On));
    assert_eq!(sim.seen().computer.starts[0].from, "Pxe");
    assert!(matches!(bmc.change_power(PowerChange::Shutdown).await, Err(BmcError::Unsupported { .. })));
    let lasting = BootOverride { once: false, ..ONCE };
    assert!(matches!(bmc.set_boot(lasting).await, Err(BmcError::Unsupported { .. })));
    assert_eq!(bmc.set_boot(BootOverride { device: BootDevice::None, ..lasting }).await, Ok(()), "nothing lasts");
    bmc.change_power(PowerChange::Off).await.unwrap();
    assert_eq!(
        sim.seen().requests,
        [
            "GET /outlets/m1 ",
            "PUT /outlets/m1/boot ",
            r#"POST /outlets/m1/on {"by":"landfall","key":"right\"","n":[1]}"#,
            "GET /outlets/m1 ",
            "POST /outlets/m1/off key=right",
        ]
    );
}

#[tokio::test]
async fn no_error_of_a_webhook_has_the_password() {
    let sim = BmcSim::start_webhook(Quirks::default()).await;
    let said = async |change: &dyn Fn(&mut Value), password: &str| {
        let mut calls = calls();
        change(&mut calls);
        let mut bmc = match connect(&stated(&sim, calls), account(password), "m1").await {
            Ok(bmc) => bmc,
            Err(error) => return error,
        };
        bmc.change_power(PowerChange::On).await.unwrap_err()
    };
    let missing = said(&|calls| calls["on"]["path"] = json!("/none/{{machine.name}}"), PASSWORD).await;
    assert!(matches!(&missing, BmcError::Failed { status: 404, url, .. } if url.ends_with("/none/{{machine.name}}")));
    let undefined = said(&|calls| calls["on"]["body"] = json!("{{ password ~ machine.port }}"), PASSWORD).await;
    assert!(matches!(&undefined, BmcError::Calls(why) if why.contains("has no value")), "{undefined}");
    let refused = said(&|_| {}, "wrong").await;
    assert!(matches!(&refused, BmcError::Refused { .. }), "{refused}");
    let header = json!({"X-Key": "{{ password }}\u{7}"});
    let odd = said(&|calls| calls["headers"] = header.clone(), PASSWORD).await;
    assert!(matches!(&odd, BmcError::Calls(why) if why.contains("X-Key")), "{odd}");
    for error in [missing, undefined, refused, odd] {
        assert!(!error.to_string().contains(PASSWORD), "{error}");
    }
    // A header of the document takes the place of name and password.
    let by_header = json!({"authorization": "Basic bGFuZGZhbGw6cmlnaHQ="});
    let spec = {
        let mut calls = calls();
        calls["headers"] = by_header;
        stated(&sim, calls)
    };
    assert!(connect(&spec, account("wrong"), "m1").await.unwrap().power().await.is_ok());
}
