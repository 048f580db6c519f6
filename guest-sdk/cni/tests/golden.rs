//! One result, printed byte by byte as native plugins print it in every version.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use postern_cni::{CniResult, CniRoute, Dns, Interface, IpConfig, Version};

fn full() -> CniResult {
    CniResult {
        interfaces: vec![
            Interface { name: "cni0".into(), mac: "00:11:22:33:44:55".into(), ..Interface::default() },
            Interface {
                name: "eth0".into(),
                mac: "00:11:22:33:44:66".into(),
                mtu: 1400,
                sandbox: "/run/netns/<blue>&".into(),
                socket_path: "/run/s".into(),
                pci_id: "0000:00:1f.6".into(),
            },
        ],
        ips: vec![
            IpConfig {
                interface: Some(1),
                address: "10.1.0.5/16".parse().unwrap(),
                gateway: Some("10.1.0.1".parse().unwrap()),
            },
            IpConfig { interface: Some(0), address: "2001:db8::5/64".parse().unwrap(), gateway: None },
            IpConfig { interface: None, address: "10.2.0.5/16".parse().unwrap(), gateway: None },
        ],
        routes: vec![
            CniRoute {
                dst: Some("10.1.2.3/8".parse().unwrap()),
                gw: Some("10.1.0.1".parse().unwrap()),
                ..CniRoute::default()
            },
            CniRoute {
                dst: Some("::/0".parse().unwrap()),
                gw: None,
                mtu: 1300,
                advmss: 1200,
                priority: 5,
                table: Some(0),
                scope: Some(0),
            },
        ],
        dns: Dns {
            nameservers: vec!["10.1.0.1".into()],
            domain: "d".into(),
            search: vec!["s".into()],
            options: vec!["o".into()],
        },
    }
}

const PAIR: &str = r#"{
    "cniVersion": "VERSION",
    "ip4": {
        "ip": "10.1.0.5/16",
        "gateway": "10.1.0.1",
        "routes": [
            {
                "dst": "10.1.2.3/8",
                "gw": "10.1.0.1"
            }
        ]
    },
    "ip6": {
        "ip": "2001:db8::5/64",
        "routes": [
            {
                "dst": "::/0"
            }
        ]
    },
    "dns": {
        "nameservers": [
            "10.1.0.1"
        ],
        "domain": "d",
        "search": [
            "s"
        ],
        "options": [
            "o"
        ]
    }
}"#;

const LABELLED: &str = r#"{
    "cniVersion": "VERSION",
    "interfaces": [
        {
            "name": "cni0",
            "mac": "00:11:22:33:44:55"
        },
        {
            "name": "eth0",
            "mac": "00:11:22:33:44:66",
            "sandbox": "/run/netns/\u003cblue\u003e\u0026"
        }
    ],
    "ips": [
        {
            "version": "4",
            "interface": 1,
            "address": "10.1.0.5/16",
            "gateway": "10.1.0.1"
        },
        {
            "version": "6",
            "interface": 0,
            "address": "2001:db8::5/64"
        },
        {
            "version": "4",
            "address": "10.2.0.5/16"
        }
    ],
    "routes": [
        {
            "dst": "10.1.2.3/8",
            "gw": "10.1.0.1"
        },
        {
            "dst": "::/0",
            "mtu": 1300,
            "advmss": 1200,
            "priority": 5,
            "table": 0,
            "scope": 0
        }
    ],
    "dns": {
        "nameservers": [
            "10.1.0.1"
        ],
        "domain": "d",
        "search": [
            "s"
        ],
        "options": [
            "o"
        ]
    }
}"#;

