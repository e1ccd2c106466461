//! Keys for Secure Boot as they are sent, and what comes of them.

use landfall_api::message::{ActionKind, ActionResult, EventBody};
use landfall_api::{SecureBootResult, SecureBootSpec};

use super::{action, assigned, assignment};

pub(crate) fn events() -> [(&'static str, EventBody); 1] {
    let result = ActionResult::SecureBoot(SecureBootResult { enrolled: true });
    [("finished-secure-boot", EventBody::Finished { result })]
}

#[test]
fn an_assignment_with_keys_for_secure_boot() {
    let [pk, kek, db] = ["UEs=", "S0VL", "ZGI="].map(str::to_owned);
    let spec = SecureBootSpec { pk, kek, db, dbx: Some("ZGJ4".into()) };
    assigned("assignment-secure-boot", assignment(vec![action("keys", 300, 1, ActionKind::SecureBoot(spec))]));
}
