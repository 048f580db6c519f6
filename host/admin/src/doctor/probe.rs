//! Trials of this kernel's features, in temporary namespaces. They run in a separate process, which prints the outcome
//! of each trial.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use postern_confine::{Direct, Files};
use postern_firewall::iptables::{self, ProgramRunner};
use postern_firewall::{AttachmentKey, Nft, macguard, masquerade};
use postern_kernel::{
    InnerLinkKind, InnerSpec, Namespace, Netlink, TapSpec, TokenBucket, VethSpec, Worker, random_mac,
};
use postern_types::IpvlanMode;
use serde::{Deserialize, Serialize};
use std::fs;
use std::time::{Duration, Instant};

/// The file in which a kernel with seccomp filters lists their features.
const SECCOMP: &str = "/proc/sys/kernel/seccomp/actions_avail";
/// The longest time for packet filters.
const WITHIN: Duration = Duration::from_secs(10);

/// The outcome of a trial: success, or the reason of its failure.
pub type Trial = Result<(), String>;

/// The outcomes of all trials. `None` means that the trial was not possible.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Trials {
    pub user_namespaces: Option<Trial>,
    pub landlock: Option<Trial>,
    pub seccomp: Option<Trial>,
    pub cookies: Option<Trial>,
    pub veth: Option<Trial>,
    pub bridge: Option<Trial>,
    pub vlan_filtering: Option<Trial>,
    pub masquerade: Option<Trial>,
    pub bridge_filter: Option<Trial>,
    pub shaping: Option<Trial>,
    pub vlan: Option<Trial>,
    pub ipvlan: Option<Trial>,
    pub dummy: Option<Trial>,
    pub vrf: Option<Trial>,
    pub tap: Option<Trial>,
    pub iptables: Option<Trial>,
    /// The reason why further trials were not possible.
    pub reason: Option<String>,
}

/// Runs all trials.
pub fn run() -> Trials {
    let mut trials = Trials {
        landlock: Some(landlock()),
        seccomp: Some(fs::read_to_string(SECCOMP).map(drop).map_err(|e| format!("{SECCOMP}: {e}"))),
        ..Trials::default()
    };
    let (user, group) = (geteuid(), getegid());
    let own = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    let user_namespace = unshare(CloneFlags::CLONE_NEWUSER | own).map_err(|errno| errno.desc().to_owned());
    trials.user_namespaces = Some(user_namespace.clone());
    let entered = match user_namespace {
        Ok(()) => fs::write("/proc/self/setgroups", "deny")
            .and_then(|()| fs::write("/proc/self/uid_map", format!("0 {user} 1")))
            .and_then(|()| fs::write("/proc/self/gid_map", format!("0 {group} 1")))
            .map_err(|e| format!("mapping ids: {e}")),
        // Root needs no user namespace to leave the node's network.
        Err(_) => unshare(own).map_err(|errno| errno.desc().to_owned()),
    };
    match entered {
        Ok(()) => inside(&mut trials),
        Err(reason) => trials.reason = Some(reason),
    }
    trials
}