const PLAIN: &str = r#"{
    "cniVersion": "VERSION",
    "dns": {
        "domain": "d",
        "nameservers": [
            "10.1.0.1"
        ],
        "options": [
            "o"
        ],
        "search": [
            "s"
        ]
    },
    "interfaces": [
        {
            "mac": "00:11:22:33:44:55",
            "name": "cni0"
        },
        {
            "mac": "00:11:22:33:44:66",
            "mtu": 1400,
            "name": "eth0",
            "pciID": "0000:00:1f.6",
            "sandbox": "/run/netns/\u003cblue\u003e\u0026",
            "socketPath": "/run/s"
        }
    ],
    "ips": [
        {
            "address": "10.1.0.5/16",
            "gateway": "10.1.0.1",
            "interface": 1
        },
        {
            "address": "2001:db8::5/64",
            "interface": 0
        },
        {
            "address": "10.2.0.5/16"
        }
    ],
    "routes": [
        {
            "dst": "10.1.2.3/8",
            "gw": "10.1.0.1"
        },
        {
            "advmss": 1200,
            "dst": "::/0",
            "mtu": 1300,
            "priority": 5,
            "scope": 0,
            "table": 0
        }
    ]
}"#;

#[test]
fn a_full_result() {
    for version in Version::ALL {
        let shape = match version {
            Version::V0_1_0 | Version::V0_2_0 => PAIR,
            Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0 => LABELLED,
            Version::V1_0_0 | Version::V1_1_0 => PLAIN,
        };
        let expected = shape.replace("VERSION", version.as_str());
        assert_eq!(full().to_json(version).unwrap(), expected, "{version}");
    }
}

#[test]
fn a_full_result_is_read_back() {
    for version in [Version::V1_0_0, Version::V1_1_0] {
        let printed = full().to_json(version).unwrap();
        assert_eq!(CniResult::parse_output(printed.as_bytes(), 10_000, "").unwrap(), full());
    }
    for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
        let mut expected = full();
        for interface in &mut expected.interfaces {
            *interface = Interface { mtu: 0, socket_path: String::new(), pci_id: String::new(), ..interface.clone() };
        }
        let printed = full().to_json(version).unwrap();
        assert_eq!(CniResult::parse_output(printed.as_bytes(), 10_000, "").unwrap(), expected);
    }
    for version in [Version::V0_1_0, Version::V0_2_0] {
        let mut expected = full();
        expected.interfaces.clear();
        expected.ips.pop();
        expected.ips.iter_mut().for_each(|ip| ip.interface = None);
        expected.routes[1] = CniRoute { dst: expected.routes[1].dst, ..CniRoute::default() };
        let printed = full().to_json(version).unwrap();
        assert_eq!(CniResult::parse_output(printed.as_bytes(), 10_000, "1.1.0").unwrap(), expected);
    }
}

#[test]
fn an_empty_result() {
    for version in Version::ALL {
        let printed = CniResult::default().to_json(version);
        match version {
            Version::V0_1_0 | Version::V0_2_0 => {
                let error = printed.unwrap_err();
                assert_eq!((error.code, error.msg.as_str()), (999, "cannot convert: no valid IP addresses"));
            }
            Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0 => {
                let expected = format!("{{\n    \"cniVersion\": \"{version}\",\n    \"dns\": {{}}\n}}");
                assert_eq!(printed.unwrap(), expected);
            }
            Version::V1_0_0 | Version::V1_1_0 => {
                assert_eq!(printed.unwrap(), format!("{{\n    \"cniVersion\": \"{version}\"\n}}"));
            }
        }
    }
}

#[test]
fn a_family_without_address_loses_its_routes() {
    let mut result = full();
    result.ips.retain(|ip| ip.address.to_string().contains(':'));
    result.routes.push(CniRoute::default());
    result.dns = Dns::default();
    assert_eq!(
        result.to_json(Version::V0_2_0).unwrap(),
        r#"{
    "cniVersion": "0.2.0",
    "ip6": {
        "ip": "2001:db8::5/64",
        "routes": [
            {
                "dst": "::/0"
            },
            {
                "dst": "\u003cnil\u003e"
            }
        ]
    },
    "dns": {}
}"#
    );
}

#[test]
fn a_nameless_interface_keeps_its_name() {
    let result = CniResult { interfaces: vec![Interface::default()], ..CniResult::default() };
    let expected = "{\n    \"cniVersion\": \"1.1.0\",\n    \"interfaces\": [\n        {\n            \"name\": \"\"\n        }\n    ]\n}";
    assert_eq!(result.to_json(Version::LATEST).unwrap(), expected);
}
