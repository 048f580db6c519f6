//! The parts of `prevResult` that a plugin may use. Other programs may be able to write where the runtime keeps
//! `prevResult`. So a part is accepted (it counts) only if a record shows that an earlier plugin made it, or if policy
//! allows it for a native plugin. All other parts can be passed on unchanged, but a plugin can't use them.

use super::{end_behind_native, holder_in_words};
use crate::context::{Context, Journal, View};
use crate::effect::Veth;
use crate::errors::kernel_error;
use crate::own::{adopt, first_address};
use ipnet::IpNet;
use postern_cni::{CniResult, IpConfig, Verb, validate_interface_name};
use postern_kernel::{Link, Namespace};
use postern_policy::Granted;
use postern_state::{Section, Stage};
use postern_types::OpError;
use std::net::IpAddr;

/// The reason why an address of `prevResult` is wrong, as the end of a sentence.
enum Contradiction {
    /// The container's link does not have the address. An operator may still accept the address.
    Elsewhere(String),
    /// The address belongs to the node or another attachment, or no container can have it.
    OfOthers(String),
}

/// The hint for an address that a policy should not allow.
const ANOTHER_ADDRESS: &str = "the earlier plugin has to give this attachment a free address";
/// The hint if the container lacks the address.
const ON_THE_LINK: &str = "the earlier plugin has to put the address on the link";

/// Takes the addresses and gateways of `prevResult` that count as the attachment's own. The first address of the
/// network always counts as a gateway, because it is the default gateway.
///
/// If only native plugins gave the addresses, CHECK takes all of them, because it only compares.
pub fn take_over(run: &mut Context, previous: &CniResult, granted: Option<&Granted>) -> Result<(), OpError> {
    let mut ips = Vec::new();
    for ip in &previous.ips {
        ips.extend(counting(run, ip, previous, granted)?);
    }
    adopt(&mut run.own.addresses, &CniResult { ips, ..CniResult::default() });
    Ok(())
}

/// Returns an address of `prevResult` if it counts, with its gateway if the gateway counts, too.
fn counting(
    run: &Context,
    ip: &IpConfig,
    previous: &CniResult,
    granted: Option<&Granted>,
) -> Result<Option<IpConfig>, OpError> {
    let is_native = is_behind_native(run.journal);
    let only_compares = run.request.verb == Verb::Check && is_native;
    if only_compares || granted.is_some_and(|granted| granted.may_take_over(&ip.address)) {
        return Ok(Some(ip.clone()));
    }
    let section = given_sections(run.journal).find(|section| section.addresses.contains(&ip.address.to_string()));
    if section.is_none() {
        let may_ask = granted.is_some_and(Granted::may_take_over_in_container);
        let is_possible = run.request.verb == Verb::Add && may_ask;
        if !is_possible || contradiction(run.view(), ip, previous)?.is_some() {
            return Ok(None);
        }
    }
    let has_noted = |gateway: &IpAddr| section.is_some_and(|section| has_noted(section, gateway));
    let gateway = ip.gateway.filter(|gateway| Some(*gateway) == first_address(&ip.address) || has_noted(gateway));
    Ok(Some(IpConfig { gateway, ..ip.clone() }))
}

/// True if this run must read the addresses in the container to decide which addresses of `prevResult` count.
pub fn asks_container(run: &Context, granted: Option<&Granted>, namespace: &Namespace) -> bool {
    let is_stale = || {
        let noted = run.journal.record().and_then(|record| record.header().netns_cookie);
        run.journal.has_foreign_record(run.system) || noted.is_some() && noted != namespace.cookie().ok()
    };
    let may_ask = granted.is_some_and(Granted::may_take_over_in_container);
    run.request.verb == Verb::Add && may_ask && (names_unrecorded_address(run) || is_stale())
}

/// True if `prevResult` has addresses that the record lists for no earlier plugin. Then a native plugin gave them,
/// alone or in a chain with plugins of Postern.
pub fn names_unrecorded_address(run: &Context) -> bool {
    let is_unrecorded =
        |ip: &IpConfig| !given_sections(run.journal).any(|section| section.addresses.contains(&ip.address.to_string()));
    let previous = || run.request.previous();
    is_behind_native(run.journal) || previous().ips.iter().any(is_unrecorded)
}

