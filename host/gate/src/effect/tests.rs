use super::*;
use crate::capability::shared::link_state::SettingBefore;
use crate::capability::source_routes::effect::SourceRule;
use postern_types::{
    Backend, FirewallBackend, IngressPolicy, IpvlanMode, KeptRoute, LinkSettings, Mac, NextHop, RateLimit, Route,
    WholeRoute,
};

/// An inner link without a kind is no valid effect. A line with the effect `macvlan` is always read as a macvlan, even
/// if the line names another kind.
#[test]
fn a_record_of_an_inner_link_has_its_kind() {
    assert!(serde_json::from_str::<Effect>(r#"{"effect":"inner-link","mac":"02:00:00:00:00:01"}"#).is_err());
    let text = r#"{"effect":"macvlan","kind":"vlan","vlan":[3,5]}"#;
    let Ok(Effect::Macvlan(Macvlan(read))) = serde_json::from_str(text) else { panic!("{text}") };
    assert_eq!(read, InnerLink::default());
}

/// The form of each effect in records, and the forms that earlier versions wrote.
#[test]
fn records_keep_their_form() {
    let host = || "veth1a2b3c4d".to_owned();
    let mac: Mac = "02:00:00:00:00:01".parse().unwrap();
    let addresses = || vec!["10.1.0.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()];
    let guard = |id: &str| MacGuard { id: Some(id.to_owned()), host: Some(host()), mac: Some(mac) };
    for (effect, text) in [
        (
            Effect::Veth(Veth { host: host(), mac }),
            r#"{"effect":"veth","host":"veth1a2b3c4d","mac":"02:00:00:00:00:01"}"#,
        ),
        (
            Effect::Macvlan(Macvlan(InnerLink { mac: Some(mac), ..InnerLink::default() })),
            r#"{"effect":"macvlan","mac":"02:00:00:00:00:01"}"#,
        ),
        (
            Effect::Macvlan(Macvlan(InnerLink { born: Some(host()), ..InnerLink::default() })),
            r#"{"effect":"macvlan","born":"veth1a2b3c4d"}"#,
        ),
        (
            Effect::InnerLink(InnerLink {
                kind: InnerKind::Dummy,
                mac: Some(mac),
                born: None,
                shares: None,
                vlan: None,
            }),
            r#"{"effect":"inner-link","kind":"dummy","mac":"02:00:00:00:00:01"}"#,
        ),
        (
            Effect::InnerLink(InnerLink { kind: InnerKind::Tap, mac: Some(mac), born: None, shares: None, vlan: None }),
            r#"{"effect":"inner-link","kind":"tap","mac":"02:00:00:00:00:01"}"#,
        ),
        (
            Effect::InnerLink(InnerLink {
                kind: InnerKind::Vlan,
                mac: None,
                born: Some(host()),
                shares: None,
                vlan: Some((3, 5)),
            }),
            r#"{"effect":"inner-link","kind":"vlan","born":"veth1a2b3c4d","vlan":[3,5]}"#,
        ),
        (
            Effect::InnerLink(InnerLink {
                kind: InnerKind::Ipvlan,
                mac: None,
                born: Some(host()),
                shares: Some((3, IpvlanMode::L3s)),
                vlan: None,
            }),
            r#"{"effect":"inner-link","kind":"ipvlan","born":"veth1a2b3c4d","shares":[3,"l3s"]}"#,
        ),
        (
            Effect::Device(Device {
                device: Some(("pci".to_owned(), "0000:3b:00.1".to_owned())),
                permanent: Some(mac),
                up: true,
                ..Device::of_link(&crate::capability::device::effect::tests::plain())
            }),
            r#"{"effect":"device","name":"eth1","index":3,"device":["pci","0000:3b:00.1"],"permanent":"02:00:00:00:00:01","mac":"02:00:00:00:00:01","mtu":1500,"up":true,"tx_queue_length":1000}"#,
        ),
        (
            Effect::Masquerade(Masquerade { backend: Backend::Nftables, variant: None, addresses: addresses() }),
            r#"{"effect":"masquerade","backend":"nftables","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
        ),
        (
            Effect::Masquerade(Masquerade { backend: Backend::Iptables, variant: None, addresses: Vec::new() }),
            r#"{"effect":"masquerade","backend":"iptables","addresses":[]}"#,
        ),
        (
            Effect::Firewall(Firewall {
                backend: FirewallBackend::Iptables,
                variant: None,
                admin_chain: Some("CNI-ADMIN".to_owned()),
                zone: None,
                addresses: addresses(),
            }),
            r#"{"effect":"firewall","backend":"iptables","admin_chain":"CNI-ADMIN","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
        ),
        (
            Effect::Firewall(Firewall {
                backend: FirewallBackend::Firewalld,
                variant: None,
                admin_chain: None,
                zone: Some("trusted".to_owned()),
                addresses: addresses(),
            }),
            r#"{"effect":"firewall","backend":"firewalld","zone":"trusted","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
        ),
        (
            Effect::Isolation(Isolation {
                bridge: "cni0".to_owned(),
                ingress: IngressPolicy::SameBridge,
                v4: true,
                v6: false,
            }),
            r#"{"effect":"isolation","bridge":"cni0","ingress":"same-bridge","v4":true,"v6":false}"#,
        ),
        (
            Effect::Bandwidth(Bandwidth {
                host: host(),
                index: 7,
                ingress: Some(RateLimit { rate: 8, burst: 16 }),
                egress: None,
            }),
            r#"{"effect":"bandwidth","port":"veth1a2b3c4d","index":7,"ingress":{"rate":8,"burst":16}}"#,
        ),
        (
            Effect::Bandwidth(Bandwidth {
                host: host(),
                index: 7,
                ingress: None,
                egress: Some((RateLimit { rate: 8, burst: 16 }, "bwp0123456789ab".to_owned())),
            }),
            r#"{"effect":"bandwidth","port":"veth1a2b3c4d","index":7,"egress":[{"rate":8,"burst":16},"bwp0123456789ab"]}"#,
        ),
        (Effect::MacGuard(MacGuard { id: None, host: None, mac: None }), r#"{"effect":"mac-guard"}"#),
        (
            Effect::MacGuard(guard("postern/1")),
            r#"{"effect":"mac-guard","id":"postern/1","port":"veth1a2b3c4d","mac":"02:00:00:00:00:01"}"#,
        ),
        (Effect::Lease(Lease { directory: "/var/lib".to_owned() }), r#"{"effect":"lease","directory":"/var/lib"}"#),
        (Effect::Native(Native { plugin: "dhcp".to_owned(), config: None }), r#"{"effect":"native","plugin":"dhcp"}"#),
        (
            Effect::Native(Native { plugin: "dhcp".to_owned(), config: Some("{}".to_owned()) }),
            r#"{"effect":"native","plugin":"dhcp","config":"{}"}"#,
        ),
        (
            Effect::Delegated(Delegated {
                plugin: "bridge".to_owned(),
                native: false,
                config: "{}".to_owned(),
                directory: Some("/var/lib/cni/flannel".to_owned()),
            }),
            r#"{"effect":"delegated","plugin":"bridge","config":"{}","directory":"/var/lib/cni/flannel"}"#,
        ),
        (
            Effect::Delegated(Delegated {
                plugin: "ovs".to_owned(),
                native: true,
                config: "{}".to_owned(),
                directory: None,
            }),
            r#"{"effect":"delegated","plugin":"ovs","native":true,"config":"{}"}"#,
        ),
        (Effect::LoopbackUp(LoopbackUp {}), r#"{"effect":"loopback-up"}"#),
        (
            Effect::Port(Port { name: "tap0".to_owned(), index: 7, bridge: "br9".to_owned(), master: 5, up: false }),
            r#"{"effect":"port","port":"tap0","index":7,"bridge":"br9","master":5,"up":false}"#,
        ),
        (
            Effect::LinkChange(LinkChange {
                index: 2,
                before: LinkSettings { mac: Some(mac), mtu: Some(1500), ..LinkSettings::default() },
                after: LinkSettings { mac: Some(mac), mtu: Some(1400), ..LinkSettings::default() },
                directory: "/run/cni/tuning".to_owned(),
                port: Some(host()),
                lost_addresses: Vec::new(),
                lost_routes: Vec::new(),
            }),
            r#"{"effect":"link-change","index":2,"before":{"mac":"02:00:00:00:00:01","mtu":1500},"after":{"mac":"02:00:00:00:00:01","mtu":1400},"directory":"/run/cni/tuning","port":"veth1a2b3c4d"}"#,
        ),
        (
            Effect::LinkState(LinkState { index: 2, up: true, ..LinkState::default() }),
            r#"{"effect":"link-state","index":2,"up":true}"#,
        ),
        (
            Effect::LinkState(LinkState { index: 2, addresses: addresses(), ..LinkState::default() }),
            r#"{"effect":"link-state","index":2,"addresses":["10.1.0.2/24","fd00::2/64"]}"#,
        ),
        (
            Effect::LinkState(LinkState {
                index: 2,
                setting: Some(SettingBefore {
                    key: "ipv6/disable_ipv6".to_owned(),
                    value: "0".to_owned(),
                    of_lo: false,
                }),
                lost_addresses: vec!["fd00::2/64".parse().unwrap()],
                ..LinkState::default()
            }),
            r#"{"effect":"link-state","index":2,"setting":{"key":"ipv6/disable_ipv6","value":"0"},"lost_addresses":["fd00::2/64"]}"#,
        ),
        (
            Effect::NamespaceSetting(NamespaceSetting {
                key: "core/somaxconn".to_owned(),
                before: "128".to_owned(),
                beside: Vec::new(),
                links: Vec::new(),
            }),
            r#"{"effect":"namespace-setting","key":"core/somaxconn","before":"128"}"#,
        ),
        (
            Effect::SourceRoutes(SourceRoutes {
                index: 2,
                rules: vec![SourceRule { source: "10.1.0.2".parse().unwrap(), table: 100 }],
                ..SourceRoutes::default()
            }),
            r#"{"effect":"source-routes","index":2,"rules":[{"source":"10.1.0.2","table":100}]}"#,
        ),
        (
            Effect::SourceRoutes(SourceRoutes {
                index: 2,
                rules: Vec::new(),
                routes: Vec::new(),
                moved: vec![KeptRoute {
                    route: Route {
                        dst: "10.1.0.0/24".parse().unwrap(),
                        gateway: None,
                        source: "10.1.0.2".parse().ok(),
                        mtu: None,
                        advmss: None,
                        priority: None,
                        table: Some(254),
                        scope: Some(253),
                    },
                    protocol: 2,
                }],
                multipath: Vec::new(),
                hints: Vec::new(),
            }),
            r#"{"effect":"source-routes","index":2,"rules":[],"moved":[{"dst":"10.1.0.0/24","source":"10.1.0.2","table":254,"scope":253,"protocol":2}]}"#,
        ),
        (
            Effect::Vrf(Vrf {
                index: 2,
                name: "blue".to_owned(),
                table: 10,
                made: true,
                addresses: vec!["fd00::2/64".parse().unwrap()],
                moved: Vec::new(),
                multipath: Vec::new(),
            }),
            r#"{"effect":"vrf","index":2,"name":"blue","table":10,"made":true,"addresses":["fd00::2/64"]}"#,
        ),
        (
            Effect::Vrf(Vrf {
                index: 2,
                name: "blue".to_owned(),
                table: 10,
                made: false,
                addresses: Vec::new(),
                moved: Vec::new(),
                multipath: vec![WholeRoute {
                    kept: KeptRoute {
                        route: Route {
                            dst: "0.0.0.0/0".parse().unwrap(),
                            gateway: None,
                            source: None,
                            mtu: None,
                            advmss: None,
                            priority: None,
                            table: Some(254),
                            scope: Some(0),
                        },
                        protocol: 3,
                    },
                    hops: vec![NextHop { link: 2, gateway: "10.1.0.1".parse().ok(), weight: 1, on_link: true }],
                }],
            }),
            r#"{"effect":"vrf","index":2,"name":"blue","table":10,"made":false,"multipath":[{"dst":"0.0.0.0/0","table":254,"scope":0,"protocol":3,"hops":[{"link":2,"gateway":"10.1.0.1","weight":1,"on_link":true}]}]}"#,
        ),
        (
            Effect::Dhcp(Dhcp { socket: "/run/cni/dhcp.sock".to_owned(), addresses: Vec::new() }),
            r#"{"effect":"dhcp","socket":"/run/cni/dhcp.sock"}"#,
        ),
        (
            Effect::Dhcp(Dhcp {
                socket: "/run/cni/dhcp.sock".to_owned(),
                addresses: vec!["10.1.0.2/24".parse().unwrap()],
            }),
            r#"{"effect":"dhcp","socket":"/run/cni/dhcp.sock","addresses":["10.1.0.2/24"]}"#,
        ),
    ] {
        assert_eq!(serde_json::to_string(&effect).unwrap(), text);
        assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), effect);
    }
    let earlier = Effect::Masquerade(Masquerade { backend: Backend::Nftables, variant: None, addresses: Vec::new() });
    let text = r#"{"effect":"masquerade","backend":"nftables"}"#;
    assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), earlier);
}

#[test]
fn guards_of_earlier_versions_are_read_and_theirs_are_readable() {
    let read = |text: &str| serde_json::from_str::<Effect>(text).unwrap();
    let before = Effect::MacGuard(MacGuard { id: None, host: None, mac: None });
    assert_eq!(read(r#"{"effect":"mac-guard"}"#), before);
    assert_eq!(serde_json::to_string(&before).unwrap(), r#"{"effect":"mac-guard"}"#);
    let mac = "02:00:00:00:00:01".parse().ok();
    let now = Effect::MacGuard(MacGuard { id: Some("postern/1".to_owned()), host: Some("veth1".to_owned()), mac });
    let text = serde_json::to_string(&now).unwrap();
    assert_eq!(read(&text), now);
    // The key `host` is reserved for pairs in a record: people and scripts search for it.
    assert!(text.contains(r#""port":"veth1""#) && !text.contains("host"), "{text}");

    /// The forms of earlier versions.
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "effect", rename_all = "kebab-case")]
    enum Earlier {
        MacGuard,
    }
    assert_eq!(serde_json::from_str::<Earlier>(&text).unwrap(), Earlier::MacGuard);
}
