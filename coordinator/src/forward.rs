//! A standby's ports: what comes to one of them goes on to the active coordinator, byte for byte, so that machines and people may ask any
//! of them. TLS ends at the active one; the header before it says whose the connection is ([`landfall_edge::forwarded`]).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::http::Uri;
use landfall_boot::neighbours::Neighbours;
use landfall_edge::forwarded::{Via, announce, is_forwarded, keep_alive};
use landfall_edge::gate::{Admission, Gate, Limiter, Limits, Seat, Watched, each_of, open_files, origin};
use landfall_edge::names::addresses;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Connections of one port at one time, fewer where the limit of open files is low: each takes two.
const MOST: usize = 13 * 1024;
/// Open files that everything else may need.
const OTHER_FILES: usize = 512;
/// When all places are taken, a connection on which nothing has come or gone for so long gives way.
const QUIET: Duration = Duration::from_secs(60);
/// For the client's first byte: TLS and HTTP begin with the client.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// For one try to connect to the active coordinator.
const CONNECT: Duration = Duration::from_secs(3);
/// For all of them: another one takes its place meanwhile, and clients give a handshake 10 s.
const REACH: Duration = Duration::from_secs(7);
/// Between two tries; also after an error of accept itself.
const PAUSE: Duration = Duration::from_millis(200);
/// Lines a second about connections that come to nothing: anybody can cause them.
static LINES: Limiter = Limiter::a_second(10);

/// The port of the active coordinator that a standby's port stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// That of its URL.
    Tls,
    /// The same as this one's: both have one configuration.
    Same,
}

/// A bound port of a standby.
pub struct Forwarder {
    tcp: TcpListener,
    listen: SocketAddr,
    port: Port,
    own: IpAddr,
    url: String,
}

impl Forwarder {
    /// Binds the port. By this address and this URL the other coordinators know this one: its connections come from there.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(listen: SocketAddr, port: Port, (own, url): (IpAddr, String)) -> io::Result<Self> {
        let tcp = TcpListener::bind(listen).await?;
        Ok(Self { listen: tcp.local_addr()?, tcp, port, own, url })
    }

    /// Forwards to the coordinator whose URL `active` has, also while that changes: then connections to the former one end, and one that
    /// has not reached it goes to the new one. Ends, and every connection with it, as soon as that is this one: it is not ready yet, but
    /// what another standby forwards to a closed port is tried again.
    ///
    /// # Errors
    /// None at present: what fails is one connection's own.
    pub async fn serve(self, mut active: watch::Receiver<String>) -> io::Result<()> {
        let room = open_files::limit().saturating_sub(OTHER_FILES) / 4;
        let most = room.clamp(1, MOST);
        let gate = Gate::new(Limits { total: most, waiting: QUIET, stalled: QUIET });
        let mut connections = JoinSet::new();
        loop {
            let (client, remote) = tokio::select! {
                () = names(&mut active, &self.url) => return Ok(()),
                Some(_ended) = connections.join_next() => continue,
                accepted = self.tcp.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(port = %self.listen, %error, "cannot accept a connection");
                        sleep(PAUSE).await;
                        continue;
                    }
                },
            };
            let address = remote.ip();
            // One that must wait goes on to another coordinator sooner.
            let place = match gate.try_admit(&origin(address), each_of(address, most / 4 * 3, most)) {
                Admission::Admitted(place) => place,
                Admission::TooMany | Admission::Full => {
                    closed(remote, &"too many connections are forwarded already");
                    continue;
                }
            };
            let way = Way { active: active.clone(), port: self.port, listen: self.listen, own: self.own };
            connections.spawn(async move {
                let client = Watched::new(client, place.seat().clone());
                tokio::select! {
                    () = place.seat().wanted() => {}
                    done = way.forward(client, remote, place.seat()) => if let Err(error) = done {
                        closed(remote, &error);
                    },
                }
            });
        }
    }
}

