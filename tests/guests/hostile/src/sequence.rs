//! Random calls with random arguments, for the sequence fuzzer. The same seed gives the same calls. The guest ignores
//! refusals, and keeps every handle for later calls.

use ipnet::IpNet;
use postern_guest::bridge::Bridge;
use postern_guest::cni::{Flannel, Json, NetConf, flannel};
use postern_guest::link::Link;
use postern_guest::parent::Parent;
use postern_guest::types::{
    Backend, DeviceKey, Forward, IngressPolicy, IpvlanMode, LeaseRange, LinkSettings, Mac, MacvlanMode, NatSources,
    PortSpec, RateLimit, Route, RouteSource, TapSettings,
};
use postern_guest::veth::{HostEnd, Pair};
use postern_guest::{
    addresses, attachments, bandwidth, bridge, delegate, device, dhcp, dummy, firewall, forwarding, ipam, ipvlan,
    leases, link, link_settings, link_sysctl, loopback, mac_guard, macvlan, masquerade, namespace_sysctl, notes,
    parent, point_to_point, port_mappings, resolv_conf, routes, source_routes, tap, veth, vlan, vrf,
};
use std::net::IpAddr;

/// Bridges of the fuzzer's node: some may be granted by a random policy, others never.
const BRIDGES: [&str; 7] = ["hostile0", "hostile1", "cni0", "op0", "lo", "../hostile0", "hostile2"];
const PARENTS: [&str; 6] = ["wire0", "wire0", "cni0", "op0", "", "eth0"];
const DEVICES: [&str; 6] = ["wire1", "wire1", "wire0", "op0", "cni0", "eth0"];
const NETS: [&str; 12] = [
    "10.9.0.0/24",
    "10.9.0.128/25",
    "10.8.0.0/24",
    "10.77.0.0/24",
    "10.77.0.2/24",
    "10.9.0.2/24",
    "192.0.2.1/24",
    "0.0.0.0/0",
    "10.0.0.0/8",
    "fd00:9::/64",
    "fd00:77::1/64",
    "127.0.0.1/8",
];
const ADDRESSES: [&str; 8] =
    ["10.9.0.2", "10.9.0.77", "10.77.0.1", "10.77.0.2", "192.0.2.1", "192.0.2.254", "fd00:9::5", "0.0.0.0"];

/// The first six port mappings are in the fuzzer's configuration. The last six are not.
const FORWARDS: [&str; 12] = [
    "tcp:8080:80",
    "tcp:8081:81",
    "udp:8053:53",
    "tcp:22:22",
    "tcp:9443:443",
    "tcp:8090:80@192.0.2.1",
    "tcp:9444:443",
    "udp:9053:53",
    "tcp:8079-8082:79",
    "tcp:8080:22",
    "tcp:8090:80",
    "tcp:8080:80@192.0.2.1",
];

/// Some of these sysctls are in the network's configuration, and some belong to the container's namespace.
const SYSCTLS: [&str; 6] = [
    "net.core.somaxconn",
    "net.core.somaxconn",
    "net.core.rmem_max",
    "net.ipv4.conf.eth9.arp_filter",
    "net.ipv4.ip_forward",
    "kernel.hostname",
];

/// The handles and addresses of the guest.
#[derive(Default)]
struct Held {
    links: Vec<Link>,
    ends: Vec<HostEnd>,
    bridges: Vec<Bridge>,
    parents: Vec<Parent>,
    /// Own addresses, for `addresses.add`.
    own: Vec<IpNet>,
    /// The settings of the last attached port, for `bridge.ensure-gateways`.
    joined: PortSpec,
    /// The network's configuration, for `delegate.add`.
    conf: Option<NetConf>,
}

impl Held {
    fn keep(&mut self, pair: Pair) {
        self.links.push(pair.container);
        self.ends.push(pair.host);
    }
}

