//! Who may use which route.

use landfall_api::ErrorCode;
use uuid::Uuid;

use super::*;
use crate::tls::MachineCert;

#[tokio::test]
async fn every_route_but_health_asks_for_an_operator() {
    let api = api().await;
    let own = nix::unistd::geteuid().as_raw();
    let machine_cert = MachineCert {
        name: "node-1".into(),
        uid: Uuid::nil(),
        serial_hex: "01".into(),
        key_fingerprint: String::new(),
        not_after: Timestamp::MAX,
    };
    let peers = [
        (None, Some(StatusCode::UNAUTHORIZED)),
        (Some(Peer::Anonymous), Some(StatusCode::UNAUTHORIZED)),
        (Some(Peer::Machine(machine_cert)), Some(StatusCode::FORBIDDEN)),
        (Some(Peer::Local { uid: own + 1, user: "eve".into() }), Some(StatusCode::FORBIDDEN)),
        (Some(Peer::Local { uid: own, user: "me".into() }), None),
        (Some(Peer::Local { uid: 0, user: "root".into() }), None),
        (Some(admin()), None),
    ];
    let mut routes = vec![
        (Method::GET, "/openapi.json".to_owned()),
        (Method::GET, "/schemas/machine".to_owned()),
        (Method::POST, format!("{API_PATH}/apply")),
        (Method::POST, format!("{API_PATH}/machines/a/provision")),
        (Method::POST, format!("{API_PATH}/machines/a/dry-run")),
        (Method::POST, format!("{API_PATH}/machines/a/preview")),
        (Method::POST, format!("{API_PATH}/machines/a/render")),
        (Method::GET, format!("{API_PATH}/machines/a/events")),
        (Method::POST, format!("{API_PATH}/workflows/a/cancel")),
        (Method::GET, format!("{API_PATH}/workflows/a/events")),
        (Method::GET, format!("{API_PATH}/workflows/a/logs")),
        (Method::GET, "/apis/anything/else".to_owned()),
        (Method::PUT, format!("{API_PATH}/machines/a")),
    ];
    for plural in ["machines", "templates", "workflows"] {
        routes.push((Method::GET, format!("{API_PATH}/{plural}")));
        routes.push((Method::GET, format!("{API_PATH}/{plural}/a")));
        routes.push((Method::DELETE, format!("{API_PATH}/{plural}/a")));
    }
    for (peer, refused) in peers {
        for (method, path) in &routes {
            let (status, text) = api.send(peer.clone(), method.clone(), path, Body::from("{}")).await;
            match refused {
                Some(expected) => {
                    assert_eq!(status, expected, "{peer:?} {method} {path}");
                    let problem: Problem = serde_json::from_str(&text).unwrap();
                    assert!(!problem.hint.is_empty(), "{problem}");
                }
                None => assert!(![401, 403].contains(&status.as_u16()), "{peer:?} {method} {path}: {status} {text}"),
            }
        }
        let (status, _) = api.send(peer, Method::GET, "/healthz", Body::empty()).await;
        assert_eq!(status, StatusCode::OK);
    }
}

#[tokio::test]
async fn another_sites_page_cannot_use_an_operators_certificate() {
    let api = api().await;
    let token = landfall_api::TokenRequest { name: "ci".into(), role: Role::Admin, ttl: None };
    let token = api.coordinator.store.access().make_token(token, "ann", Timestamp::now()).await.unwrap().value;
    let send = async |headers: &[(&str, &str)], method: Method, path: &str| {
        let mut request = Request::builder().method(method).uri(path).header("host", "landfall.lan");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::from(machine("m1", "52:54:00:00:00:01").to_string())).unwrap();
        request.extensions_mut().insert(admin());
        api.router.clone().oneshot(request).await.unwrap().status()
    };
    let (apply, list) = (format!("{API_PATH}/apply"), format!("{API_PATH}/machines"));
    for foreign in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")] {
        assert_eq!(send(&[foreign], Method::POST, &apply).await, StatusCode::FORBIDDEN, "{foreign:?}");
        assert_eq!(send(&[foreign], Method::GET, &list).await, StatusCode::OK, "it changes nothing");
        let bearer = format!("Bearer {token}");
        let shown = [foreign, ("authorization", bearer.as_str())];
        assert_eq!(send(&shown, Method::POST, &apply).await, StatusCode::OK, "{foreign:?}");
    }
    let refused = api.coordinator.store.audit().list(0, 10).await.unwrap();
    assert!(refused[0].code == ErrorCode::Forbidden.as_str() && refused[0].who == "admin/ann", "{refused:?}");
    let own = [("sec-fetch-site", "same-origin"), ("origin", "https://landfall.lan")];
    assert_eq!(send(&own, Method::POST, &apply).await, StatusCode::OK);
    assert_eq!(send(&[], Method::POST, &apply).await, StatusCode::OK);
}

#[test]
fn the_servers_name_is_the_same_in_both_contracts() {
    assert_eq!(landfall_api::SERVER_NAME, landfall_proto::SERVER_NAME);
}
