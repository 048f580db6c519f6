//! Everything of the simulated host that is no link.

use super::kernel::{Kernel, Place};
use ipnet::IpNet;
use postern_cni::{CniResult, Json, Version};
use postern_types::{Address, Backend, ErrorCode, Handle, LeaseGrant, LeaseRange, Mac, OpError, Reply};
use std::net::IpAddr;

/// What the delegate answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Ipam {
    /// To ADD: a result, in JSON. Its addresses are the attachment's own from the beginning, so that CHECK needs no ADD.
    pub result: Result<String, OpError>,
    /// To DEL.
    pub del: Result<(), OpError>,
    /// To CHECK.
    pub check: Result<(), OpError>,
    /// To STATUS.
    pub status: Result<(), OpError>,
    /// To GC.
    pub gc: Result<(), OpError>,
}

impl Default for Ipam {
    fn default() -> Self {
        let unsupported = OpError::new(ErrorCode::Unsupported, "", "no plugin name provided");
        Self { result: Err(unsupported), del: Ok(()), check: Ok(()), status: Ok(()), gc: Ok(()) }
    }
}

impl Ipam {
    /// The attachment's addresses and their gateways.
    pub(super) fn addresses(&self) -> Vec<(IpNet, Option<IpAddr>)> {
        let Ok(text) = &self.result else { return Vec::new() };
        let result = Json::parse(text.as_bytes(), text.len())
            .and_then(|json| CniResult::parse(&json, Version::LATEST.as_str()))
            .unwrap_or_default();
        result.ips.iter().map(|ip| (ip.address, ip.gateway)).collect()
    }
}

/// An address that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// By this attachment.
    pub own: bool,
    /// Otherwise: by one that the runtime still has.
    pub valid: bool,
    /// The address.
    pub address: IpAddr,
}

impl Kernel {
    /// The attachment's addresses and their gateways, each once.
    pub(super) fn own_addresses(&self) -> Vec<(IpNet, Option<IpAddr>)> {
        let mut own = self.attachment.clone();
        for address in self.ipam.addresses() {
            if !own.contains(&address) {
                own.push(address);
            }
        }
        own
    }

    pub(super) fn masquerade_ensure(&mut self, backend: Option<Backend>) -> Result<Reply, OpError> {
        let backend = backend.unwrap_or(Backend::Nftables);
        if !self.masquerade.contains(&backend) {
            self.masquerade.push(backend);
        }
        Ok(Reply::Done)
    }

    pub(super) fn masquerade_check(&self, backend: Option<Backend>) -> Result<Reply, OpError> {
        if self.masquerade.contains(&backend.unwrap_or(Backend::Nftables)) {
            return Ok(Reply::Done);
        }
        Err(OpError::new(ErrorCode::Mismatch, "", "the masquerade rules are missing"))
    }

    pub(super) fn guard_ensure(&mut self, host: Handle, mac: Mac) -> Result<Reply, OpError> {
        self.held(host)?;
        if self.own().and_then(|own| own.info.mac) != Some(mac) {
            let message = format!("{mac} is not the address of the container's end");
            return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
        }
        self.mac_guard = Some(mac);
        Ok(Reply::Done)
    }

    pub(super) fn guard_check(&self, host: Handle, mac: Mac) -> Result<Reply, OpError> {
        self.held(host)?;
        if self.mac_guard == Some(mac) {
            return Ok(Reply::Done);
        }
        Err(OpError::new(ErrorCode::Mismatch, mac.to_string(), "the rules of the guard are missing"))
    }

    pub(super) fn read_resolv_conf(&self) -> Result<Reply, OpError> {
        let missing = || OpError::new(ErrorCode::NotFound, "resolv.conf", "no such file or directory");
        self.resolv_conf.clone().map(Reply::Dns).ok_or_else(missing)
    }

    pub(super) fn lo_up(&mut self) -> Result<Reply, OpError> {
        self.namespace()?;
        if !self.lo.0 {
            self.lo.0 = true;
            let address = |ip: IpAddr, prefix| IpNet::new(ip, prefix).ok();
            let v4 = address(IpAddr::from([127, 0, 0, 1]), 8);
            let v6 = address(IpAddr::from(std::net::Ipv6Addr::LOCALHOST), 128).filter(|_| self.ipv6);
            let nets = [v4, v6].into_iter().flatten();
            self.lo.1.extend(nets.map(|net| Address { net, scope: 254, tentative: false }));
        }
        Ok(Reply::Done)
    }