/// Waits until the active coordinator is this one, or none is named any more.
async fn names(active: &mut watch::Receiver<String>, url: &str) {
    drop(active.wait_for(|active| active == url).await);
}

fn closed(remote: SocketAddr, why: &dyn std::fmt::Display) {
    if let Some(left_out) = LINES.step() {
        tracing::warn!(client = %remote, %why, left_out, "a connection was not forwarded");
    }
}

/// Host and port of the active coordinator; `None` where its name is no URL of one.
fn target(active: &str, port: Port, own: SocketAddr) -> Option<(String, u16)> {
    let url: Uri = active.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']).to_owned();
    let port = match port {
        Port::Tls => url.port_u16()?,
        Port::Same => own.port(),
    };
    Some((host, port))
}

/// The way of one connection to the active coordinator.
struct Way {
    active: watch::Receiver<String>,
    port: Port,
    listen: SocketAddr,
    own: IpAddr,
}

impl Way {
    async fn forward(mut self, mut client: Watched<TcpStream>, remote: SocketAddr, seat: &Seat) -> io::Result<()> {
        let asked = client.get_ref().local_addr()?;
        // Otherwise two that take each other for the active one would forward without end.
        match timeout(FIRST_BYTE, is_forwarded(client.get_ref(), seat)).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => return Err(io::Error::other("another standby has forwarded it already")),
            // It came to nothing by itself.
            Ok(Err(_)) | Err(_) => return Ok(()),
        }
        let mut server = self.reach().await?;
        keep_alive(client.get_ref())?;
        keep_alive(&server)?;
        // The active one cannot know it by itself: this host is asked.
        let mac = Neighbours::default().mac(remote, Via::Itself).await;
        announce(&mut server, remote, asked, mac).await?;
        tokio::select! {
            // Either side may end it as it likes; what it says of that is the business of the two.
            _ended = copy_bidirectional(&mut client, &mut server) => {}
            // The former one answers no more, or not what holds.
            _changed = self.active.changed() => {}
        }
        Ok(())
    }

    /// A connection to the active coordinator. Where it died, another one is active soon, and nothing of the client is lost meanwhile.
    async fn reach(&mut self) -> io::Result<TcpStream> {
        let begun = Instant::now();
        loop {
            let to = target(&self.active.borrow_and_update(), self.port, self.listen);
            let Some((host, port)) = to else { return Err(io::Error::other("no coordinator is active")) };
            let error = match timeout(CONNECT, connect(self.own, &host, port)).await {
                Ok(Ok(server)) => return Ok(server),
                Ok(Err(error)) => error,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            if begun.elapsed() > REACH {
                let message = format!("cannot reach {host} port {port}: {error}");
                return Err(io::Error::new(error.kind(), message));
            }
            // Sooner if another one is active.
            drop(timeout(PAUSE, self.active.changed()).await);
        }
    }
}

