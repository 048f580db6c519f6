//! The kernel features that the installed plugins need.

use super::probe::{Trial, Trials};
use super::{Examination, Node, Remedy, Severity};
use crate::imports::Imports;
use postern_confine::{Direct, Environment, Program, Run as _};
use postern_gate::catalog::Manifest;
use postern_types::Capability;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest time for the trials.
const WITHIN: Duration = Duration::from_secs(30);

pub fn examine(examination: &mut Examination, node: &Node) {
    examination.look("kernel", "the kernel's features for plugins, tried in temporary namespaces");
    let trials = match trials() {
        Ok(trials) => trials,
        Err(reason) => return examination.leave_out(format!("the kernel's features: {reason}")),
    };
    if let Some(reason) = &trials.reason {
        examination
            .leave_out(format!("veth, bridge and packet filters of the kernel: no namespace for the trials: {reason}"));
    }
    let imports = imports(node);
    let users = |capability: Capability| {
        let of = imports.iter().filter(|(_, imports)| imports.has(capability));
        of.map(|(plugin, _)| plugin.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut report = |trial: &Option<Trial>, severity, name: &str, why: String, remedy: &str| {
        if let Some(Err(reason)) = trial {
            let remedy = if remedy.is_empty() { Remedy::None } else { Remedy::Words(remedy.to_owned()) };
            examination.found(severity, name, reason.clone(), &why, remedy);
        }
    };
    let every = "every plugin's sandbox needs seccomp filters: no plugin runs";
    report(&trials.seccomp, Severity::Error, "seccomp", every.to_owned(), "a kernel with CONFIG_SECCOMP_FILTER");
    let cookies = "records identify namespaces by these cookies: no plugin runs".to_owned();
    report(&trials.cookies, Severity::Error, "netns cookies", cookies, "a kernel of 5.14 or later");
    let landlock = "an attacker who controls a gate could reach more files than its run needs".to_owned();
    let boot = "a kernel with CONFIG_SECURITY_LANDLOCK, and `landlock` in the boot parameter lsm=";
    report(&trials.landlock, Severity::Warning, "Landlock", landlock, boot);
    let learn = "`postern learn` and these trials need user namespaces; plugins do not".to_owned();
    let sysctls = "see the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone (Debian) and \
                   kernel.apparmor_restrict_unprivileged_userns (Ubuntu)";
    report(&trials.user_namespaces, Severity::Note, "user namespaces", learn, sysctls);
    // A missing feature that only some networks need is an error if the node has such a network, and otherwise a note.
    let asked = |keys: &[&str]| {
        let plugins = node.lists.iter().flat_map(|list| list.entries());
        let used = plugins.into_iter().any(|plugin| keys.iter().any(|key| plugin.has(key)));
        if used { Severity::Error } else { Severity::Note }
    };
    let has_type = |name: &str| {
        let plugins = node.lists.iter().flat_map(|list| list.entries());
        if plugins.into_iter().any(|plugin| plugin.plugin() == name) { Severity::Error } else { Severity::Note }
    };
    for (trial, capability, severity, name, option) in [
        (&trials.veth, Capability::Veth, Severity::Error, "veth", "modprobe veth (CONFIG_VETH)"),
        (&trials.bridge, Capability::Bridge, Severity::Error, "bridge", "modprobe bridge (CONFIG_BRIDGE)"),
        (
            &trials.vlan_filtering,
            Capability::Bridge,
            asked(&["vlan", "vlanTrunk"]),
            "VLAN filtering of bridges",
            "a kernel with CONFIG_BRIDGE_VLAN_FILTERING; without it networks with `vlan` or `vlanTrunk` fail",
        ),
        (
            &trials.bridge_filter,
            Capability::MacGuard,
            asked(&["macspoofchk"]),
            "nftables of the bridge family",
            "a kernel with CONFIG_NF_TABLES_BRIDGE; without it networks with `macspoofchk` fail",
        ),
        (
            &trials.vlan,
            Capability::Vlan,
            has_type("vlan"),
            "VLAN links",
            "modprobe 8021q (CONFIG_VLAN_8021Q); without it networks of type vlan fail",
        ),
        (
            &trials.ipvlan,
            Capability::Ipvlan,
            has_type("ipvlan"),
            "ipvlan links",
            "modprobe ipvlan (CONFIG_IPVLAN); without it networks of type ipvlan fail",
        ),
        (
            &trials.dummy,
            Capability::Dummy,
            has_type("dummy"),
            "dummy links",
            "modprobe dummy (CONFIG_DUMMY); without it networks of type dummy fail",
        ),
        (
            &trials.vrf,
            Capability::Vrf,
            has_type("vrf"),
            "VRFs",
            "modprobe vrf (CONFIG_NET_VRF); without it networks of type vrf fail",
        ),
        (
            &trials.tap,
            Capability::Tap,
            has_type("tap"),
            "taps",
            "modprobe tun (CONFIG_TUN), and /dev/net/tun (mknod /dev/net/tun c 10 200) where the runtime runs; without it \
             networks of type tap fail",
        ),
        (
            &trials.shaping,
            Capability::Bandwidth,
            asked(&["ingressRate", "egressRate"]),
            "limits of the rate",
            "a kernel with CONFIG_NET_SCH_TBF, CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED and CONFIG_IFB",
        ),
    ] {
        let users = users(capability);
        if !users.is_empty() {
            report(trial, severity, name, format!("needed by {users}"), option);
        }
    }
    let users = users(Capability::Masquerade);
    if !users.is_empty() {
        let both = matches!((&trials.masquerade, &trials.iptables), (Some(Err(_)), Some(Err(_))));
        let severity = if both { Severity::Error } else { Severity::Note };
        let why = |backend: &str| format!("{users}: networks with `ipMasq` can't use the backend {backend}");
        let option = "a kernel with CONFIG_NF_TABLES, CONFIG_NFT_MASQ and CONFIG_NF_TABLES_INET";
        report(&trials.masquerade, severity, "nftables with masquerade", why("nftables"), option);
        report(&trials.iptables, severity, "iptables", why("iptables"), "install iptables, if a network asks for it");
    }
}

/// Runs the trials in a separate process: the trials enter new namespaces, and this process must not stay in them.
fn trials() -> Result<Trials, String> {
    let program = Program {
        path: PathBuf::from("/proc/self/exe"),
        arguments: vec!["probe".to_owned()],
        environment: Environment::Empty,
        input: String::new(),
    };
    let output = Direct.run(&program, Instant::now() + WITHIN).map_err(|e| e.to_string())?;
    serde_json::from_str(&output.stdout).map_err(|_| format!("{}: {}", output.ended, output.stderr.trim()))
}

/// Returns the imports of the installed plugins.
fn imports(node: &Node) -> Vec<(String, Imports)> {
    let read = |plugin: &String| {
        let manifest = Manifest::read(node.catalog_of(plugin)?, plugin).ok()?;
        Some((plugin.clone(), Imports::parse(&manifest.imports)))
    };
    node.plugins.iter().filter_map(read).collect()
}
