//! Every call and every route, with every kind of caller, over real TLS: made from the tables themselves, so that one
//! which is added is walked too.
#![allow(clippy::disallowed_methods, reason = "these tests run a coordinator by the real clock")]

use super::permitted::{Shows, Site};
use http::Method;
use landfall_api::{AuditOutcome, Role};
use landfall_coordinator::operator::{Access, RouteInfo, routes};
use landfall_coordinator::session::{CALLS, CallAccess};
use landfall_proto::v1;

/// Whom the tables are walked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Anonymous,
    Machine,
    Certificate(Role),
    Token(Role),
    ExpiredAdmin,
    RevokedAdmin,
    DeletedToken,
    ExpiredMachine,
    RevokedMachine,
    MachineNobodyDescribes,
    MachineWithAnAdminsToken,
}

impl Caller {
    const ALL: [Self; 15] = [
        Self::Anonymous,
        Self::Machine,
        Self::Certificate(Role::Viewer),
        Self::Certificate(Role::Operator),
        Self::Certificate(Role::Admin),
        Self::Token(Role::Viewer),
        Self::Token(Role::Operator),
        Self::Token(Role::Admin),
        Self::ExpiredAdmin,
        Self::RevokedAdmin,
        Self::DeletedToken,
        Self::ExpiredMachine,
        Self::RevokedMachine,
        Self::MachineNobodyDescribes,
        Self::MachineWithAnAdminsToken,
    ];

    async fn shows(self, site: &Site) -> Shows {
        let access = site.coordinator.store.access();
        match self {
            Self::Anonymous => Shows::default(),
            Self::Machine => site.machine_certificate("a").await,
            Self::Certificate(role) => site.operator("ann", role),
            Self::Token(role) => site.token("ci", role).await,
            Self::ExpiredAdmin => site.signed("landfall://operator/ann/admin", -60),
            Self::RevokedAdmin => {
                let shows = site.operator("eve", Role::Admin);
                access.revoke_operator("eve", jiff::Timestamp::now()).await.unwrap();
                shows
            }
            Self::DeletedToken => {
                let shows = site.token("ci", Role::Admin).await;
                access.delete_token("ci").await.unwrap();
                shows
            }
            Self::ExpiredMachine => site.signed(&format!("landfall://machine/{}/a", site.uid("a").await), -60),
            Self::RevokedMachine => {
                let shows = site.machine_certificate("a").await;
                site.coordinator.engine.certificates().revoke_machine("a").await.unwrap();
                shows
            }
            Self::MachineNobodyDescribes => {
                site.signed(&format!("landfall://machine/{}/a", uuid::Uuid::new_v4()), 3600)
            }
            Self::MachineWithAnAdminsToken => {
                let bearer = site.token("ci", Role::Admin).await.bearer;
                Shows { bearer, ..site.machine_certificate("a").await }
            }
        }
    }

    /// The status of a refusal by a route that asks for this role; `None`: the route's own business.
    fn refused_by_route(self, least: Role) -> Option<u16> {
        match self {
            Self::Certificate(role) | Self::Token(role) if role >= least => None,
            Self::Certificate(_) | Self::Token(_) => Some(403),
            Self::Anonymous | Self::ExpiredAdmin | Self::RevokedAdmin | Self::DeletedToken => Some(401),
            Self::Machine
            | Self::ExpiredMachine
            | Self::RevokedMachine
            | Self::MachineNobodyDescribes
            | Self::MachineWithAnAdminsToken => Some(403),
        }
    }

    /// The gRPC status of a refusal by a call; `None`: the call's own business.
    fn refused_by_call(self, access: CallAccess) -> Option<i32> {
        const UNAUTHENTICATED: i32 = 16;
        const PERMISSION_DENIED: i32 = 7;
        match (self, access) {
            (Self::Machine | Self::MachineWithAnAdminsToken, _) => None,
            // A token opens no call of agents: its holder is unknown there.
            (Self::Anonymous | Self::Token(_) | Self::DeletedToken, CallAccess::Proof) => None,
            (Self::Anonymous | Self::Token(_) | Self::DeletedToken, CallAccess::Machine) => Some(UNAUTHENTICATED),
            (Self::ExpiredMachine | Self::RevokedMachine | Self::MachineNobodyDescribes, _) => Some(UNAUTHENTICATED),
            (Self::Certificate(_) | Self::ExpiredAdmin | Self::RevokedAdmin, _) => Some(PERMISSION_DENIED),
        }
    }
}