/// A connection from `own`, where that address is this host's and of the same version of IP.
async fn connect(own: IpAddr, host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::other("it has no address");
    for address in addresses(host, CONNECT).await.map_err(io::Error::other)? {
        let address = SocketAddr::new(address, port);
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if address.is_ipv4() == own.is_ipv4()
            && let Err(error) = socket.bind(SocketAddr::new(own, 0))
        {
            tracing::debug!(%own, %error, "a connection is forwarded from another address");
        }
        match socket.connect(address).await {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use landfall_edge::forwarded::Forwarders;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn the_active_coordinators_ports_follow_from_its_url() {
        let own: SocketAddr = "0.0.0.0:7480".parse().unwrap();
        for (active, tls, same) in [
            ("https://192.0.2.1:7443", Some(("192.0.2.1", 7443)), Some(("192.0.2.1", 7480))),
            ("https://[2001:db8::1]:7444", Some(("2001:db8::1", 7444)), Some(("2001:db8::1", 7480))),
            ("landfall-coordinator migrate-store", None, None),
            ("", None, None),
        ] {
            let named = |port| target(active, port, own);
            let expected = |to: Option<(&str, u16)>| to.map(|(host, port)| (host.to_owned(), port));
            assert_eq!([named(Port::Tls), named(Port::Same)], [tls, same].map(expected), "{active}");
        }
    }

    const OWN: &str = "https://127.0.0.9:7443";

    /// A standby beside an active coordinator that answers with who the client is, and repeats what it says.
    async fn site() -> (SocketAddr, watch::Sender<String>) {
        let active = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", active.local_addr().unwrap());
        tokio::spawn(async move {
            let forwarders = Forwarders::new(["127.0.0.9".to_owned()]);
            loop {
                let (mut stream, remote) = active.accept().await.unwrap();
                let gate = Gate::new(Limits { total: 1, waiting: QUIET, stalled: QUIET });
                let Admission::Admitted(place) = gate.try_admit(&0, 1) else { panic!("it is free") };
                // What comes from loopback counts as the standby's host.
                let (client, _) = forwarders.client_of(&mut stream, remote, place.seat()).await.unwrap();
                stream.write_all(format!("{}\n", client.ip()).as_bytes()).await.unwrap();
                let (mut read, mut write) = stream.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
            }
        });
        let (sender, seen) = watch::channel(url);
        let own = ("127.0.0.9".parse().unwrap(), OWN.to_owned());
        let standby = Forwarder::bind("127.0.0.1:0".parse().unwrap(), Port::Tls, own).await.unwrap();
        let at = standby.listen;
        tokio::spawn(standby.serve(seen));
        (at, sender)
    }

    #[tokio::test]
    async fn a_client_reaches_the_active_coordinator_as_itself() {
        let (standby, active) = site().await;
        let mut client = TcpStream::connect(standby).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "127.0.0.9\nhello");

        // The connections to one that is no longer active end.
        let mut open = TcpStream::connect(standby).await.unwrap();
        open.write_all(b"x").await.unwrap();
        let first = open.read_u8().await.unwrap();
        assert_eq!(first, b'1');
        active.send_replace(String::new());
        let mut rest = Vec::new();
        timeout(CONNECT, open.read_to_end(&mut rest)).await.unwrap().ok();
        let mut refused = TcpStream::connect(standby).await.unwrap();
        refused.write_all(b"x").await.unwrap();
        assert_eq!(refused.read(&mut [0]).await.unwrap_or_default(), 0);
    }

    #[tokio::test]
    async fn a_client_waits_until_another_one_is_active() {
        let (standby, active) = site().await;
        let url = active.borrow().clone();
        let nothing = TcpListener::bind("127.0.0.1:0").await.unwrap();
        active.send_replace(format!("https://{}", nothing.local_addr().unwrap()));
        drop(nothing);
        let mut client = TcpStream::connect(standby).await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert!(timeout(2 * PAUSE, client.read_u8()).await.is_err(), "it is not closed");
        active.send_replace(url);
        assert_eq!(timeout(CONNECT, client.read_u8()).await.unwrap().unwrap(), b'1');
        // Its own turn: at once, and the port is free.
        active.send_replace(OWN.to_owned());
        let mut rest = Vec::new();
        timeout(CONNECT, client.read_to_end(&mut rest)).await.unwrap().ok();
        TcpListener::bind(standby).await.unwrap();
    }

    #[tokio::test]
    async fn what_was_forwarded_goes_no_further() {
        let (standby, active) = site().await;
        // A standby that takes itself for the active one.
        active.send_replace(format!("https://{standby}"));
        let mut client = TcpStream::connect(standby).await.unwrap();
        client.write_all(b"x").await.unwrap();
        let ended = timeout(FIRST_BYTE, client.read(&mut [0])).await.unwrap();
        assert_eq!(ended.unwrap_or_default(), 0);
    }
}
