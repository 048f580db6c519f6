//! The parts of `prevResult` that count. The runtime keeps `prevResult` in a place that other programs may write to. A
//! record must show that an earlier plugin made the part, or policy must allow it of an earlier native plugin. All
//! other parts can be passed on unchanged, but nothing can be done with them.

use super::{Session, adopt, first_address};
use crate::effect::Veth;
use postern_cni::{CniResult, IpConfig, Verb};
use postern_policy::Granted;
use postern_state::{Section, Stage};
use std::net::IpAddr;

impl Session {
    /// Takes the addresses of `prevResult` that count as the attachment's own. The same rule holds for gateways. The
    /// first address of the network is accepted without it: it is the gateway if none is given.
    ///
    /// A CHECK without a record compares what a native plugin made, and can do nothing else with it.
    pub fn adopt(&mut self, previous: &CniResult, granted: Option<&Granted>) {
        let only_compares = self.request.verb == Verb::Check && self.record.is_none();
        let counts = |ip: &IpConfig| {
            if only_compares || granted.is_some_and(|granted| granted.may_take_over(&ip.address)) {
                return Some(ip.clone());
            }
            let mut sections = self.given_sections();
            let section = sections.find(|section| section.addresses.contains(&ip.address.to_string()))?;
            let gateway = ip
                .gateway
                .filter(|gateway| Some(*gateway) == first_address(&ip.address) || has_noted(section, gateway));
            Some(IpConfig { gateway, ..ip.clone() })
        };
        let ips = previous.ips.iter().filter_map(counts).collect();
        adopt(&mut self.own, &CniResult { ips, ..CniResult::default() });
    }

    /// True if this link of the host, which `prevResult` names, counts.
    pub fn may_take_over_link(&self, name: &str, granted: &Granted) -> bool {
        let made = |section: &Section| {
            let effects = self.record.iter().flat_map(|record| record.effects(Some(&section.name)));
            effects.into_iter().any(|noted| Veth::of(&noted.effect).is_some_and(|pair| pair.host == name))
        };
        granted.may_take_over_link(name) || self.given_sections().any(made)
    }

    /// Returns the sections of earlier plugins whose results the runtime has, by the record.
    fn given_sections(&self) -> impl Iterator<Item = &Section> {
        let sections = self.record.iter().flat_map(|record| record.sections());
        sections.filter(|section| section.stage == Stage::Given)
    }
}

/// True if the record has this gateway for a section, on a link or in a route.
fn has_noted(section: &Section, gateway: &IpAddr) -> bool {
    let noted = section.path.gateways.iter().chain(&section.path.routes).filter_map(|text| text.split_once(' '));
    let gateway = gateway.to_string();
    noted.into_iter().any(|(_, noted)| noted.split('/').next() == Some(gateway.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Places;
    use crate::session::{OwnAddress, Request};
    use postern_cni::{Json, NetConf, Version};
    use postern_policy::Policy;
    use std::path::Path;
    use std::time::{Duration, Instant};

    const PREVIOUS: &str = r#"{"cniVersion":"1.0.0",
        "interfaces":[{"name":"veth1"},{"name":"veth2"},{"name":"tap0"}],
        "ips":[{"address":"10.9.0.2/24","gateway":"10.9.0.254"},{"address":"10.9.0.3/24","gateway":"10.9.0.254"},
               {"address":"10.8.0.2/24","gateway":"10.8.0.7"},{"address":"10.7.0.2/24","gateway":"10.7.0.1"},
               {"address":"10.6.0.2/24","gateway":"10.6.0.9"}]}"#;

    fn session(state: &Path, plugin: &str, verb: Verb) -> Session {
        let conf = format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"{plugin}","prevResult":{PREVIOUS}}}"#);
        let request = Request {
            plugin: plugin.to_owned(),
            verb,
            container_id: "c".to_owned(),
            netns: "/run/netns/c".to_owned(),
            ifname: "eth0".to_owned(),
            path: String::new(),
            env: Vec::new(),
            stdin: String::new(),
            conf: NetConf::parse(Json::parse(conf.as_bytes(), 4096).unwrap()).unwrap(),
            version: Version::LATEST,
        };
        let nowhere = state.join("none");
        let places = Places { state: state.to_owned(), library: nowhere.clone(), logs: nowhere };
        Session::new(request, Instant::now() + Duration::from_secs(9), places)
    }

    fn own(net: &str, gateway: Option<&str>) -> OwnAddress {
        OwnAddress { net: net.parse().unwrap(), gateway: gateway.map(|gateway| gateway.parse().unwrap()) }
    }

    /// Makes the record of a plugin's ADD with a pair and addresses. `is_given` is true if the runtime has its result.
    fn first(state: &Path, is_given: bool) {
        let mut session = session(state, "first", Verb::Add);
        session.open_record().unwrap();
        session.begin().unwrap();
        session.intend(Veth { host: "veth1".to_owned(), mac: "02:00:00:00:00:01".parse().unwrap() }).unwrap();
        session.own = vec![
            own("10.9.0.2/24", Some("10.9.0.254")),
            own("10.8.0.2/24", None),
            own("10.7.0.2/24", None),
            own("10.6.0.2/24", Some("10.6.0.9")),
        ];
        session.path.gateways = vec!["br9 10.9.0.254/24".to_owned()];
        let result = br#"{"cniVersion":"1.0.0","routes":[{"dst":"0.0.0.0/0","gw":"10.6.0.9"}],"ips":[
            {"address":"10.9.0.2/24"},{"address":"10.8.0.2/24"},{"address":"10.7.0.2/24"},{"address":"10.6.0.2/24"}]}"#;
        session.made(&CniResult::parse_output(result, 4096, "1.0.0").unwrap()).unwrap();
        if is_given {
            session.given();
        }
        session.close_record();
    }

    /// The second plugin of the list finds the first one's record.
    #[test]
    fn a_chained_plugin_has_what_the_record_says_of_those_before() {
        let directory = std::env::temp_dir().join(format!("postern-previous-{}", std::process::id()));
        for (is_given, verb, policy, addresses, links) in [
            (
                true,
                Verb::Add,
                "",
                // One address belongs to no record. A gateway counts if it was put on a link, if a route has it, or as
                // the first of the network.
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
            // A result that no runtime has.
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
            let mut second = session(&directory, "second", verb);
            second.open_record().unwrap();
            assert!(second.record().is_some(), "no record was found");
            let granted = Policy::parse(policy, "second.toml").unwrap().resolve(&Json::Null, "").unwrap();
            let previous = second.request.conf.previous_result().unwrap().unwrap();
            second.adopt(&previous, Some(&granted));
            assert_eq!(second.own, addresses, "{is_given} {verb:?} {policy}");
            let names = previous.interfaces.iter().map(|link| link.name.as_str());
            let counting: Vec<&str> = names.filter(|name| second.may_take_over_link(name, &granted)).collect();
            assert_eq!(counting, links, "{is_given} {verb:?} {policy}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
