//! The proxy between this machine and its coordinator, for all of the agent: what the agent says to the coordinator, what it fetches from
//! it, and what it leaves to the installed system.

use std::sync::OnceLock;

use landfall_session::{Proxy, Target};

static PROXY: OnceLock<Proxy> = OnceLock::new();

/// The way of this target is the agent's from now on. The first proxy stays.
pub(crate) fn follow(target: &Target) {
    if let Some(proxy) = target.proxy() {
        PROXY.get_or_init(|| proxy.clone());
    }
}

/// The proxy, if there is one.
pub(crate) fn get() -> Option<&'static Proxy> {
    PROXY.get()
}
