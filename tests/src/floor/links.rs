//! Links, their addresses and routes.

use super::Task;
use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use postern_kernel::{InnerLinkKind, InnerSpec, Namespace, Netlink, Sysctl, TokenBucket, VethSpec, random_mac, sysctl};
use postern_types::{MacvlanMode, Route};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// The parts that are about links.
pub const PARTS: [&str; 8] = ["loopback", "bridge", "ptp", "macvlan", "macvlan-alone", "route", "bandwidth", "tuning"];

/// A rate in bytes per second, and a bucket that takes a tenth of a second to fill.
const BUCKET: TokenBucket = TokenBucket { rate: 1_000_000, limit: 35_000, buffer: 1_562_500 };

/// The files and sockets of both namespaces.
pub struct Place {
    home: File,
    container: File,
    outer: Netlink,
    inner: Netlink,
    /// The name of the link in the container.
    own: String,
    /// The name of the host end.
    end: String,
}

impl Place {
    pub fn open(task: &Task, verb: &str) -> Result<Self> {
        let (home, container) = (File::open("/proc/self/ns/net")?, File::open(&task.netns)?);
        let outer = Netlink::open()?;
        // A DEL of a pair needs only the host's namespace: it removes the host end, as our plugins do.
        let inner = if verb == "add" || task.name == "lo" || task.parts.contains("macvlan") {
            setns(&container, CloneFlags::CLONE_NEWNET)?;
            let inner = Netlink::open()?;
            setns(&home, CloneFlags::CLONE_NEWNET)?;
            inner
        } else {
            Netlink::open()?
        };
        Ok(Self { home, container, outer, inner, own: task.name.clone(), end: format!("e{}", task.name) })
    }

    fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        setns(&self.container, CloneFlags::CLONE_NEWNET)?;
        let done = work();
        setns(&self.home, CloneFlags::CLONE_NEWNET)?;
        done
    }

    fn index(netlink: &Netlink, name: &str) -> Result<u32> {
        Ok(netlink.link_by_name(name)?.with_context(|| format!("no link {name}"))?.index)
    }

    pub fn act(&self, part: &str, verb: &str, task: &Task) -> Result<()> {
        if verb == "add" { self.add(part, task) } else { self.delete(part) }
    }

    fn add(&self, part: &str, task: &Task) -> Result<()> {
        match part {
            "loopback" => Ok(self.inner.set_up(Self::index(&self.inner, "lo")?)?),
            "bridge" => self.bridge(task),
            "ptp" => self.ptp(task),
            "macvlan" => self.macvlan(task, true),
            "macvlan-alone" => self.macvlan(task, false),
            "route" => Ok(self.inner.add_route(Self::index(&self.inner, &self.own)?, &default(task))?),
            "bandwidth" => {
                let end = Self::index(&self.outer, &task.bridge)?;
                self.outer.limit_rate(end, &BUCKET)?;
                self.outer.create_ifb(&self.end, 1500)?;
                let other = Self::index(&self.outer, &self.end)?;
                self.outer.set_up(other)?;
                self.outer.redirect_ingress(end, other)?;
                Ok(self.outer.limit_rate(other, &BUCKET)?)
            }
            "tuning" => {
                self.inner.set_mtu(Self::index(&self.inner, &self.own)?, 1400)?;
                let filter = Sysctl::Ipv4Conf(self.own.clone(), "arp_filter");
                self.inside(|| Ok(sysctl::set(&filter, "1").map(drop)?))
            }
            part => bail!("there is no part {part}"),
        }
    }

    fn delete(&self, part: &str) -> Result<()> {
        match part {
            "loopback" => Ok(self.inner.set_down(Self::index(&self.inner, "lo")?)?),
            "bridge" | "ptp" | "bandwidth" => {
                Ok(self.outer.delete_link(Self::index(&self.outer, &self.end)?).map(drop)?)
            }
            "macvlan" | "macvlan-alone" => {
                Ok(self.inner.delete_link(Self::index(&self.inner, &self.own)?).map(drop)?)
            }
            // The kernel removes settings and routes with the link.
            "tuning" | "route" => Ok(()),
            part => bail!("there is no part {part}"),
        }
    }

    fn pair(&self, mac: [u8; 6]) -> Result<()> {
        let home = Namespace::current()?;
        Ok(self.inner.create_veth(&VethSpec {
            name: &self.own,
            mtu: None,
            mac: Some(mac),
            peer_name: &self.end,
            peer_mac: random_mac(),
            peer_ns: home.fd(),
        })?)
    }

    fn bridge(&self, task: &Task) -> Result<()> {
        let bridge = Self::index(&self.outer, &task.bridge)?;
        self.pair(random_mac())?;
        let (own, end) = (Self::index(&self.inner, &self.own)?, Self::index(&self.outer, &self.end)?);
        self.outer.set_up(end)?;
        sysctl::set(&Sysctl::Ipv6Conf(self.end.clone(), "accept_ra"), "0")?;
        self.outer.attach_port(end, bridge, false, false)?;
        self.settings()?;
        self.inner.add_address(own, task.address.into())?;
        self.inner.set_up(own)?;
        self.outer.addresses(bridge)?;
        self.wait_for(end)
    }

    fn ptp(&self, task: &Task) -> Result<()> {
        self.pair(random_mac())?;
        let (own, end) = (Self::index(&self.inner, &self.own)?, Self::index(&self.outer, &self.end)?);
        let gateway = gateway(task);
        self.settings()?;
        self.inner.add_address(own, task.address.into())?;
        self.inner.set_up(own)?;
        self.inner.add_route(own, &route(gateway, 32, None))?;
        self.outer.add_address(end, ipnet::IpNet::new(gateway, 32)?)?;
        self.outer.set_up(end)?;
        self.outer.add_route(end, &route(task.address.addr().into(), 32, None))?;
        self.wait_for(end)
    }

    fn macvlan(&self, task: &Task, with_address: bool) -> Result<()> {
        let below = Self::index(&self.outer, &task.bridge)?;
        self.outer.create_inner(&InnerSpec {
            name: &self.own,
            kind: InnerLinkKind::Macvlan { parent: below, mode: MacvlanMode::Bridge, queue: None },
            mtu: None,
            mac: Some(random_mac()),
            namespace: Some(self.container.as_fd()),
        })?;
        let own = Self::index(&self.inner, &self.own)?;
        if with_address {
            self.settings()?;
            self.inner.add_address(own, task.address.into())?;
        }
        Ok(self.inner.set_up(own)?)
    }

    /// Sets sysctls of the link in the container.
    fn settings(&self) -> Result<()> {
        self.inside(|| {
            sysctl::set(&Sysctl::Ipv6Conf(self.own.clone(), "accept_dad"), "0")?;
            Ok(sysctl::set(&Sysctl::Ipv4Conf(self.own.clone(), "arp_notify"), "1").map(drop)?)
        })
    }

    fn wait_for(&self, end: u32) -> Result<()> {
        while !self.outer.link_by_index(end)?.is_some_and(|link| link.running) {
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

/// The first address of the network.
fn gateway(task: &Task) -> IpAddr {
    task.address.hosts().next().unwrap_or(task.address.addr()).into()
}

fn default(task: &Task) -> Route {
    route([0, 0, 0, 0].into(), 0, Some(gateway(task)))
}

fn route(to: IpAddr, length: u8, gateway: Option<IpAddr>) -> Route {
    let dst = ipnet::IpNet::new_assert(to, length);
    Route { dst, gateway, source: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
}
