//! Links of every kind, and the functions on links that all capabilities need.

use super::kernel::{Kernel, Link, Place};
use ipnet::IpNet;
use postern_types::{Address, ErrorCode, Handle, LinkInfo, Mac, OpError, Route};

pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const ENODEV: i32 = 19;
pub(crate) const ENETDOWN: i32 = 100;
pub(crate) const ENETUNREACH: i32 = 101;
pub(crate) const ESRCH: i32 = 3;

pub(crate) fn refused(errno: i32, object: impl ToString, message: &str) -> OpError {
    let code = if errno == EEXIST { ErrorCode::Exists } else { ErrorCode::Kernel };
    OpError::new(code, object.to_string(), message).errno(errno)
}

impl Kernel {
    /// Refuses to make a link on a port: the kernel gives the frames of a link to one receiver only.
    pub(crate) fn takes_links(&self, kind: &str, parent: Handle) -> Result<(), OpError> {
        let lower = self.held(parent)?;
        let Some(master) = lower.master else { return Ok(()) };
        let taker = self.links.get(&master).map_or("another link", |link| link.info.name.as_str());
        let text = format!("failed to create {kind}: \"{}\" is a port of \"{taker}\"", lower.info.name);
        Err(refused(EBUSY, &lower.info.name, &text))
    }

    /// Adds a link and returns its handle. The MAC address is made from the handle, so it is the same every time.
    pub fn add_link(&mut self, place: Place, name: &str, kind: &str) -> Handle {
        let handle = self.links.keys().last().map_or(1, |last| last + 1);
        let [_, _, high, low] = handle.to_be_bytes();
        let info = LinkInfo {
            handle,
            name: name.to_owned(),
            mac: Some(Mac([2, 0, 0, 0, high, low])),
            mtu: 1500,
            kind: kind.to_owned(),
            up: false,
            running: false,
        };
        self.links.insert(
            handle,
            Link {
                place,
                info,
                peer: None,
                master: None,
                port: None,
                pci: None,
                path: None,
                home: None,
                promisc: false,
                allmulti: false,
                tx_queue_length: 1000,
                vlan_filtering: false,
                pinned: false,
                lent_over: None,
                macvlan_mode: None,
                ipvlan_mode: None,
                vlan_id: None,
                stands_on: None,
                addresses: Vec::new(),
                routes: Vec::new(),
                sysctls: Vec::new(),
            },
        );
        handle
    }

    /// Adds a link of a real node. The link gets all given attributes except the handle.
    pub fn seed_link(&mut self, place: Place, info: LinkInfo, addresses: Vec<Address>) -> Handle {
        let handle = self.add_link(place, &info.name, &info.kind);
        if let Some(link) = self.links.get_mut(&handle) {
            link.info = LinkInfo { handle, ..info };
            link.addresses = addresses;
        }
        handle
    }

    /// Returns the link of this name.
    pub fn find(&self, place: Place, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.place == place && link.info.name == name)
    }

    /// Returns the attachment's own link.
    pub fn own(&self) -> Option<&Link> {
        self.find(Place::Container, &self.ifname).filter(|_| self.netns)
    }

    /// Returns the attachment's own link, for a change.
    pub fn own_mut(&mut self) -> Option<&mut Link> {
        let handle = self.own()?.info.handle;
        self.links.get_mut(&handle)
    }

    /// Returns the host end of the attachment's own pair.
    pub fn host_end(&self) -> Option<&Link> {
        self.own()?.peer.and_then(|peer| self.links.get(&peer))
    }

    pub(super) fn held(&self, handle: Handle) -> Result<&Link, OpError> {
        let gone = || OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "the link is gone");
        self.links.get(&handle).ok_or_else(gone)
    }

    pub(super) fn held_mut(&mut self, handle: Handle) -> Result<&mut Link, OpError> {
        let gone = || OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "the link is gone");
        self.links.get_mut(&handle).ok_or_else(gone)
    }
}

/// Returns a route with only `dst`, to be completed.
pub(crate) fn to(dst: IpNet) -> Route {
    Route { dst, gateway: None, source: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
}