fn landlock() -> Trial {
    match Files::new([]) {
        Ok(files) if files.enforced() => Ok(()),
        Ok(_) => Err("the kernel lacks Landlock, or has Landlock switched off".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the trials that need a separate network.
fn inside(trials: &mut Trials) {
    let netlink = match Netlink::open() {
        Ok(netlink) => netlink,
        Err(error) => {
            trials.reason = Some(error.to_string());
            return;
        }
    };
    trials.cookies = Some(netlink.cookie().map(drop).map_err(|e| e.to_string()));
    trials.veth = Some(pair(&netlink));
    let bridge = |name, filtering| match netlink.create_bridge(name, None, filtering) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{name} was there already")),
        Err(error) => Err(error.to_string()),
    };
    trials.bridge = Some(bridge("probe0", false));
    trials.vlan_filtering = Some(bridge("probe1", true).and_then(|()| vlan(&netlink)));
    trials.shaping = Some(shaping(&netlink));
    // `probe2` is a port of a bridge by now. The pair's other end, `probe3`, is not.
    let parent = index(&netlink, "probe3");
    let inner = |name, kind: Result<InnerLinkKind, String>| {
        let spec = |kind| InnerSpec { name, kind, mtu: None, mac: None, namespace: None };
        kind.and_then(|kind| netlink.create_inner(&spec(kind)).map_err(|e| e.to_string()))
    };
    let on = |kind: fn(u32) -> InnerLinkKind| parent.clone().map(kind);
    trials.vlan = Some(inner("probe5", on(|parent| InnerLinkKind::Vlan { parent, id: 7 })));
    trials.ipvlan = Some(inner("probe6", on(|parent| InnerLinkKind::Ipvlan { parent, mode: IpvlanMode::L2 })));
    trials.dummy = Some(inner("probe7", Ok(InnerLinkKind::Dummy)));
    trials.vrf = Some(netlink.create_vrf("probe8", 7).map_err(|e| e.to_string()));
    trials.tap = Some(tap());
    let key = AttachmentKey { network: "probe".into(), container_id: "probe".into(), ifname: "eth0".into() };
    let deadline = Instant::now() + WITHIN;
    let address = "192.0.2.2/24".parse().map_err(|_| "no address".to_owned());
    trials.masquerade = Some(address.and_then(|address| {
        let mut nft = Nft::open(deadline).map_err(|e| e.to_string())?;
        masquerade::nft_ensure(&mut nft, &key, &[address], false).map(drop).map_err(|e| e.to_string())
    }));
    let guarded =
        Nft::open(deadline).and_then(|mut nft| macguard::claim(&mut nft, "probe-eth0", "probe2", [2; 6], |_| false));
    trials.bridge_filter = Some(guarded.map(drop).map_err(|e| e.to_string()));
    // The lock of iptables is a file below /run. The trial must not use the node's lock file.
    let none = None::<&str>;
    let private = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .and_then(|()| mount(Some("probe"), "/run", Some("tmpfs"), MsFlags::empty(), none));
    trials.iptables =
        private.ok().map(|()| match iptables::usable(ProgramRunner { runner: &Direct, deadline, nft: None }) {
            true => Ok(()),
            false => Err("iptables is not installed, or the kernel does not answer iptables".to_owned()),
        });
}

/// Tries a tap. The tap is gone when its thread ends.
fn tap() -> Trial {
    let own = Namespace::current().map_err(|e| e.to_string())?;
    let worker = Worker::start_for(&own, Some(None), || Ok(())).map_err(|e| e.to_string())?;
    let spec = TapSpec {
        name: "probe9".to_owned(),
        mac: random_mac(),
        owner: None,
        group: None,
        multi_queue: false,
        packet_information: false,
        vnet_header: false,
    };
    worker.make_tap(&spec).map_err(|e| e.to_string())
}

fn pair(netlink: &Netlink) -> Trial {
    let own = Namespace::current().map_err(|e| e.to_string())?;
    let spec = VethSpec {
        name: "probe2",
        mtu: None,
        mac: None,
        peer_name: "probe3",
        peer_mac: random_mac(),
        peer_ns: own.fd(),
    };
    netlink.create_veth(&spec).map_err(|e| e.to_string())
}

fn index(netlink: &Netlink, name: &str) -> Result<u32, String> {
    let link = netlink.link_by_name(name).map_err(|e| e.to_string())?;
    link.map(|link| link.index).ok_or_else(|| format!("{name} is not there"))
}

/// Tries a token bucket, and the redirection to an ifb.
fn shaping(netlink: &Netlink) -> Trial {
    let bucket = TokenBucket { rate: 1000, limit: 4000, buffer: 1_000_000 };
    netlink.create_ifb("probe4", 1500).map_err(|e| e.to_string())?;
    let (from, to) = (index(netlink, "probe2")?, index(netlink, "probe4")?);
    let limited = netlink.limit_rate(to, &bucket).and_then(|()| netlink.redirect_ingress(from, to));
    limited.map_err(|e| e.to_string())
}

/// Tries a port in a VLAN: a kernel without VLAN filtering accepts the bridge's option, but not the port's VLAN.
fn vlan(netlink: &Netlink) -> Trial {
    let (port, bridge) = (index(netlink, "probe2")?, index(netlink, "probe1")?);
    netlink.set_master(port, Some(bridge)).map_err(|e| e.to_string())?;
    netlink.add_vlan(port, 7, true, true).map_err(|e| e.to_string())
}
