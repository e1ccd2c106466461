//! Links, addresses and routes, through rtnetlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use futures::{StreamExt, TryStreamExt, channel::mpsc::UnboundedReceiver};
use landfall_api::MacAddr;
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteScope};
use rtnetlink::sys::SocketAddr;
use rtnetlink::{Handle, LinkUnspec, MulticastGroup, RouteMessageBuilder, new_multicast_connection};

use super::dhcp::Route;

/// A port as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// The kernel's number.
    pub(crate) index: u32,
    /// The kernel's name.
    pub(crate) name: String,
    /// The address frames are sent from.
    pub(crate) mac: MacAddr,
    /// The permanent address, if the driver reports it.
    pub(crate) permanent_mac: MacAddr,
    /// Administratively up.
    pub(crate) up: bool,
    /// A signal from the other end.
    pub(crate) carrier: bool,
}

/// A netlink request that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct NetlinkError {
    what: String,
    #[source]
    source: rtnetlink::Error,
}

fn failed(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> NetlinkError {
    let what = what.into();
    move |source| NetlinkError { what, source }
}

/// The kernel's routing socket.
#[derive(Clone)]
pub(crate) struct Netlink(Handle);

/// Changes of links, as they happen.
pub(crate) struct LinkChanges(UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>);

impl LinkChanges {
    /// Waits until a link changed; several changes may be reported as one. Never returns after the kernel's notices
    /// have ended.
    pub(crate) async fn next(&mut self) {
        if self.0.next().await.is_none() {
            std::future::pending::<()>().await;
        }
        // One dump answers all that is queued.
        while self.0.try_recv().is_ok() {}
    }
}

impl Netlink {
    /// Opens the socket in this thread's network namespace and starts its task.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn open() -> io::Result<(Self, LinkChanges)> {
        let (connection, handle, changes) = new_multicast_connection(&[MulticastGroup::Link])?;
        tokio::spawn(connection);
        Ok((Self(handle), LinkChanges(changes)))
    }

    /// Every Ethernet port; those without a device behind them (bridges, bonds, dummies) only if asked for.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn links(&self, with_virtual: bool) -> Result<Vec<Link>, NetlinkError> {
        let messages: Vec<LinkMessage> =
            self.0.link().get().execute().try_collect().await.map_err(failed("cannot list the network ports"))?;
        let real = |l: &Link| with_virtual || Path::new("/sys/class/net").join(&l.name).join("device").exists();
        Ok(messages.into_iter().filter_map(link).filter(real).collect())
    }

    /// Brings a port up.
    ///
    /// # Errors
    /// [`NetlinkError`]; a missing firmware file shows here.
    pub(crate) async fn up(&self, link: &Link) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(link.index).up().build();
        self.0.link().set(message).execute().await.map_err(failed(format!("cannot bring {} up", link.name)))
    }

    /// Sets a port's MTU, bytes.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        self.0.link().set(message).execute().await.map_err(failed(format!("cannot set MTU {mtu}")))
    }

    /// Gives a port an address, and takes every other IPv4 address from it.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn set_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> Result<(), NetlinkError> {
        let what = || failed(format!("cannot set the address {address}/{prefix}"));
        self.0.address().add(index, IpAddr::V4(address), prefix).replace().execute().await.map_err(what())?;
        self.remove_addresses(index, Some((address, prefix))).await
    }

    /// Takes every IPv4 address from a port, except one.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn remove_addresses(&self, index: u32, keep: Option<(Ipv4Addr, u8)>) -> Result<(), NetlinkError> {
        let held: Vec<AddressMessage> = self
            .0
            .address()
            .get()
            .set_link_index_filter(index)
            .execute()
            .try_collect()
            .await
            .map_err(failed("cannot list a port's addresses"))?;
        for message in held {
            let local = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
                _ => None,
            });
            let Some(address) = local else { continue };
            if keep != Some((address, message.header.prefix_len)) {
                self.0.address().del(message).execute().await.map_err(failed(format!("cannot remove {address}")))?;
            }
        }
        Ok(())
    }

    /// Sets a route through a port; of two to one destination, the one with the lower metric is used.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn set_route(&self, index: u32, route: Route, metric: u32) -> Result<(), NetlinkError> {
        let what = format!("cannot set the route to {}/{} by {}", route.destination, route.prefix, route.gateway);
        let request = self.0.route().add(route_message(index, route, metric)).replace();
        request.execute().await.map_err(failed(what))
    }

    /// Takes a route away; one that is not there is fine.
    pub(crate) async fn remove_route(&self, index: u32, route: Route, metric: u32) {
        // ESRCH: it went with its address or its link.
        self.0.route().del(route_message(index, route, metric)).execute().await.unwrap_or_default();
    }
}

fn route_message(index: u32, route: Route, metric: u32) -> RouteMessage {
    let builder = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(route.destination, route.prefix)
        .output_interface(index)
        .priority(metric)
        .protocol(RouteProtocol::Dhcp);
    if route.gateway.is_unspecified() {
        builder.scope(RouteScope::Link).build()
    } else {
        // `onlink`: some clouds lend a /32 whose gateway is outside it.
        builder.gateway(route.gateway).onlink().build()
    }
}

fn link(message: LinkMessage) -> Option<Link> {
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let mut name = None;
    let mut mac = None;
    let mut permanent = None;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(MacAddr),
            LinkAttribute::PermAddress(bytes) => permanent = bytes.as_slice().try_into().ok().map(MacAddr),
            _ => {}
        }
    }
    let mac = mac?;
    Some(Link {
        index: message.header.index,
        name: name?,
        mac,
        permanent_mac: permanent.filter(|m| m.0 != [0; 6]).unwrap_or(mac),
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: message.header.flags.contains(LinkFlags::LowerUp),
    })
}