/// A generator of random numbers: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let wide = u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * limit as u128;
        usize::try_from(wide >> 64).unwrap_or_default()
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    fn one_of<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len().max(1)))
    }

    fn net(&mut self) -> IpNet {
        let text = self.one_of(&NETS).copied().unwrap_or_default();
        text.parse().unwrap_or_default()
    }

    fn address(&mut self) -> Option<IpAddr> {
        self.one_of(&ADDRESSES)?.parse().ok()
    }

    fn perhaps<T>(&mut self, value: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.below(4) == 0 { value(self) } else { None }
    }

    fn range(&mut self) -> LeaseRange {
        let gateway = self.perhaps(Self::address);
        LeaseRange {
            subnet: self.net().trunc(),
            start: self.perhaps(Self::address),
            end: self.perhaps(Self::address),
            gateway,
        }
    }

    fn sets(&mut self) -> Vec<Vec<LeaseRange>> {
        // Half of the requests can work.
        if self.flip() {
            let subnet = "10.9.0.0/24".parse().unwrap_or_default();
            return vec![vec![LeaseRange { subnet, start: None, end: None, gateway: None }]];
        }
        (0..=self.below(2)).map(|_| (0..=self.below(2)).map(|_| self.range()).collect()).collect()
    }

    fn port(&mut self) -> PortSpec {
        PortSpec {
            hairpin: self.below(4) == 0,
            isolated: self.below(4) == 0,
            vlan: self.perhaps(|random| random.one_of(&[0, 7, 100, 4094, 4095]).copied()),
            trunk: self.perhaps(|random| Some(vec![7; random.below(3)])).unwrap_or_default(),
            preserve_default_vlan: self.below(4) == 0,
        }
    }

    fn route(&mut self) -> Route {
        Route {
            dst: self.net().trunc(),
            gateway: self.perhaps(Self::address),
            source: self.perhaps(Self::address),
            mtu: None,
            advmss: None,
            priority: self.perhaps(|random| u32::try_from(random.below(3)).ok()),
            table: self.perhaps(|random| u32::try_from(random.below(300)).ok()),
            scope: self.perhaps(|random| random.one_of(&[0, 253, 254]).copied()),
        }
    }
}

/// Makes a call about port mappings or the packet filter.
fn filter(random: &mut Random, held: &mut Held) -> Option<()> {
    let own = random.below(4) > 0;
    let addresses: Vec<IpNet> = match own {
        true => held.own.clone(),
        false => vec![random.net()],
    };
    let ips: Vec<IpAddr> = match random.below(6) {
        0 => random.address().into_iter().collect(),
        _ => addresses.iter().map(IpNet::addr).collect(),
    };
    let mut forwards: Vec<Forward> = Vec::new();
    for _ in 0..=random.below(3) {
        // Most forwards can work.
        let among = if random.flip() { 3 } else { FORWARDS.len() };
        forwards.extend(FORWARDS.get(random.below(among)).and_then(|text| text.parse::<Forward>().ok()));
    }
    let sources = random.one_of(&[NatSources::None, NatSources::Own, NatSources::Own, NatSources::All]).copied()?;
    match random.below(9) {
        0..=3 => port_mappings::ensure(&ips, &forwards, sources).ok()?,
        4 => port_mappings::check(&ips, &forwards, sources).ok()?,
        5 if random.flip() => port_mappings::remove().ok()?,
        6 => firewall::admit(&addresses).ok()?,
        7 => {
            // The guest can isolate the bridge only if the bridge has a port of this attachment.
            if let (Ok(pair), Ok(bridge)) = (veth::create(&veth::Options::default()), bridge::find("hostile0")) {
                drop(bridge.map(|bridge| bridge.attach(&pair.host, &PortSpec::default())));
                held.keep(pair);
            }
            let ingress = random.one_of(&[IngressPolicy::SameBridge, IngressPolicy::Isolated])?;
            firewall::isolate(*ingress).ok()?;
        }
        8 if random.flip() => firewall::remove().ok()?,
        _ => firewall::check(&addresses).ok()?,
    }
    Some(())
}

