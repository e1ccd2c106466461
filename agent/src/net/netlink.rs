//! Links, addresses and routes, through rtnetlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use futures::{StreamExt, TryStreamExt, channel::mpsc::UnboundedReceiver};
use ipnet::{IpNet, Ipv6Net};
use landfall_api::MacAddr;
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{BondLacpRate, BondMode, LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteScope};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::sys::SocketAddr;
use rtnetlink::{
    Handle, LinkBond, LinkMessageBuilder, LinkUnspec, LinkVlan, MulticastGroup, RouteMessageBuilder,
    new_multicast_connection,
};

use super::setup::Route;

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
    /// The bond or bridge that it is in.
    pub(crate) controller: Option<u32>,
    /// Bytes.
    pub(crate) mtu: u32,
    /// Has a device behind it; bonds, VLANs, bridges and dummies have none.
    pub(crate) real: bool,
    /// That device is on USB, as the port is that a BMC shows its host.
    pub(crate) usb: bool,
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

/// Milliseconds between a bond's looks at the carrier of its ports, as everyone sets it; without it the kernel never looks.
const LINK_CHECK_MS: u32 = 100;

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

    /// Every Ethernet port, with and without a device behind it.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let messages: Vec<LinkMessage> =
            self.0.link().get().execute().try_collect().await.map_err(failed("cannot list the network ports"))?;
        Ok(messages.into_iter().filter_map(link).collect())
    }

    /// Brings a port up, and lets it take multicast frames, which a switch announces itself by.
    ///
    /// # Errors
    /// [`NetlinkError`]; a missing firmware file shows here.
    pub(crate) async fn up(&self, link: &Link) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(link.index).up().allmulticast(true).build();
        self.0.link().set(message).execute().await.map_err(failed(format!("cannot bring {} up", link.name)))
    }

    /// Makes a bond.
    ///
    /// # Errors
    /// [`NetlinkError`]; the kernel may lack the module.
    pub(crate) async fn add_bond(&self, name: &str, mode: landfall_api::BondMode) -> Result<(), NetlinkError> {
        let bond = LinkBond::new(name).miimon(LINK_CHECK_MS);
        let bond = match mode {
            landfall_api::BondMode::ActiveBackup => bond.mode(BondMode::ActiveBackup),
            // A silent partner is noticed after 3 s; slow, as the kernel has it, after 90 s.
            landfall_api::BondMode::Lacp => bond.mode(BondMode::Ieee8023Ad).ad_lacp_rate(BondLacpRate::Fast),
        };
        self.add_link(bond.up(), format!("cannot make the bond {name}")).await
    }

    /// Makes a VLAN on the port `base`.
    ///
    /// # Errors
    /// [`NetlinkError`]; the kernel may lack the module.
    pub(crate) async fn add_vlan(&self, name: &str, base: u32, id: u16) -> Result<(), NetlinkError> {
        // Not up yet: the port below it may not be.
        self.add_link(LinkVlan::new(name, base, id), format!("cannot make the VLAN {name}")).await
    }

    async fn add_link<T>(&self, link: LinkMessageBuilder<T>, what: String) -> Result<(), NetlinkError> {
        self.0.link().add(link.build()).execute().await.map_err(failed(what))
    }

    /// Puts a port into a bond. A bond takes no port that is up.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn join(&self, port: u32, name: &str, bond: u32) -> Result<(), NetlinkError> {
        let message = || LinkUnspec::new_with_index(port);
        for change in [message().down(), message().controller(bond), message().up()] {
            let what = format!("cannot put {name} into its bond");
            self.0.link().set(change.build()).execute().await.map_err(failed(what))?;
        }
        Ok(())
    }

    /// Sets a port's MTU, bytes.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        self.0.link().set(message).execute().await.map_err(failed(format!("cannot set MTU {mtu}")))
    }

    /// Gives a port an address, and takes every other IPv4 address from it if it is one.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn set_address(&self, index: u32, net: IpNet) -> Result<(), NetlinkError> {
        let request = self.0.address().add(index, net.addr(), net.prefix_len()).replace();
        request.execute().await.map_err(failed(format!("cannot set the address {net}")))?;
        if net.addr().is_ipv4() { self.remove_addresses(index, Some(net)).await } else { Ok(()) }
    }

    /// Takes every IPv4 address from a port, except one.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn remove_addresses(&self, index: u32, keep: Option<IpNet>) -> Result<(), NetlinkError> {
        for message in self.addresses(index).await? {
            let local = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Local(IpAddr::V4(address)) => Some(IpAddr::V4(*address)),
                _ => None,
            });
            let Some(address) = local else { continue };
            if keep.is_none_or(|net| (net.addr(), net.prefix_len()) != (address, message.header.prefix_len)) {
                self.0.address().del(message).execute().await.map_err(failed(format!("cannot remove {address}")))?;
            }
        }
        Ok(())
    }

    /// A port's IPv6 address for other networks, once no other machine was found to have it; not one that changes by the hour.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn global_ipv6(&self, index: u32) -> Result<Option<Ipv6Net>, NetlinkError> {
        const UNUSABLE: AddressHeaderFlags = AddressHeaderFlags::Tentative
            .union(AddressHeaderFlags::Dadfailed)
            .union(AddressHeaderFlags::Deprecated)
            .union(AddressHeaderFlags::Secondary);
        let held = self.addresses(index).await?;
        let usable = held.iter().filter(|m| is_global_ipv6(m) && !m.header.flags.intersects(UNUSABLE));
        Ok(usable.into_iter().find_map(|message| {
            let address = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(IpAddr::V6(address)) => Some(*address),
                _ => None,
            })?;
            Ipv6Net::new(address, message.header.prefix_len).ok()
        }))
    }

    /// Takes every IPv6 address for other networks from a port.
    pub(crate) async fn remove_global_ipv6(&self, index: u32) {
        let held = self.addresses(index).await.unwrap_or_default().into_iter();
        for message in held.filter(is_global_ipv6) {
            // It may have gone since with its link.
            self.0.address().del(message).execute().await.unwrap_or_default();
        }
    }

    /// Takes an address from a port; one that is not there is fine.
    pub(crate) async fn remove_address(&self, index: u32, net: IpNet) {
        let is_it = |m: &AddressMessage| {
            m.header.prefix_len == net.prefix_len() && m.attributes.contains(&AddressAttribute::Address(net.addr()))
        };
        let held = self.addresses(index).await.unwrap_or_default();
        if let Some(message) = held.into_iter().find(is_it) {
            // It may have gone since with its link.
            self.0.address().del(message).execute().await.unwrap_or_default();
        }
    }

    async fn addresses(&self, index: u32) -> Result<Vec<AddressMessage>, NetlinkError> {
        let request = self.0.address().get().set_link_index_filter(index).execute();
        request.try_collect().await.map_err(failed("cannot list a port's addresses"))
    }

    /// Sets a route through a port; of two to one destination, the one with the lower metric is used.
    ///
    /// # Errors
    /// [`NetlinkError`]
    pub(crate) async fn set_route(&self, index: u32, route: Route, metric: u32) -> Result<(), NetlinkError> {
        let via = route.via.map(|via| format!(" by {via}")).unwrap_or_default();
        let what = format!("cannot set the route to {}{via}", route.to);
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
    // `onlink`: some clouds lend a /32 whose gateway is outside it.
    match (route.to, route.via) {
        (IpNet::V4(to), via) => {
            let builder = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(to.network(), to.prefix_len());
            through(
                index,
                metric,
                match via {
                    Some(IpAddr::V4(gateway)) => builder.gateway(gateway).onlink(),
                    _ => builder.scope(RouteScope::Link),
                },
            )
        }
        (IpNet::V6(to), via) => {
            let builder = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(to.network(), to.prefix_len());
            through(
                index,
                metric,
                match via {
                    Some(IpAddr::V6(gateway)) => builder.gateway(gateway).onlink(),
                    _ => builder.scope(RouteScope::Link),
                },
            )
        }
    }
}

