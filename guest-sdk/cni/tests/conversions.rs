//! Conversions of random results between all versions, against a second description of what a version can carry.
//! `PROPTEST_CASES` sets another number of cases for each property; 256 are the default.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test that calls them")]

mod carried;

use carried::carried;
use ipnet::IpNet;
use postern_cni::{
    CniResult, CniRoute, Dns, Error, Interface, IpConfig, Json, NumericVersion, Verb, Version, VersionInfo,
    check_version, version_output,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;

const LIMIT: usize = 1 << 20;

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

/// Addresses, without IPv4-mapped IPv6 addresses, which are read as IPv4 addresses.
fn address() -> impl Strategy<Value = IpAddr> {
    let v6 = any::<u128>().prop_filter("an IPv4 address", |bits| bits >> 32 != 0xffff);
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        v6.prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        Just(IpAddr::from([0; 4])),
        Just(IpAddr::from([0; 16])),
    ]
}

fn network() -> impl Strategy<Value = IpNet> {
    (address(), 0..=128_u8).prop_map(|(address, length)| {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        IpNet::new(address, length.min(longest)).unwrap()
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9:/.]{1,20}", any::<String>()]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), 1..9000_i64, any::<i64>()]
}

prop_compose! {
    fn interface()(
        name in text(), mac in text(), mtu in number(), sandbox in text(), socket_path in text(), pci_id in text(),
    ) -> Interface {
        Interface { name, mac, mtu, sandbox, socket_path, pci_id }
    }
}

prop_compose! {
    fn ip()(interface in prop::option::of(any::<i64>()), address in network(), gateway in prop::option::of(address()))
        -> IpConfig {
        IpConfig { interface, address, gateway }
    }
}

prop_compose! {
    fn route()(
        dst in network(), gw in prop::option::of(address()), mtu in number(), advmss in number(), priority in number(),
        table in prop::option::of(number()), scope in prop::option::of(number()),
    ) -> CniRoute {
        CniRoute { dst: Some(dst), gw, mtu, advmss, priority, table, scope }
    }
}

prop_compose! {
    fn result()(
        interfaces in prop::collection::vec(interface(), 0..4),
        ips in prop::collection::vec(ip(), 0..5),
        routes in prop::collection::vec(route(), 0..5),
        nameservers in prop::collection::vec(text(), 0..3),
        domain in text(),
        search in prop::collection::vec(text(), 0..3),
        options in prop::collection::vec(text(), 0..3),
    ) -> CniResult {
        CniResult { interfaces, ips, routes, dns: Dns { nameservers, domain, search, options } }
    }
}

/// Returns the step of a version: each later step can carry all data of the earlier steps.
fn step(version: Version) -> u8 {
    match version {
        Version::V0_1_0 | Version::V0_2_0 => 0,
        Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0 => 1,
        Version::V1_0_0 | Version::V1_1_0 => 2,
    }
}

/// Prints a result in a version and reads it again, as a runtime between two plugins does. A version that can't carry
/// the result is refused with the native plugins' text.
fn through(result: &CniResult, version: Version) -> Option<CniResult> {
    match result.to_json(version) {
        Ok(text) => {
            let read = CniResult::parse_output(text.as_bytes(), LIMIT, "").unwrap();
            // As `prevResult` of a configuration of this version, the result is the same.
            let tree = Json::parse(text.as_bytes(), LIMIT).unwrap();
            assert_eq!(CniResult::parse_previous(tree, version.as_str()).unwrap(), read);
            Some(read)
        }
        Err(error) => {
            assert_eq!((error.code, error.msg.as_str()), (999, "cannot convert: no valid IP addresses"));
            assert!(step(version) == 0 && result.ips.is_empty());
            None
        }
    }
}

/// Returns the keys that the object at `place` may have in a step.
fn allowed(step: u8, place: &str) -> &'static [&'static str] {
    match (step, place) {
        (0, "") => &["cniVersion", "ip4", "ip6", "dns"],
        (0, "ip4" | "ip6") => &["ip", "gateway", "routes"],
        (0, "ip4.routes" | "ip6.routes") => &["dst", "gw"],
        (1 | 2, "") => &["cniVersion", "interfaces", "ips", "routes", "dns"],
        (1, "interfaces") => &["name", "mac", "sandbox"],
        (2, "interfaces") => &["name", "mac", "mtu", "sandbox", "socketPath", "pciID"],
        (1, "ips") => &["version", "interface", "address", "gateway"],
        (2, "ips") => &["interface", "address", "gateway"],
        (1 | 2, "routes") => &["dst", "gw", "mtu", "advmss", "priority", "table", "scope"],
        (_, "dns") => &["nameservers", "domain", "search", "options"],
        _ => &[],
    }
}

