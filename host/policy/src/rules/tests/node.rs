//! The rules on objects that attachments share: bridges, backends, delegates, files and addresses.

use super::{asked, bridge, decided, ensure};
use crate::granted::tests::granted;
use postern_types::{Backend, LeaseRange, Operation, PortSpec, ops};

fn options(mtu: Option<u32>, vlan_filtering: bool, promisc: bool) -> Operation {
    ops::Bridge::Ensure { name: "b".to_owned(), mtu, vlan_filtering, promisc }.into()
}

#[test]
fn stars_are_for_policy_files_only() {
    let open = "[grant.bridge]\nnames = [\"br*\"]";
    for name in ["br0", "br", "br*"] {
        assert_eq!(decided(open, "{}", &ensure(name)), Ok("bridge.names"), "{name}");
    }
    assert!(decided(open, "{}", &ensure("cni0")).is_err());
    let taken = "[grant.bridge]\nnames = [\"${config.bridge}\"]";
    let config = r#"{"bridge":"br*"}"#;
    assert_eq!(decided(taken, config, &ensure("br*")), Ok("bridge.names"));
    let refusal = decided(taken, config, &ensure("br0")).unwrap_err();
    assert!(refusal.contains("names = [\"${config.bridge}\", \"br0\"]"), "{refusal}");
}