/// A request that fits the route and changes nothing that a later one needs.
fn request_for(route: &RouteInfo) -> (Method, String) {
    let method = route.method.clone().unwrap_or(Method::GET);
    let path = route.path.replace("{name}", "none").replace("{kind}", "machine").replace("{*rest}", "anything/else");
    (method, path)
}

#[tokio::test]
async fn every_route_checks_its_role_and_audits_refusals() {
    let routes = routes();
    // Each from an address of its own, so that no entry is thinned away.
    assert!(routes.len() < 250, "give the sources of this test more than one octet");
    for caller in Caller::ALL {
        let site = Site::new().await;
        let shows = caller.shows(&site).await;
        for (n, route) in routes.iter().enumerate() {
            let host = u8::try_from(n + 2).unwrap();
            let (method, path) = request_for(route);
            let answer = site.ask(host, &shows, method.clone(), &path, "{}").await;
            let at = format!("{caller:?} {method} {path}: {answer:?}");
            let Access::Least(least) = route.access else {
                assert!(![401, 403].contains(&answer.status), "{at}");
                continue;
            };
            match caller.refused_by_route(least) {
                None => assert!(![401, 403].contains(&answer.status), "{at}"),
                Some(status) => {
                    assert_eq!(answer.status, status, "{at}");
                    assert!(!answer.json()["hint"].as_str().unwrap_or_default().is_empty(), "{at}");
                    let noted = site.audit_of(host).await;
                    assert_eq!(noted.len(), 1, "{at}: {noted:?}");
                    assert_eq!(noted[0].outcome, AuditOutcome::Refused, "{at}");
                    assert_eq!(noted[0].action, format!("{method} {path}"), "{at}");
                    assert_eq!(noted[0].code, answer.json()["code"].as_str().unwrap(), "{at}");
                }
            }
            // What was let in and changes something is there too, whatever came of it.
            if caller.refused_by_route(least).is_none() && route.changes() {
                let noted = site.audit_of(host).await;
                let who = if matches!(caller, Caller::Token(_)) { "token/ci" } else { "/ann" };
                assert!(noted.len() == 1 && noted[0].who.ends_with(who), "{at}: {noted:?}");
            }
        }
    }
}

#[tokio::test]
async fn every_call_checks_its_role_and_audits_refusals() {
    for caller in Caller::ALL {
        let site = Site::new().await;
        let shows = caller.shows(&site).await;
        for (n, call) in CALLS.iter().enumerate() {
            let host = u8::try_from(n + 2).unwrap();
            // The first field of each call's message is another: what is empty is nonsense to all, after the check.
            let answer = site.call(host, &shows, call.name, &[v1::EnrollRequest::default()]).await;
            let at = format!("{caller:?} {}: {answer:?}", call.name);
            match caller.refused_by_call(call.access) {
                None => assert!(![7, 16].contains(&answer.grpc), "{at}"),
                Some(status) => {
                    assert_eq!(answer.grpc, status, "{at}");
                    let noted = site.audit_of(host).await;
                    assert_eq!(noted.len(), 1, "{at}: {noted:?}");
                    assert_eq!(
                        (noted[0].action.as_str(), noted[0].outcome),
                        (call.name, AuditOutcome::Refused),
                        "{at}"
                    );
                }
            }
        }
        let unknown = site.call(99, &shows, "Backdoor", &[v1::EnrollRequest::default()]).await;
        assert_ne!(unknown.grpc, 0, "{caller:?}: {unknown:?}");
        assert_eq!(site.audit_of(99).await.len(), 1, "{caller:?}");
    }
}

