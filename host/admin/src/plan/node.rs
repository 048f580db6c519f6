//! The state of this node, read without privileges and without changing anything.

use anyhow::{Context, Result};
use postern_confine::Direct;
use postern_firewall::iptables::ProgramRunner;
use postern_gate::capability::parent;
use postern_gate::packet_filter;
use postern_gate::sysfs;
use postern_kernel::{Link, Namespace, Netlink, OpenError, Sysctl, Worker, sysctl};
use postern_sim::{Kernel, Place};
use postern_types::{Address, Handle, LinkInfo, Mac};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The longest time for a program that shows if legacy iptables can be used.
const WITHIN: Duration = Duration::from_secs(5);

/// The name that stands for the host end of a pair. The gate chooses the real name at random.
pub const HOST_END: &str = "vethXXXXXXXX";
/// The name that stands for the ifb that limits the rate of a container's sent traffic. The real name is a hash of
/// network and container.
const IFB: &str = "bwpXXXXXXXXXXXX";

/// The initial state of the simulation.
pub struct Node {
    /// The links of the host's namespace, and of the container's namespace if it can be read.
    pub kernel: Kernel,
    /// True if forwarding is on: IPv4, IPv6.
    pub forwarding: [bool; 2],
    /// Data that could not be read, with the assumption in their place.
    pub notes: Vec<String>,
    /// The reason why this user can't look into the container's namespace; `None` if this user can.
    pub hidden: Option<String>,
}

impl Node {
    /// Reads the namespace that this process is in.
    ///
    /// # Errors
    /// The kernel doesn't answer.
    pub fn read(ifname: &str) -> Result<Self> {
        let on = |key: &Sysctl| sysctl::get(key).ok().flatten();
        let ipv6 = on(&Sysctl::Ipv6Forwarding);
        let forwarding = [on(&Sysctl::Ipv4Forward).as_deref() == Some("1"), ipv6.as_deref() == Some("1")];
        let mut kernel = Kernel {
            ifname: ifname.to_owned(),
            ipv6: ipv6.is_some(),
            host_end_name: Some(HOST_END.to_owned()),
            ifb_name: Some(IFB.to_owned()),
            ..Kernel::default()
        };
        let netlink = Netlink::open().context("this node's links cannot be read")?;
        seed(&mut kernel, &netlink, Place::Host).context("this node's links cannot be read")?;
        kernel.default_link = default_link(&netlink);
        let means = ProgramRunner { runner: &Direct, deadline: Instant::now() + WITHIN, nft: None };
        kernel.packet_filter = packet_filter::of_node(means).map_err(anyhow::Error::msg)?;
        Ok(Self { kernel, forwarding, notes: Vec::new(), hidden: None })
    }

    /// Reads the container's namespace, if this user may. If the namespace can't be read, a note has the reason, and
    /// the namespace counts as empty.
    ///
    /// # Errors
    /// The path leads to the host's own namespace. A run would refuse this path too.
    pub fn look_into(&mut self, path: &str) -> Result<(), postern_cni::Error> {
        let mut empty = |why: String| self.notes.push(format!("{path} is taken as an empty namespace: {why}"));
        let namespace = match Namespace::open(path) {
            Ok(namespace) => namespace,
            Err(OpenError::NotExist { .. }) => {
                empty("the path does not exist yet".to_owned());
                return Ok(());
            }
            Err(error) => {
                empty(error.to_string());
                if matches!(error, OpenError::Io { .. }) {
                    self.hidden = Some(error.to_string());
                }
                return Ok(());
            }
        };
        if Namespace::current().is_ok_and(|own| namespace.same_as(&own).unwrap_or(false)) {
            return Err(postern_cni::Error::same_netns());
        }
        let read = Worker::start(&namespace, || Ok(())).and_then(|worker| {
            let netlink = worker.netlink()?;
            if let Some(lo) = netlink.link_by_name("lo")? {
                self.kernel.lo = (lo.up, netlink.addresses(lo.index)?.into_iter().map(show).collect());
            }
            self.kernel.default_link_inside = default_link(netlink);
            seed(&mut self.kernel, netlink, Place::Container)
        });
        if let Err(error) = read {
            empty(error.to_string());
            self.hidden = Some(error.to_string());
        }
        Ok(())
    }
}

/// The name of the link of the default route.
fn default_link(netlink: &Netlink) -> Option<String> {
    let index = parent::default_link(netlink).ok().flatten()?;
    netlink.link_by_index(index).ok().flatten().map(|link| link.name.to_string())
}

/// Adds the links of a namespace.
fn seed(kernel: &mut Kernel, netlink: &Netlink, place: Place) -> postern_kernel::Result<()> {
    let links = netlink.links()?;
    let mut handles: HashMap<u32, Handle> = HashMap::new();
    for link in &links {
        // A link that is removed meanwhile doesn't count.
        let Ok(addresses) = netlink.addresses(link.index) else { continue };
        let addresses = addresses.into_iter().map(show).collect();
        handles.insert(link.index, kernel.seed_link(place, info(link), addresses));
    }
    for link in &links {
        let handle = handles.get(&link.index);
        let Some(seeded) = handle.and_then(|handle| kernel.links.get_mut(handle)) else { continue };
        seeded.promisc = link.promisc;
        seeded.pci = sysfs::pci_of(link);
        if place == Place::Host {
            seeded.path = sysfs::sys_path(&link.name).map(|path| path.display().to_string());
        }
        seeded.routes = netlink.routes(link.index).unwrap_or_default();
        seeded.master = link.master.and_then(|master| handles.get(&master)).copied();
        seeded.vlan_filtering = link.vlan_filtering;
        seeded.pinned =
            link.kind == "bridge" && !links.iter().any(|port| port.master == Some(link.index) && port.mac == link.mac);
    }
    Ok(())
}

fn info(link: &Link) -> LinkInfo {
    LinkInfo {
        handle: 0,
        name: link.name.to_string(),
        mac: link.mac.map(Mac),
        mtu: link.mtu,
        kind: link.kind.clone(),
        up: link.up,
        running: link.running,
    }
}

fn show(address: postern_kernel::LinkAddress) -> Address {
    Address { net: address.net, scope: address.scope, tentative: address.tentative }
}