/// Makes a call about rate limits, mostly with the rates of the configuration.
fn limits(random: &mut Random, held: &mut Held) -> Option<()> {
    // A rate limit needs a pair.
    if let (true, Ok(pair)) = (held.ends.is_empty(), veth::create(&veth::Options::default())) {
        held.keep(pair);
    }
    let rate = *random.one_of(&[800_000, 800_000, 800_000, 800_000, 0, u64::MAX])?;
    let limit = RateLimit { rate, burst: *random.one_of(&[800_000, 800_000, 800_000, 800_000, 0, 1, 1 << 40])? };
    let (ingress, egress) = (random.below(8) > 0, random.below(8) > 0);
    let (ingress, egress) = (ingress.then_some(limit), egress.then_some(limit));
    match random.below(6) {
        0 => bandwidth::check(ingress, egress).ok(),
        1 if random.flip() => bandwidth::remove().ok(),
        _ => bandwidth::limit(ingress, egress).ok().map(drop),
    }
}

/// Makes a call about the delegate of a flannel network, mostly with the configuration that the host expects.
fn delegation(random: &mut Random, held: &mut Held) -> Option<()> {
    match random.below(8) {
        0 => delegate::del().ok(),
        1 => delegate::check().ok(),
        2 => delegate::status().ok(),
        3 => delegate::gc().ok(),
        _ => {
            let subnet = delegate::subnet_file().ok()?;
            let conf = held.conf.as_ref()?;
            let Json::Object(mut keys) = Flannel::read(conf).ok()?.configuration(conf, &subnet).ok()? else {
                return None;
            };
            if random.below(4) == 0 {
                let text = |text: &str| Json::from(text);
                let (key, value) = match random.below(6) {
                    0 => ("bridge", text(random.one_of(&BRIDGES)?)),
                    1 => ("type", text(random.one_of(&["ptp", "hostile", "sh", "../bridge"])?)),
                    2 => ("name", text("bystander")),
                    3 => ("ipMasq", Json::Bool(true)),
                    4 => ("BRIDGE", text("cni0")),
                    _ => ("promiscMode", Json::Bool(true)),
                };
                flannel::set(&mut keys, key, value);
            }
            let result = delegate::add(&Json::Object(keys).sorted()).ok()?;
            held.own.extend(result.ips.iter().map(|ip| ip.address));
            Some(())
        }
    }
}

/// Makes `calls` calls. The guest claims some addresses as its own from the beginning.
pub fn play(seed: u64, calls: usize, claimed: Vec<IpNet>, conf: NetConf) {
    let mut random = Random(seed.max(1));
    let mut held = Held { own: claimed, conf: Some(conf), ..Held::default() };
    for _ in 0..calls {
        call(&mut random, &mut held);
    }
}

