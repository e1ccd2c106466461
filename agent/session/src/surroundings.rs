//! What a session needs from its environment: a network, a clock, randomness. A simulation replaces them, and so runs
//! the same code as a machine, faster than real time and reproducibly.

use std::{fmt, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{ConnectError, Credentials, Target, Validity};

/// Bytes to and from the coordinator.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A way to the coordinator being opened; the address is for messages to people.
pub type Dialling<'a> = Pin<Box<dyn Future<Output = Result<(Box<dyn Wire>, SocketAddr), ConnectError>> + Send + 'a>>;

/// Opens ways to the coordinator.
pub trait Dial: Send + Sync {
    /// One connection, ready for HTTP/2, whose other end is the coordinator and knows who this is. Must end in bounded
    /// time.
    fn dial<'a>(&'a self, target: &'a Target, validity: Validity, credentials: Option<&'a Credentials>)
    -> Dialling<'a>;
}

/// The clock that leases are measured by; see [`crate::boot_time`] for what it must be.
#[derive(Clone)]
pub struct BootClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl BootClock {
    /// A clock of one's own.
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
    /// Time since boot.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for BootClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BootClock").field(&self.now()).finish()
    }
}

/// The world around a session.
#[derive(Clone)]
pub struct Surroundings {
    /// The network.
    pub dial: Arc<dyn Dial>,
    /// The clock.
    pub clock: BootClock,
    /// Chance, for jitter: each call another number, all equally likely.
    pub chance: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("clock", &self.clock).finish_non_exhaustive()
    }
}
