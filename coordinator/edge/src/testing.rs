//! Ports for the servers that a test starts, and starts again on the same port after it killed them.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port that is given out.
const FIRST: u16 = 10_000;
/// How many ports from [`FIRST`] on are given out. They end below 32,768, where Linux begins to take ports for outgoing
/// connections and for listeners on port 0 (`net.ipv4.ip_local_port_range`): with a port from that range, another socket of
/// the same test may take the port before the server listens on it.
const COUNT: u16 = 20_000;
/// How far apart two processes with successive ids begin, so that test programs that run side by side rarely probe the same
/// port.
const STRIDE: u16 = 64;

/// `N` ports of loopback, free for TCP and UDP. No two calls in one process return the same port before 20,000 were returned.
///
/// # Panics
/// None of the 20,000 ports is free.
pub fn ports<const N: usize>() -> [u16; N] {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let mut free = (0..COUNT).filter_map(|_| {
        let offset = u32::from(GIVEN.fetch_add(1, Ordering::Relaxed)) + process::id() * u32::from(STRIDE);
        let port = FIRST + u16::try_from(offset % u32::from(COUNT)).expect("a remainder of 20,000 fits in 16 bits");
        let at = (Ipv4Addr::LOCALHOST, port);
        (TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()).then_some(port)
    });
    std::array::from_fn(|_| free.next().expect("no port from 10,000 to 29,999 is free on 127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_returned_twice_or_while_in_use() {
        let [used] = ports();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, used)).unwrap();
        let next = ports::<50>();
        assert_eq!(BTreeSet::from(next).len(), next.len());
        assert!(!next.contains(&used) && next.iter().all(|port| (FIRST..FIRST + COUNT).contains(port)));
    }
}