/// Makes one call. The result does not matter to the guest.
fn call(random: &mut Random, held: &mut Held) -> Option<()> {
    match random.below(67) {
        0 => held.links.extend(link::own().ok()?),
        1..=3 => {
            let mtu = random.perhaps(|random| random.one_of(&[0, 68, 1400, 70_000]).copied());
            let mac = random.perhaps(|_| "02:00:00:00:00:01".parse::<Mac>().ok());
            held.keep(veth::create(&veth::Options::default().mtu(mtu).mac(mac)).ok()?);
        }
        4 => held.keep(veth::find().ok()??),
        5..=7 => {
            let name = random.one_of(&BRIDGES)?;
            let mtu = random.perhaps(|random| random.one_of(&[68, 1400, 70_000]).copied());
            let options =
                bridge::Options::default().mtu(mtu).vlan_filtering(random.below(6) == 0).promisc(random.below(6) == 0);
            held.bridges.push(bridge::ensure(name, &options).ok()?);
        }
        8 => held.bridges.extend(bridge::find(random.one_of(&BRIDGES)?).ok()?),
        9..=11 => {
            held.joined = random.port();
            random.one_of(&held.bridges)?.attach(random.one_of(&held.ends)?, &held.joined).ok()?;
        }
        12 | 13 => {
            let port = if random.below(4) == 0 { random.port() } else { held.joined.clone() };
            random.one_of(&held.bridges)?.ensure_gateways(&port, random.below(4) == 0).ok()?;
        }
        14 => {
            let result = ipam::add().ok()?;
            held.own.extend(result.ips.iter().map(|ip| ip.address));
        }
        15 => ipam::del().ok()?,
        16 | 17 => {
            let requested: Vec<IpAddr> = random.perhaps(Random::address).into_iter().collect();
            let got = leases::reserve(&random.sets(), &requested).ok()?;
            held.own.extend(got.iter().map(|lease| lease.address));
        }
        18 => leases::release().ok()?,
        19 => drop((leases::held().ok(), leases::available(&random.sets()).ok(), leases::retain().ok())),
        20 | 21 => {
            let foreign = [random.net()];
            let own = if random.below(4) == 0 { &foreign[..] } else { &held.own[..] };
            addresses::add(random.one_of(&held.links)?, own).ok()?;
        }
        22 => {
            let link = random.one_of(&held.links)?;
            let (addresses, routes) = ([random.net()], [random.route()]);
            drop((addresses::list(link).ok(), addresses::has(link, &addresses).ok(), routes::has(link, &routes).ok()));
        }
        23 | 24 => routes::add(random.one_of(&held.links)?, &[random.route(), random.route()]).ok()?,
        25 => routes::remove_connected(random.one_of(&held.links)?, &[random.net()]).ok()?,
        26 => random.one_of(&held.links)?.up().ok()?,
        27 if random.below(4) == 0 => random.one_of(&held.links)?.delete().ok()?,
        28 => {
            let link = random.one_of(&held.links)?;
            let on = random.flip();
            match random.below(6) {
                5 => link_sysctl::set_ndisc_notify(link, on).ok()?,
                0 => link_sysctl::set_accept_dad(link, on).ok()?,
                1 => link_sysctl::set_enhanced_dad(link, on).ok()?,
                2 => link_sysctl::set_arp_notify(link, on).ok()?,
                3 => link_sysctl::set_keep_addr_on_down(link, on).ok()?,
                _ => link_sysctl::set_disable_ipv6(link, on).ok()?,
            }
        }
        29 => point_to_point::ensure(random.one_of(&held.ends)?).ok()?,
        30 => forwarding::enable().ok()?,
        31 => {
            let backend = random.one_of(&[None, Some(Backend::Nftables), Some(Backend::Iptables)]).copied().flatten();
            masquerade::ensure(backend).ok()?;
        }
        32 => masquerade::remove().ok()?,
        33 => {
            let mac = random.one_of(&["02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"])?.parse().ok()?;
            mac_guard::ensure(random.one_of(&held.ends)?, mac).ok()?;
        }
        34 => mac_guard::remove().ok()?,
        35 => held.parents.push(parent::find(random.one_of(&PARENTS)?, random.below(4) == 0).ok()?),
        36 => {
            let mode = *random.one_of(&[MacvlanMode::Bridge, MacvlanMode::Private, MacvlanMode::Passthru])?;
            let mtu = random.perhaps(|random| random.one_of(&[0, 68, 1400, 70_000]).copied());
            let mac = random.perhaps(|_| "02:00:00:00:00:01".parse::<Mac>().ok());
            let options = macvlan::Options::new(mode).mtu(mtu).mac(mac);
            held.links.push(macvlan::create(random.one_of(&held.parents)?, &options).ok()?.link);
        }
        37 => match random.below(6) {
            0 => {
                let id = *random.one_of(&[0, 7, 4094, 4095])?;
                held.links.push(vlan::create(random.one_of(&held.parents)?, id, None).ok()?.link);
            }
            1 => {
                let mode = *random.one_of(&[IpvlanMode::L2, IpvlanMode::L3, IpvlanMode::L3s])?;
                held.links.push(ipvlan::create(random.one_of(&held.parents)?, mode, None).ok()?.link);
            }
            2 => held.links.push(dummy::create().ok()?.link),
            3 => {
                let settings = TapSettings {
                    mtu: random.perhaps(|random| random.one_of(&[0, 68, 1400, 70_000]).copied()),
                    mac: random.perhaps(|_| "02:00:00:00:00:01".parse::<Mac>().ok()),
                    owner: random.perhaps(|random| random.one_of(&[0, 1000, u32::MAX]).copied()),
                    group: random.perhaps(|random| random.one_of(&[0, 1000]).copied()),
                    multi_queue: random.flip(),
                    packet_information: random.flip(),
                    vnet_header: random.flip(),
                    selinux_context: random.flip().then(|| "system_u:object_r:container_t:s0".to_owned()),
                };
                held.links.push(tap::create(&settings).ok()?.link);
            }
            4 => tap::join(random.one_of(&held.links)?, random.one_of(&BRIDGES)?).ok()?,
            _ => held.links.push(macvlan::find().ok()??.link),
        },
        38 | 39 => held.links.push(device::take(DeviceKey::Name, random.one_of(&DEVICES)?).ok()?.link),
        40 => drop(device::find(DeviceKey::Name, random.one_of(&DEVICES)?).ok()?),
        41 if random.below(4) == 0 => device::give_back().ok()?,
        42..=49 => filter(random, held)?,
        50 | 51 => {
            let settings = LinkSettings {
                mac: random.perhaps(|_| "02:00:00:00:00:01".parse::<Mac>().ok()),
                mtu: random.perhaps(|random| random.one_of(&[0, 68, 1400, 70_000]).copied()),
                promisc: random.perhaps(|random| Some(random.flip())),
                allmulti: random.perhaps(|random| Some(random.flip())),
                tx_queue_length: random.perhaps(|random| random.one_of(&[0, 5, u32::MAX]).copied()),
            };
            link_settings::change(random.one_of(&held.links)?, &settings).ok()?;
        }
        52 => namespace_sysctl::set(random.one_of(&SYSCTLS)?, random.one_of(&["500", "1", "x"])?).ok()?,
        53 => link_settings::restore().ok()?,
        57 | 58 => {
            let address = if random.below(3) == 0 { random.net() } else { *random.one_of(&held.own)? };
            let source = RouteSource { address, gateway: random.perhaps(Random::address) };
            let table = random.perhaps(|random| random.one_of(&[0, 100, 254, 255, 500]).copied());
            source_routes::apply(random.one_of(&held.links)?, &[source], table, random.flip()).ok()?;
        }
        59 => source_routes::remove().ok()?,
        60 | 61 => {
            let table = random.perhaps(|random| random.one_of(&[0, 10, 254]).copied());
            vrf::join(random.one_of(&held.links)?, random.one_of(&["blue", "red", "eth0", "lo"])?, table).ok()?;
        }
        62 => vrf::leave().ok()?,
        63..=65 => delegation(random, held)?,
        54..=56 => limits(random, held)?,
        _ => match random.below(8) {
            7 => {
                let length = *random.one_of(&[0, 1, 4096, 4097])?;
                drop((notes::get().ok(), notes::set(&"n".repeat(length)).ok()));
            }
            // No DHCP service runs.
            6 => drop((dhcp::acquire().ok(), dhcp::check().ok(), dhcp::release().ok(), dhcp::status().ok())),
            5 => drop(random.one_of(&held.parents)?.attributes().ok()?),
            0 => loopback::up().ok()?,
            1 => loopback::down().ok()?,
            2 => drop(attachments::collect().ok()?),
            3 => drop(resolv_conf::read().ok()?),
            _ => drop(random.one_of(&held.ends)?.attributes().ok()?),
        },
    }
    Some(())
}