/// True if no section of the record says that an earlier plugin gave addresses, or if the recorded link is gone.
pub fn is_behind_native(journal: &Journal) -> bool {
    journal.has_lost_link || given_sections(journal).all(|section| section.addresses.is_empty())
}

/// Returns the reason why an address of `prevResult` is wrong: the container lacks the address, or the node or another
/// attachment has it.
fn contradiction(view: View<'_>, ip: &IpConfig, previous: &CniResult) -> Result<Option<Contradiction>, OpError> {
    let address = ip.address.addr();
    let name = match interface_of(view, ip, previous) {
        Ok(name) => name,
        Err(why) => return Ok(Some(Contradiction::Elsewhere(why))),
    };
    if !may_be_own(address) {
        return Ok(Some(Contradiction::OfOthers("no container can have it".to_owned())));
    }
    let Some(container) = view.system.netlink_inside()? else {
        let why = "the container's network namespace could not be read".to_owned();
        return Ok(Some(Contradiction::Elsewhere(why)));
    };
    let link = container.link_by_name(name).map_err(kernel_error)?.filter(|link| link.name == name);
    let addresses = link.map_or(Ok(Vec::new()), |link| container.addresses(link.index)).map_err(kernel_error)?;
    // Only the address is compared, without the prefix. Plugins that route to each container put a single address on
    // the link, and name the network in the result.
    if !addresses.iter().any(|have| have.net.addr() == address && !have.dad_failed) {
        return Ok(Some(Contradiction::Elsewhere(format!("\"{name}\" of the container does not have it"))));
    }
    let host = view.system.host()?;
    let is_local = host.is_local(address).map_err(kernel_error)?;
    if is_local || host.has_address(address).map_err(kernel_error)? {
        return Ok(Some(Contradiction::OfOthers("it is the node's own".to_owned())));
    }
    Ok(holder_in_words(view, address)?.map(Contradiction::OfOthers))
}

/// Returns the container's interface that has an address, as `prevResult` says: the attachment's interface, or another
/// interface that `prevResult` names. The caller asks the kernel whether the interface has the address. A link with an
/// empty `sandbox` is on the host, unless it has the name of the attachment's interface. Any other text of `sandbox`
/// proves nothing, unless it leads to another namespace (`is_elsewhere`).
fn interface_of<'r>(view: View<'r>, ip: &IpConfig, previous: &'r CniResult) -> Result<&'r str, String> {
    let ifname = &view.request.ifname;
    let Some(link) = previous.interface_of(ip) else { return Ok(ifname) };
    match link {
        link if is_elsewhere(view, &link.sandbox) => {
            Err(format!("prevResult has it in another namespace, \"{}\"", link.sandbox))
        }
        link if link.name == *ifname => Ok(ifname),
        link if link.sandbox.is_empty() => Err(format!("prevResult has it on \"{}\" of the node", link.name)),
        link if validate_interface_name(&link.name).is_err() => {
            Err(format!("prevResult has it on \"{}\", and no link can have that name", link.name))
        }
        link => Ok(&link.name),
    }
}

/// True if a `sandbox` of `prevResult` is a path that leads to another namespace than the container's namespace. A text
/// that leads nowhere proves nothing: plugins write container IDs, paths of their own mount namespace, and paths of
/// processes that have ended.
pub(super) fn is_elsewhere(view: View<'_>, sandbox: &str) -> bool {
    let is_path = sandbox != view.request.netns && sandbox.starts_with('/');
    is_path && view.system.namespace().is_ok_and(|own| own.is_not_at(sandbox))
}

/// Returns the reason why an address of `prevResult` does not count, as the end of a sentence, and a hint.
pub fn not_counting(view: View<'_>, address: &IpNet, granted: &Granted) -> (String, String) {
    let previous = view.request.previous();
    let named = previous.ips.iter().find(|ip| ip.address == *address);
    match named {
        Some(ip) if granted.may_take_over_in_container() => match contradiction(view, ip, &previous) {
            Ok(Some(Contradiction::OfOthers(why))) => (format!(": {why}"), ANOTHER_ADDRESS.to_owned()),
            Ok(Some(Contradiction::Elsewhere(why))) => (
                format!(": {why}"),
                format!("{ON_THE_LINK}; {}", granted.addresses_hint("previous.addresses", address)),
            ),
            Ok(None) => (String::new(), granted.addresses_hint("previous.addresses", address)),
            Err(error) => (format!(": {error}"), granted.addresses_hint("previous.addresses", address)),
        },
        Some(ip) if interface_of(view, ip, &previous).is_ok() => {
            (String::new(), granted.object_hint("previous.in-container", "true"))
        }
        _ => (String::new(), granted.addresses_hint("previous.addresses", address)),
    }
}