fn is_global_ipv6(message: &AddressMessage) -> bool {
    message.header.scope == AddressScope::Universe && message.header.family == AddressFamily::Inet6
}

fn through<T>(index: u32, metric: u32, builder: RouteMessageBuilder<T>) -> RouteMessage {
    builder.output_interface(index).priority(metric).protocol(RouteProtocol::Dhcp).build()
}

fn link(message: LinkMessage) -> Option<Link> {
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let mut name = None;
    let mut mac = None;
    let mut permanent = None;
    let mut controller = None;
    let mut mtu = 0;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok().map(MacAddr),
            LinkAttribute::Controller(index) => controller = Some(*index).filter(|index| *index > 0),
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            LinkAttribute::PermAddress(bytes) => permanent = bytes.as_slice().try_into().ok().map(MacAddr),
            _ => {}
        }
    }
    let (name, mac) = (name?, mac?);
    let device = Path::new("/sys/class/net").join(&name).join("device");
    Some(Link {
        index: message.header.index,
        real: device.exists(),
        usb: device.join("subsystem").read_link().is_ok_and(|bus| bus.ends_with("usb")),
        name,
        mac,
        permanent_mac: permanent.filter(|m| m.0 != [0; 6]).unwrap_or(mac),
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: message.header.flags.contains(LinkFlags::LowerUp),
        controller,
        mtu,
    })
}