/// Checks the keys of a printed result, and counts its values. Versions and labels of IP families are no values.
fn look(json: &Json, step: u8, place: &str, values: &mut BTreeMap<String, usize>) {
    match json {
        Json::Object(members) => {
            for (key, value) in members {
                assert!(allowed(step, place).contains(&key.as_str()), "{place}.{key} in step {step}");
                assert_eq!(members.iter().filter(|(other, _)| other == key).count(), 1, "{place}.{key} twice");
                if key == "cniVersion" || (key == "version" && place == "ips") {
                    continue;
                }
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                look(value, step, &place, values);
            }
        }
        Json::Array(items) => {
            assert!(!items.is_empty(), "{place} is an empty list");
            items.iter().for_each(|item| look(item, step, place, values));
        }
        value => *values.entry(format!("{value:?}")).or_default() += 1,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_version_carries_exactly_what_it_can(result in result(), version in version()) {
        prop_assert_eq!(through(&result, version), carried(&result, version));
    }

    #[test]
    fn a_second_conversion_to_a_version_changes_nothing(result in result(), version in version()) {
        let Some(once) = through(&result, version) else { return Ok(()) };
        prop_assert_eq!(through(&once, version), Some(once.clone()));
        prop_assert_eq!(once.to_json(version).unwrap(), result.to_json(version).unwrap());
    }

    #[test]
    fn conversions_compose(result in result(), way in prop::collection::vec(version(), 1..5)) {
        let (mut came, mut expected) = (Some(result.clone()), Some(result.clone()));
        for version in &way {
            came = came.and_then(|result| through(&result, *version));
            expected = expected.and_then(|result| carried(&result, *version));
        }
        prop_assert_eq!(&came, &expected);
        // Only the data that some version on the way can't carry is lost: the narrowest version decides.
        let narrowest = way.iter().copied().min_by_key(|version| step(*version)).unwrap();
        prop_assert_eq!(came, carried(&result, narrowest));
    }

    #[test]
    fn nothing_is_invented(result in result(), version in version()) {
        let Ok(tree) = result.to_tree(version) else { return Ok(()) };
        let (mut all, mut some) = (BTreeMap::new(), BTreeMap::new());
        look(&result.to_tree(Version::LATEST).unwrap(), 2, "", &mut all);
        look(&tree, step(version), "", &mut some);
        for (value, count) in some {
            prop_assert!(all.get(&value).is_some_and(|given| *given >= count), "{} {} times", value, count);
        }
        let Json::Object(members) = &tree else { panic!("no object") };
        prop_assert!(members.contains(&("cniVersion".to_owned(), Json::from(version.as_str()))));
    }

    #[test]
    fn a_family_is_named_after_its_address(
        result in result(),
        version in prop::sample::select(vec![Version::V0_3_0, Version::V0_3_1, Version::V0_4_0]),
    ) {
        let tree = result.to_tree(version).unwrap();
        let ips = tree.fields("").unwrap().objects("ips").unwrap().unwrap_or_default();
        prop_assert_eq!(ips.len(), result.ips.len());
        for (printed, ip) in ips.iter().zip(&result.ips) {
            let label = if ip.address.addr().is_ipv4() { "4" } else { "6" };
            prop_assert_eq!(printed.str("version").unwrap(), Some(label));
        }
    }

    #[test]
    fn a_route_without_destination_is_no_panic(
        mut result in result(),
        bare in route(),
        at in any::<prop::sample::Index>(),
        version in version(),
    ) {
        let at = at.index(result.routes.len() + 1);
        result.routes.insert(at, CniRoute { dst: None, ..bare });
        // The route is printed as native plugins print it. This output can't be read.
        let Ok(text) = result.to_json(version) else { return Ok(()) };
        // The oldest versions print a route only beside an address of the same family.
        if version >= Version::V0_3_0 {
            prop_assert!(text.contains("\\u003cnil\\u003e"), "{}", text);
        }
        if let Err(error) = CniResult::parse_output(text.as_bytes(), LIMIT, "") {
            prop_assert_eq!((error.code, error.msg.as_str()), (999, "invalid CIDR address: <nil>"));
        }
    }

    #[test]
    fn a_previous_result_of_another_shape_is_refused(result in result(), of in version(), config in version()) {
        let Ok(tree) = result.to_tree(of) else { return Ok(()) };
        let read = CniResult::parse_previous(tree, config.as_str());
        if step(of) == step(config) {
            prop_assert_eq!(read.unwrap(), carried(&result, of).unwrap());
        } else {
            let error = read.unwrap_err();
            let named = error.msg.contains(&format!("unmarshalled CNIVersion is \"{of}\""));
            prop_assert!(error.code == 999 && named, "{}", error);
        }
    }

    #[test]
    fn keys_of_other_versions_are_no_keys(result in result(), of in version(), foreign in version()) {
        // An object with members of two shapes: only the members of its version are read.
        let (Ok(Json::Object(mut own)), Ok(Json::Object(other))) = (result.to_tree(of), result.to_tree(foreign)) else {
            return Ok(());
        };
        let alone = CniResult::parse(&Json::Object(own.clone()), "").unwrap();
        own.extend(other.into_iter().filter(|(key, _)| !allowed(step(of), "").contains(&key.as_str())));
        prop_assert_eq!(CniResult::parse(&Json::Object(own), "").unwrap(), alone);
    }

    #[test]
    fn a_version_that_is_none_has_no_results(result in result(), text in "[0-9v.]{1,8}", config in version()) {
        prop_assume!(Version::parse(&text).is_none());
        let Json::Object(mut members) = result.to_tree(Version::LATEST).unwrap() else { panic!("no object") };
        members.iter_mut().for_each(|(key, value)| if key == "cniVersion" { *value = Json::from(text.as_str()); });
        let error = CniResult::parse(&Json::Object(members), config.as_str()).unwrap_err();
        prop_assert_eq!((error.code, error.msg), (999, format!("unsupported CNI result version \"{text}\"")));
    }

    #[test]
    fn errors_are_read_as_they_were_printed(code in any::<u32>(), msg in any::<String>(), details in any::<String>()) {
        let error = Error::new(code, msg).with_details(details);
        let json = Json::parse(error.to_json().as_bytes(), LIMIT).unwrap();
        prop_assert_eq!(Error::parse(&json).unwrap(), error);
    }

    #[test]
    fn versions_are_read_as_they_were_printed(supported in prop::sample::subsequence(Version::ALL.to_vec(), 1..=7)) {
        let json = Json::parse(version_output(&supported).as_bytes(), LIMIT).unwrap();
        let info = VersionInfo::parse(&json).unwrap();
        prop_assert_eq!(info.cni_version.as_str(), Version::LATEST.as_str());
        let texts: Vec<&str> = supported.iter().map(|version| version.as_str()).collect();
        prop_assert_eq!(info.supported, texts);
    }

    #[test]
    fn a_verb_is_served_in_the_plugins_versions_that_have_it(
        // The specifications' own table: the first version that has the verb.
        (verb, since) in prop::sample::select(vec![
            (Verb::Add, Version::V0_1_0),
            (Verb::Del, Version::V0_1_0),
            (Verb::Check, Version::V0_4_0),
            (Verb::Gc, Version::V1_1_0),
            (Verb::Status, Version::V1_1_0),
        ]),
        asked in prop_oneof![version().prop_map(|version| version.to_string()), "[0-9]?[0-9.]{0,6}", any::<String>()],
        supported in prop::sample::subsequence(Version::ALL.to_vec(), 0..=7),
    ) {
        let expected = Version::parse(&asked).filter(|version| supported.contains(version) && since <= *version);
        match check_version(verb, &asked, &supported) {
            Ok(version) => prop_assert_eq!(Some(version), expected),
            Err(error) => {
                prop_assert_eq!(expected, None);
                // Code 6 only if the verb came after CNI 0.1.0, and the version is no number.
                let is_number = NumericVersion::parse(&asked).is_ok();
                let is_new = since > Version::V0_1_0;
                prop_assert_eq!(error.code, if is_new && !is_number { 6 } else { 1 });
                prop_assert!(!error.msg.is_empty());
            }
        }
    }
}