/// True if a plugin may use this link of the host, which `prevResult` names.
pub fn may_take_over_link(run: &Context, name: &str, granted: &Granted) -> bool {
    let made = |section: &Section| {
        let effects = run.journal.record().into_iter().flat_map(|record| record.effects(Some(&section.name)));
        effects.into_iter().any(|noted| Veth::of(&noted.effect).is_some_and(|pair| pair.host == name))
    };
    let is_end = |end: Link| end.name == name;
    granted.has_object("previous.names", name)
        || given_sections(run.journal).any(made)
        || granted.may_take_over_in_container()
            && end_behind_native(run.view()).is_ok_and(|found| found.is_some_and(is_end))
}

/// Returns the recorded sections of earlier plugins whose results the runtime has.
fn given_sections(journal: &Journal) -> impl Iterator<Item = &Section> {
    let sections = journal.sections().iter();
    sections.filter(|section| section.stage == Stage::Given)
}

/// True if a container can have this address.
fn may_be_own(address: IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
    };
    !(is_special || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// True if the section has this gateway, on a link or in a route.
fn has_noted(section: &Section, gateway: &IpAddr) -> bool {
    let noted = section.path.gateways.iter().chain(&section.path.routes).filter_map(|text| text.split_once(' '));
    let gateway = gateway.to_string();
    noted.into_iter().any(|(_, noted)| noted.split('/').next() == Some(gateway.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::RunParts;
    use crate::others::holder_in_words;
    use crate::own::OwnAddress;
    use crate::request::Request;
    use postern_cni::{Json, NetConf};
    use postern_policy::Policy;
    use std::path::Path;

    const PREVIOUS: &str = r#"{"cniVersion":"1.0.0",
        "interfaces":[{"name":"veth1"},{"name":"veth2"},{"name":"tap0"}],
        "ips":[{"address":"10.9.0.2/24","gateway":"10.9.0.254"},{"address":"10.9.0.3/24","gateway":"10.9.0.254"},
               {"address":"10.8.0.2/24","gateway":"10.8.0.7"},{"address":"10.7.0.2/24","gateway":"10.7.0.1"},
               {"address":"10.6.0.2/24","gateway":"10.6.0.9"}]}"#;

    fn parts(state: &Path, plugin: &str, verb: Verb) -> RunParts {
        let conf = format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"{plugin}","prevResult":{PREVIOUS}}}"#);
        RunParts::of_test(Request::of_test(plugin, verb, &conf), state)
    }

    fn own(net: &str, gateway: Option<&str>) -> OwnAddress {
        OwnAddress { net: net.parse().unwrap(), gateway: gateway.map(|gateway| gateway.parse().unwrap()) }
    }

    #[test]
    fn addresses_that_a_container_can_have() {
        for address in [
            "0.0.0.0",
            "127.0.0.9",
            "224.0.0.9",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::9",
            "fe80::9",
            "::ffff:10.0.0.9",
        ] {
            assert!(!may_be_own(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.0.9", "169.254.172.2", "100.64.0.9", "192.0.2.9", "fd00::9", "2001:db8::9"] {
            assert!(may_be_own(address.parse().unwrap()), "{address}");
        }
    }

    /// No address counts if the container can't be entered, and the error says so.
    #[test]
    fn the_kernel_confirms_what_no_record_has() {
        let directory = std::env::temp_dir().join(format!("postern-behind-{}", std::process::id()));
        let granted = |policy: &str| Policy::parse(policy, "second.toml").unwrap().resolve(&Json::Null, "").unwrap();
        let (closed, open) = (granted(""), granted("[previous]\nin-container = \"true\""));
        let mut alone = parts(&directory, "second", Verb::Add);
        let mut alone = alone.context();
        let previous = alone.request.conf.previous_result().unwrap().unwrap();
        take_over(&mut alone, &previous, Some(&open)).unwrap();
        assert_eq!(alone.own.addresses, Vec::new());
        let address = "10.9.0.2/24".parse().unwrap();
        assert!(not_counting(alone.view(), &address, &open).0.contains("could not be read"));
        assert!(not_counting(alone.view(), &address, &closed).1.contains("previous = { in-container = \"true\" }"));
        assert!(
            not_counting(alone.view(), &"10.0.0.9/8".parse().unwrap(), &closed)
                .1
                .contains("addresses = [\"10.0.0.0/8\"]")
        );
        // The container is asked, unless a record has all addresses.
        let own = Namespace::current().unwrap();
        assert!(asks_container(&alone, Some(&open), &own) && !asks_container(&alone, Some(&closed), &own));
        assert!(!asks_container(&parts(&directory, "second", Verb::Check).context(), Some(&open), &own));
        let _ = std::fs::remove_dir_all(&directory);
        first(&directory, true);
        let mut behind = parts(&directory, "second", Verb::Add);
        let mut behind = behind.context();
        behind.journal.open_record(behind.view()).unwrap();
        assert!(asks_container(&behind, Some(&open), &own), "prevResult has an address that the record lacks");
        let recorded = br#"{"cniVersion":"1.0.0","name":"n","type":"second","prevResult":{"cniVersion":"1.0.0",
            "ips":[{"address":"10.9.0.2/24"}]}}"#;
        let conf = NetConf::parse(Json::parse(recorded, 4096).unwrap()).unwrap().into();
        let recorded = Request { conf, ..behind.request.clone() };
        let behind = behind.with(&recorded);
        assert!(!asks_container(&behind, Some(&open), &own));
        behind.journal.has_lost_link = true;
        assert!(asks_container(&behind, Some(&open), &own));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// Makes the record of a plugin's ADD with a pair and addresses. `is_given` is true if the runtime has the result.
    fn first(state: &Path, is_given: bool) {
        let mut parts = parts(state, "first", Verb::Add);
        let run = parts.context();
        run.journal.open_record(run.view()).unwrap();
        run.journal.begin(run.view()).unwrap();
        run.journal
            .intend(run.view(), Veth { host: "veth1".to_owned(), mac: "02:00:00:00:00:01".parse().unwrap() })
            .unwrap();
        run.own.addresses = vec![
            own("10.9.0.2/24", Some("10.9.0.254")),
            own("10.8.0.2/24", None),
            own("10.7.0.2/24", None),
            own("10.6.0.2/24", Some("10.6.0.9")),
        ];
        run.own.path.gateways = vec!["br9 10.9.0.254/24".to_owned()];
        let result = br#"{"cniVersion":"1.0.0","routes":[{"dst":"0.0.0.0/0","gw":"10.6.0.9"}],"ips":[
            {"address":"10.9.0.2/24"},{"address":"10.8.0.2/24"},{"address":"10.7.0.2/24"},{"address":"10.6.0.2/24"}]}"#;
        run.journal.made(run.view(), run.own, &CniResult::parse_output(result, 4096, "1.0.0").unwrap()).unwrap();
        if is_given {
            run.journal.given();
        }
        run.journal.close_record();
    }

    /// The holder of an address is found even if the index of claims is missing, incomplete or lost, or lacks a later
    /// record.
    #[test]
    fn whoever_has_an_address_is_found() {
        let directory = std::env::temp_dir().join(format!("postern-holder-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        first(&directory, true);
        let mut asking = parts(&directory, "second", Verb::Add);
        asking.request.container_id = "d".to_owned();
        let asking = asking.context();
        let holder = |asking: &Context, text: &str| {
            let words = holder_in_words(asking.view(), text.parse().unwrap()).unwrap()?;
            Some(words.split(' ').nth(1).unwrap().to_owned())
        };
        let cookie = asking.system.host().unwrap().cookie().unwrap();
        let index = directory.join("addresses").join(format!("{cookie:016x}"));
        assert!(!index.exists());
        for spoil in [
            &(|| ()) as &dyn Fn(),
            &|| std::fs::write(&index, "").unwrap(),
            &|| std::fs::remove_dir_all(directory.join("addresses")).unwrap(),
            &|| (),
        ] {
            spoil();
            assert_eq!(holder(&asking, "10.9.0.2"), Some("n/c/eth0".to_owned()));
            assert_eq!(holder(&asking, "10.9.0.3"), None);
        }
        let mut later = parts(&directory, "first", Verb::Add);
        later.request.container_id = "e".to_owned();
        let later = later.context();
        later.journal.open_record(later.view()).unwrap();
        later.journal.begin(later.view()).unwrap();
        let masquerade = crate::effect::Masquerade {
            backend: postern_types::Backend::Nftables,
            variant: None,
            addresses: vec!["fd00::7/64".parse().unwrap()],
        };
        later.journal.intend(later.view(), masquerade).unwrap();
        assert_eq!(holder(&asking, "fd00::7"), Some("n/e/eth0".to_owned()));
        later.own.addresses = vec![own("10.5.0.2/24", None)];
        let result = br#"{"cniVersion":"1.0.0","ips":[{"address":"10.5.0.2/24"}]}"#;
        later.journal.made(later.view(), later.own, &CniResult::parse_output(result, 4096, "1.0.0").unwrap()).unwrap();
        assert_eq!(holder(&asking, "10.5.0.2"), Some("n/e/eth0".to_owned()));
        assert_eq!(holder(&later, "10.5.0.2"), None, "its own");
        later.journal.close_record();
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// The second plugin of the list finds the record of the first plugin.
    #[test]
    fn a_chained_plugin_has_what_the_record_says_of_those_before() {
        let directory = std::env::temp_dir().join(format!("postern-previous-{}", std::process::id()));
        for (is_given, verb, policy, addresses, links) in [
            (
                true,
                Verb::Add,
                "",
                // One address is in no record. A gateway counts if it was put on a link, if a route has it, or if it is
                // the first address of the network.
                vec![
                    own("10.9.0.2/24", Some("10.9.0.254")),
                    own("10.8.0.2/24", None),
                    own("10.7.0.2/24", Some("10.7.0.1")),
                    own("10.6.0.2/24", Some("10.6.0.9")),
                ],
                vec!["veth1"],
            ),
            (
                true,
                Verb::Check,
                "",
                vec![
                    own("10.9.0.2/24", Some("10.9.0.254")),
                    own("10.8.0.2/24", None),
                    own("10.7.0.2/24", Some("10.7.0.1")),
                    own("10.6.0.2/24", Some("10.6.0.9")),
                ],
                vec!["veth1"],
            ),
            // No runtime has this result.
            (false, Verb::Add, "", Vec::new(), Vec::new()),
            (
                false,
                Verb::Add,
                "[previous]\naddresses = [\"10.8.0.0/16\"]\nnames = [\"tap*\"]",
                vec![own("10.8.0.2/24", Some("10.8.0.7"))],
                vec!["tap0"],
            ),
            (
                true,
                Verb::Add,
                "[previous]\naddresses = [\"10.9.0.3/24\"]\nnames = [\"tap0\"]",
                vec![
                    own("10.9.0.2/24", Some("10.9.0.254")),
                    own("10.9.0.3/24", Some("10.9.0.254")),
                    own("10.8.0.2/24", None),
                    own("10.7.0.2/24", Some("10.7.0.1")),
                    own("10.6.0.2/24", Some("10.6.0.9")),
                ],
                vec!["veth1", "tap0"],
            ),
        ] {
            let _ = std::fs::remove_dir_all(&directory);
            first(&directory, is_given);
            let mut second = parts(&directory, "second", verb);
            let mut second = second.context();
            second.journal.open_record(second.view()).unwrap();
            assert!(second.journal.record().is_some(), "no record was found");
            let granted = Policy::parse(policy, "second.toml").unwrap().resolve(&Json::Null, "").unwrap();
            let previous = second.request.conf.previous_result().unwrap().unwrap();
            take_over(&mut second, &previous, Some(&granted)).unwrap();
            assert_eq!(second.own.addresses, addresses, "{is_given} {verb:?} {policy}");
            let names = previous.interfaces.iter().map(|link| link.name.as_str());
            let counting: Vec<&str> = names.filter(|name| may_take_over_link(&second, name, &granted)).collect();
            assert_eq!(counting, links, "{is_given} {verb:?} {policy}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
