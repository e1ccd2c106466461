//! The proxy between this machine and its coordinator, for all of the agent: what the agent says to the coordinator, what it fetches from
//! it, and what it leaves to the installed system.

use std::sync::OnceLock;

use landfall_session::Proxy;

static PROXY: OnceLock<Proxy> = OnceLock::new();

/// This proxy, if any, is the agent's from now on. The first one stays.
pub(crate) fn follow(proxy: Option<&Proxy>) {
    if let Some(proxy) = proxy {
        PROXY.get_or_init(|| proxy.clone());
    }
}

/// The proxy, if there is one.
pub(crate) fn get() -> Option<&'static Proxy> {
    PROXY.get()
}
