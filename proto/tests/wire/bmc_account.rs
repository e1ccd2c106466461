//! An account for a BMC as it is sent, and what comes of it.

use landfall_api::message::{ActionKind, ActionResult, EventBody};
use landfall_api::{BmcAccount, BmcAccountResult, BmcPrivilege, SecretText};

use super::{action, assigned, assignment};

pub(crate) fn events() -> [(&'static str, EventBody); 1] {
    let result = BmcAccountResult { address: "192.0.2.9".parse().unwrap(), user: 3 };
    [("finished-bmc-account", EventBody::Finished { result: ActionResult::BmcAccount(result) })]
}

#[test]
fn an_assignment_with_an_account_for_a_bmc() {
    let password = SecretText::new("p4ssw0rd");
    let account = BmcAccount { username: "landfall".into(), password, privilege: BmcPrivilege::Operator };
    assigned("assignment-bmc-account", assignment(vec![action("bmc", 300, 3, ActionKind::BmcAccount(account))]));
}