    pub(super) fn own_leases(&self) -> Vec<LeaseGrant> {
        let own = self.leases.iter().filter(|lease| lease.own);
        own.map(|lease| LeaseGrant { address: lease.address.into(), gateway: None }).collect()
    }

    pub(super) fn retain(&mut self) -> u32 {
        let before = self.leases.len();
        self.leases.retain(|lease| lease.own || lease.valid);
        u32::try_from(before - self.leases.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn reserve(&mut self, sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Reply, OpError> {
        let mut grants = Vec::new();
        let mut unused = requested.to_vec();
        for (number, set) in sets.iter().enumerate() {
            let wanted = unused.iter().position(|ip| set.iter().any(|range| range.subnet.contains(ip)));
            let wanted = wanted.map(|at| unused.remove(at));
            let free = match wanted {
                Some(ip) => self.candidates(number, set)?.into_iter().find(|(address, _)| *address == ip),
                None => self.candidates(number, set)?.into_iter().next(),
            };
            let Some((address, range)) = free else {
                let code = if wanted.is_some() { ErrorCode::Exists } else { ErrorCode::Exhausted };
                let message = format!("failed to allocate for range {number}: no IP addresses available in range set");
                return Err(OpError::new(code, number.to_string(), message));
            };
            let net = IpNet::new(address, range.subnet.prefix_len()).unwrap_or_else(|_| address.into());
            grants.push(LeaseGrant { address: net, gateway: Some(gateway_of(&range)) });
            self.leases.push(Lease { own: true, valid: true, address });
        }
        if let Some(ip) = unused.first() {
            self.leases.retain(|lease| !lease.own);
            let message = format!("failed to allocate all requested IPs: {ip}");
            return Err(OpError::new(ErrorCode::InvalidArgument, ip.to_string(), message));
        }
        Ok(Reply::Leases(grants))
    }

    pub(super) fn available(&self, sets: &[Vec<LeaseRange>]) -> Result<bool, OpError> {
        for (number, set) in sets.iter().enumerate() {
            if self.candidates(number, set)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first few free addresses of a set; enough for tests, however large the subnet is.
    fn candidates(&self, number: usize, set: &[LeaseRange]) -> Result<Vec<(IpAddr, LeaseRange)>, OpError> {
        let invalid = |text: &str| {
            let message = format!("invalid range set {number}: {text}");
            OpError::new(ErrorCode::InvalidArgument, number.to_string(), message)
        };
        if set.is_empty() {
            return Err(invalid("empty range set"));
        }
        let mut free = Vec::new();
        for range in set {
            if range.subnet != range.subnet.trunc() {
                return Err(invalid("Network has host bits set"));
            }
            let last = range.end.unwrap_or_else(|| range.subnet.broadcast());
            let wanted =
                |ip: &IpAddr| *ip != gateway_of(range) && !self.leases.iter().any(|lease| lease.address == *ip);
            let first = range.start.unwrap_or_else(|| first_address(&range.subnet));
            let all = std::iter::successors(Some(first), |ip| Some(after(*ip)));
            let inside = all.take(1024).take_while(|ip| *ip < last || range.end == Some(*ip));
            free.extend(inside.filter(wanted).map(|ip| (ip, range.clone())));
        }
        Ok(free)
    }

    /// An attachment as a bridge plugin leaves it: a pair, the host's end in a bridge of that name.
    pub fn attached(mut self, bridge: &str) -> Self {
        let master = self.add_link(Place::Host, bridge, "bridge");
        // Both succeed on a kernel that has a namespace and no such link.
        if self.veth_create(None, None).is_ok()
            && let Some(host) = self.host_end().map(|end| end.info.handle)
        {
            let _ = self.attach(master, host, &postern_types::PortSpec::default());
        }
        self
    }
}

fn gateway_of(range: &LeaseRange) -> IpAddr {
    range.gateway.unwrap_or_else(|| first_address(&range.subnet))
}

/// The first address of a network that can be a host's.
pub(super) fn first_address(net: &IpNet) -> IpAddr {
    after(net.network())
}

fn after(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).saturating_add(1).into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).saturating_add(1).into()),
    }
}