#[tokio::test]
async fn an_unknown_method_is_refused_by_role() {
    let site = Site::new().await;
    let path = format!("{}/machines/a", super::permitted::API);
    assert_eq!(site.ask(2, &Shows::default(), Method::PUT, &path, "{}").await.status, 401);
    let machine = site.machine_certificate("a").await;
    assert_eq!(site.ask(3, &machine, Method::PUT, &path, "{}").await.status, 403);
    let viewer = site.operator("ann", Role::Viewer);
    assert_eq!(site.ask(4, &viewer, Method::PUT, &path, "{}").await.status, 405);
}

#[tokio::test]
async fn a_role_required_by_the_body_is_checked() {
    let site = Site::new().await;
    let operator = site.operator("ann", Role::Operator);
    let apply = format!("{}/apply", super::permitted::API);
    for (kind, spec) in [("Secret", r#"{"data": {"k": "hunter2"}}"#), ("EnrolmentRule", r#"{"approve": true}"#)] {
        let body = format!(
            r#"{{"apiVersion": "landfall.dev/v1alpha1", "kind": "{kind}", "metadata": {{"name": "x"}}, "spec": {spec}}}"#
        );
        let answer = site.ask(2, &operator, Method::POST, &apply, &body).await;
        assert_eq!(answer.status, 403, "{kind}: {answer:?}");
    }
    // Nor from what does not read, a query, or a header.
    let admin = site.operator("bob", Role::Admin);
    let broken = r#"{"apiVersion": "landfall.dev/v1alpha1", "kind": "Secret", "metadata": {"name": "x"}, "spec": {"data": "hunter2"}}"#;
    assert!(site.ask(2, &admin, Method::POST, &apply, broken).await.status >= 400);
    let query = format!("{apply}?password=hunter2");
    assert!(site.ask(2, &admin, Method::POST, &query, "{}").await.status >= 400);
    let bearer = Shows { certificate: None, bearer: Some("hunter2".into()) };
    assert_eq!(site.ask(2, &bearer, Method::POST, &apply, "{}").await.status, 401);
    let noted = site.audit().await;
    assert!(noted.iter().filter(|entry| entry.action.contains("apply")).count() >= 5, "{noted:?}");
    assert!(!serde_json::to_string(&noted).unwrap().contains("hunter2"), "{noted:?}");
}

#[tokio::test]
async fn a_revoked_token_ends_its_open_streams() {
    let site = Site::new().await;
    let admin = site.operator("ann", Role::Admin);
    let tokens = format!("{}/tokens", super::permitted::API);
    let made = site.ask(2, &admin, Method::POST, &tokens, r#"{"name": "ci", "role": "admin", "ttl": "1h"}"#).await;
    assert_eq!(made.status, 200, "{made:?}");
    let value = made.json()["value"].as_str().unwrap().to_owned();
    let token = Shows { certificate: None, bearer: Some(value.clone()) };
    let listed = site.ask(3, &token, Method::GET, &tokens, "").await;
    assert!(!String::from_utf8_lossy(&listed.body).contains(&value), "the value is shown once");
    assert_eq!(listed.json()["items"][0]["name"], "ci");
    let follow = format!("{}/audit?follow=true", super::permitted::API);
    let deleting = async {
        // Whatever the follower has read by then: its answer ends.
        site.ask(2, &admin, Method::DELETE, &format!("{tokens}/ci"), "").await
    };
    let (followed, deleted) = tokio::join!(site.ask(4, &token, Method::GET, &follow, ""), deleting);
    assert_eq!(deleted.status, 200, "{deleted:?}");
    // It was open and ended, or came too late to be opened at all.
    assert!([200, 401].contains(&followed.status), "{followed:?}");
    assert_eq!(site.ask(5, &token, Method::GET, &tokens, "").await.status, 401);
    assert!(!serde_json::to_string(&site.audit().await).unwrap().contains(&value), "the value is in no entry");
}
