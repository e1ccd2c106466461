//! Another boot of the machine asks for a session: the workflow under way hears of it.

use landfall_api::message::Hello;

use crate::advance::{advance, is_running};
use crate::context::Step;
use crate::effect::Which;
use crate::run;
use crate::session::Session;

/// `older` is the session before this hello.
pub(crate) fn note(step: &mut Step<'_>, older: Option<&Session>, hello: &Hello) {
    let another = older.is_some_and(|older| !older.boot_id.is_empty() && older.boot_id != hello.boot_id);
    if another && step.newest_status().is_some_and(is_running) {
        advance(step, Which::Newest, vec![run::Event::Rebooted { boot_id: hello.boot_id.clone() }]);
    }
}