#[test]
fn a_bridge_is_made_as_its_keys_say() {
    let mtu = "mtu = \"${config.mtu | 0}\"";
    assert_eq!(bridge(mtu, r#"{"mtu":1400}"#, &options(Some(1400), false, false)), Ok("bridge.names"));
    assert_eq!(bridge(mtu, r#"{"mtu":1400}"#, &options(None, false, false)), Ok("bridge.names"));
    assert!(bridge("", "{}", &options(Some(1400), false, false)).is_err());
    let refusal = bridge(mtu, "{}", &options(Some(1400), false, false)).unwrap_err();
    assert!(
        refusal.contains(
            "bridge.ensure on \"b\" with MTU 1400; an operator can allow it with \
             `grant.bridge = { names = [\"b\"], mtu = \"1400\" }`"
        ),
        "{refusal}"
    );
    // A key without a value allows no MTU.
    assert!(bridge("mtu = \"${config.mtu}\"", "{}", &options(Some(1400), false, false)).is_err());

    let promisc = "promisc = \"${config.promiscMode | false}\"";
    assert_eq!(bridge(promisc, r#"{"promiscMode":true}"#, &options(None, false, true)), Ok("bridge.names"));
    assert_eq!(bridge(promisc, r#"{"promiscMode":true}"#, &options(None, false, false)), Ok("bridge.names"));
    for keys in ["", promisc] {
        let refusal = bridge(keys, "{}", &options(None, false, true)).unwrap_err();
        assert!(refusal.contains("in promiscuous mode; ") && refusal.contains("promisc = \"true\""), "{refusal}");
    }

    let vlans = "vlan = \"${config.vlan | 0}\"\ntrunk = [\"${config.vlanTrunk.*.id}\"]";
    assert_eq!(bridge(vlans, "{}", &options(None, true, false)), Ok("bridge.names"));
    assert_eq!(bridge(vlans, "{}", &options(None, false, false)), Ok("bridge.names"));
    assert_eq!(bridge(vlans, r#"{"vlan":5}"#, &options(None, true, false)), Ok("bridge.names"));
    for config in [r#"{"vlan":5}"#, r#"{"vlanTrunk":[{"id":3}]}"#] {
        let refusal = bridge(vlans, config, &options(None, false, false)).unwrap_err();
        assert!(refusal.contains("without VLAN filtering; "), "{refusal}");
    }
}

#[test]
fn ports_and_gateways_are_those_of_the_network() {
    let port = |vlan| PortSpec { vlan, ..PortSpec::default() };
    let attach = |vlan| ops::Bridge::Attach { bridge: 0, host: 1, port: port(vlan) }.into();
    let gateways = |vlan| ops::Bridge::EnsureGateways { bridge: 0, port: port(vlan), force: false }.into();
    assert_eq!(bridge("vlan = \"5\"", "{}", &attach(Some(5))), Ok("bridge.vlan"));
    assert!(bridge("vlan = \"5\"", "{}", &gateways(Some(5))).unwrap_err().contains("gateways = [\"true\"]"));
    let both = "vlan = \"5\"\ngateways = [\"${config.isGateway | false}\", \"${config.isDefaultGateway | false}\"]";
    assert!(bridge(both, "{}", &gateways(Some(5))).is_err());
    assert_eq!(bridge(both, r#"{"isDefaultGateway":true}"#, &gateways(Some(5))), Ok("bridge.vlan"));
    assert_eq!(bridge("", "{}", &attach(None)), Ok("bridge"));
    let refusal = bridge("vlan = \"5\"", "{}", &gateways(Some(6))).unwrap_err();
    assert!(refusal.contains("bridge.ensure-gateways with access VLAN 6; ") && refusal.contains("vlan = \"6\""));
    assert!(bridge("vlan = \"5\"", "{}", &attach(None)).unwrap_err().contains("bridge.attach without an access VLAN"));
}

#[test]
fn force_is_a_grant_of_its_own() {
    let gateways = |force| ops::Bridge::EnsureGateways { bridge: 0, port: PortSpec::default(), force }.into();
    let plain = "gateways = [\"true\"]";
    assert_eq!(bridge(plain, "{}", &gateways(false)), Ok("bridge"));
    let refusal = bridge(plain, "{}", &gateways(true)).unwrap_err();
    assert!(refusal.contains("with force; ") && refusal.contains("force-address = \"true\" }`"));
    let key = "gateways = [\"true\"]\nforce-address = \"${config.forceAddress | false}\"";
    assert_eq!(bridge(key, r#"{"forceaddress":true}"#, &gateways(true)), Ok("bridge.force-address"));
    assert!(bridge(key, "{}", &gateways(true)).is_err());
}

#[test]
fn rules_are_made_with_a_granted_backend() {
    let policy = "[grant.masquerade]\nbackends = [\"${config.ipMasqBackend | nftables}\"]";
    let asked = |backend| ops::Masquerade::Ensure { backend }.into();
    let rule = Ok("masquerade.backends");
    for config in ["{}", r#"{"ipMasqBackend":""}"#, r#"{"ipMasqBackend":"nftables"}"#] {
        assert_eq!(decided(policy, config, &asked(None)), rule);
        let refusal = decided(policy, config, &asked(Some(Backend::Iptables))).unwrap_err();
        assert!(
            refusal.contains("masquerade.ensure on \"iptables\"; ")
                && refusal.contains("backends = [\"${config.ipMasqBackend | nftables}\", \"iptables\"] }`")
        );
    }
    let iptables = r#"{"ipMasqBackend":"iptables"}"#;
    assert_eq!(decided(policy, iptables, &asked(Some(Backend::Iptables))), rule);
    // A guest that names no backend gets a granted backend.
    assert_eq!(decided(policy, iptables, &asked(None)), rule);
    let any = "[grant.masquerade]\nbackends = [\"${config.ipMasqBackend | any}\"]";
    for backend in [None, Some(Backend::Nftables), Some(Backend::Iptables)] {
        assert_eq!(decided(any, "{}", &asked(backend)), rule);
        assert_eq!(decided(any, iptables, &asked(backend)).is_ok(), backend != Some(Backend::Nftables));
    }
    let none = decided("[grant.masquerade]\nbackends = [\"${config.x}\"]", "{}", &asked(None)).unwrap_err();
    assert!(none.contains("backends = [\"${config.x}\", \"any\"] }`"), "{none}");
    let check = ops::Masquerade::Check { backend: Some(Backend::Iptables) }.into();
    assert_eq!(decided(policy, "{}", &check), Ok("masquerade"));
}

#[test]
fn delegates_directories_and_files_are_those_named() {
    let policy = "[grant.ipam]\ntypes = [\"${config.ipam.type}\"]\n[grant.resolv-conf]\nfiles = [\"/etc/*.conf\"]\n\
                  [grant.leases]\ndirectories = [\"${config.ipam.dataDir | /var/lib/cni/networks}\"]\nranges = [\"10.0.0.0/8\"]";
    let config = r#"{"ipam":{"type":"static","dataDir":"","resolvConf":"/etc/resolv.conf"}}"#;
    assert_eq!(decided(policy, config, &ops::Ipam::Add.into()), Ok("ipam.types"));
    assert_eq!(decided(policy, "{}", &ops::Ipam::Add.into()), Ok("ipam"));
    assert_eq!(decided(policy, config, &ops::Leases::Release.into()), Ok("leases.directories"));
    assert_eq!(decided(policy, config, &ops::ResolvConf::Read.into()), Ok("resolv-conf.files"));
    let others = r#"{"ipam":{"type":"ptp","dataDir":"/srv","resolvConf":"/etc/shadow"}}"#;
    for (operation, words) in [
        (
            ops::Ipam::Add.into(),
            "ipam.add on \"ptp\"; an operator can allow it with `grant.ipam = { types = [\"${config.ipam.type}\", \"ptp\"] }`",
        ),
        (
            ops::Leases::Held.into(),
            "leases.held on \"/srv\"; an operator can allow it with `grant.leases = { directories = [\"${config.ipam.dataDir | /var/lib/cni/networks}\", \"/srv\"], ",
        ),
        (
            ops::ResolvConf::Read.into(),
            "resolv-conf.read on \"/etc/shadow\"; an operator can allow it with `grant.resolv-conf = { files = [\"/etc/*.conf\", \"/etc/shadow\"] }`",
        ),
    ] {
        let refusal = asked(&granted(policy, config), others, &operation, None).unwrap_err();
        let refusal = format!("{}; {}", refusal.message, refusal.hint);
        assert!(refusal.contains(words), "{refusal}");
    }
}

#[test]
fn addresses_come_from_granted_ranges() {
    let policy = "[grant.leases]\ndirectories = [\"/x\"]\nranges = [\"10.0.0.0/8\"]";
    let config = r#"{"ipam":{"dataDir":"/x"}}"#;
    let range = |subnet: &str| LeaseRange { subnet: subnet.parse().unwrap(), start: None, end: None, gateway: None };
    let reserve = |sets| ops::Leases::Reserve { sets, requested: Vec::new() }.into();
    assert_eq!(decided(policy, config, &reserve(vec![vec![range("10.1.0.0/24")]])), Ok("leases.ranges"));
    let foreign = vec![vec![range("11.1.0.0/24")]];
    let refusal = decided(policy, config, &reserve(foreign.clone())).unwrap_err();
    let words = "leases.reserve on \"11.1.0.0/24\"; an operator can allow it with `grant.leases = { directories = [\"/x\"], ranges = [\"10.0.0.0/8\", \"11.1.0.0/24\"] }`";
    assert!(refusal.contains(words), "{refusal}");
    assert!(decided(policy, config, &ops::Leases::Available { sets: foreign }.into()).is_err());
    let two = vec![vec![range("10.1.0.0/24")], vec![range("10.2.0.0/24")]];
    let refusal = decided(policy, config, &reserve(two)).unwrap_err();
    assert!(refusal.contains("on \"10.2.0.0/24\" for a second address; each entry of"), "{refusal}");
}
