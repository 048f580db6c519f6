//! Effective authority: imports and grants, in plain sentences.

use crate::capability::{groups, page};
use crate::imports::Imports;

use crate::words::{GATEWAY, Objects};
use postern_types::{Capability, Lasting, Row};
use serde::{Serialize, Serializer};

/// The name of the table that limits a plugin's result, whatever the plugin imports. The name stands in place of a
/// capability's name.
pub const RESULT: &str = "result";

/// The name of the table that limits which parts of an earlier native plugin's result count as the attachment's own.
pub const PREVIOUS: &str = "previous";

/// The meaning of `in-container` in the table `previous`.
const IN_CONTAINER: [&str; 2] = [
    "use as the attachment's own, after a native plugin: objects in the container that `prevResult` names, if neither \
     the node nor another attachment has them",
    "take for the attachment's own on the host, after a native plugin: the other end of the container's link, if \
     `prevResult` names it",
];

/// One table of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// WIT interface.
    pub capability: String,
    /// `shipped` or `operator`: the origin of the policy file.
    pub from: String,
    /// The policy file with the table.
    pub file: String,
    /// Keys and values, as written or as a network configuration fills them in.
    #[serde(serialize_with = "as_map")]
    pub objects: Vec<(String, Vec<String>)>,
}

/// Writes pairs as an object, in their order.
fn as_map<S: Serializer>(objects: &[(String, Vec<String>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(objects.iter().map(|(key, values)| (key, values)))
}

/// One ability of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ability {
    /// WIT interface.
    pub capability: String,
    /// Imported functions that the ability needs.
    pub functions: Vec<String>,
    /// The text after "can".
    pub sentence: String,
    /// True if the ability leads out of the sandbox.
    pub host_privileges: bool,
}

/// Returns the abilities of a plugin with these imports: under these grants, or under any policy.
pub fn abilities(imports: &Imports, grants: Option<&[Grant]>) -> Vec<Ability> {
    let mut abilities = Vec::new();
    for (capability, group) in groups() {
        let Some(imported) = imports.authority.get(capability.name()) else { continue };
        let has = |name: &&&str| imported.contains(**name);
        let used: Vec<&str> = group.functions.iter().filter(has).copied().collect();
        if used.is_empty() || !group.with.iter().all(|name| imported.contains(*name)) {
            continue;
        }
        let objects = match grants {
            None => Objects::Any,
            Some(grants) => match grants.iter().find(|grant| grant.capability == capability.name()) {
                Some(grant) => Objects::Of(&grant.objects),
                None => continue,
            },
        };
        // A grant can be for some networks only.
        let when = match (&objects, objects.has("when")) {
            (Objects::Of(_), true) => match objects.condition("when") {
                Some(when) => when,
                None => continue,
            },
            _ => String::new(),
        };
        if let Some(sentence) = (group.text)(&objects).map(|sentence| sentence + &when) {
            abilities.push(Ability {
                capability: capability.name().to_owned(),
                functions: used.into_iter().chain(group.with.iter().copied()).map(str::to_owned).collect(),
                sentence,
                host_privileges: group.host_privileges,
            });
        }
    }
    for result in grants.into_iter().flatten().filter(|grant| grant.capability == RESULT) {
        let objects = Objects::Of(&result.objects);
        for (key, noun) in [("addresses", "address"), ("gateways", GATEWAY)] {
            if !objects.none(key) {
                abilities.push(Ability {
                    capability: RESULT.to_owned(),
                    functions: Vec::new(),
                    sentence: format!("as an IPAM plugin, hand out without a lease: {}", objects.words(key, noun)),
                    host_privileges: false,
                });
            }
        }
    }
    for previous in grants.into_iter().flatten().filter(|grant| grant.capability == PREVIOUS) {
        let objects = Objects::Of(&previous.objects);
        for (key, noun, before) in [
            ("addresses", "address", "use as the attachment's own, from an earlier native plugin"),
            ("names", "link", "take for the attachment's own on the host, from an earlier native plugin"),
        ] {
            if !objects.none(key) {
                abilities.push(Ability {
                    capability: PREVIOUS.to_owned(),
                    functions: Vec::new(),
                    sentence: format!("{before}: {}", objects.words(key, noun)),
                    host_privileges: false,
                });
            }
        }
        if let Some(when) = objects.condition("in-container") {
            for sentence in IN_CONTAINER {
                abilities.push(Ability {
                    capability: PREVIOUS.to_owned(),
                    functions: Vec::new(),
                    sentence: format!("{sentence}{when}"),
                    host_privileges: false,
                });
            }
        }
    }
    abilities
}

/// Returns the acts that a plugin can't do, because it lacks the import or the grant.
pub fn inabilities(imports: &Imports, grants: &[Grant]) -> Vec<&'static str> {
    let able = |capability: &str| {
        imports.authority.contains_key(capability) && grants.iter().any(|grant| grant.capability == capability)
    };
    Capability::ALL
        .iter()
        .filter(|capability| !able(capability.name()))
        .map(|capability| page(*capability).cannot)
        .collect()
}

/// Returns the statements that hold for every plugin with these imports, under any policy.
pub fn always(imports: &Imports) -> Vec<&'static str> {
    if imports.authority.is_empty() {
        return vec!["the plugin can only compute and print an answer"];
    }
    let mut always = vec!["only for the attachment of its call, and until the call's deadline"];
    let imported: Vec<Capability> = Capability::ALL.iter().copied().filter(|of| imports.has(*of)).collect();
    for holds in imported.iter().filter_map(|capability| page(*capability).always) {
        if !always.contains(&holds) {
            always.push(holds);
        }
    }
    let gives_up = |row: &Row| match row.lasting {
        Lasting::Removal | Lasting::Release => true,
        Lasting::Nothing
        | Lasting::Attachment
        | Lasting::Link
        | Lasting::Namespace
        | Lasting::Part
        | Lasting::Node
        | Lasting::Collection => false,
    };
    if imported.iter().any(|capability| capability.rows().iter().any(gives_up)) {
        always
            .push("on DEL the plugin may remove its attachment's own objects, granted or not: no policy blocks a DEL");
    }
    always
}

/// Returns the grants that no import uses.
pub fn unused(imports: &Imports, grants: &[Grant]) -> Vec<String> {
    let granted = grants.iter().map(|grant| grant.capability.clone());
    granted
        .filter(|capability| {
            ![RESULT, PREVIOUS].contains(&capability.as_str()) && !imports.authority.contains_key(capability)
        })
        .collect()
}

/// Returns the imports without a grant.
pub fn ungranted(imports: &Imports, grants: &[Grant]) -> Vec<String> {
    let is_granted = |capability: &&String| grants.iter().any(|grant| grant.capability == **capability);
    imports.authority.keys().filter(|capability| !is_granted(capability)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(list: &[&str]) -> Imports {
        let full = |name: &&str| {
            let (interface, function) = name.split_once('#').unwrap();
            format!("postern:cni/{interface}@0.1.0#{function}")
        };
        Imports::parse(&list.iter().map(full).collect::<Vec<_>>())
    }

    fn grant(capability: &str, objects: &[(&str, &[&str])]) -> Grant {
        let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        Grant {
            capability: capability.to_owned(),
            from: "shipped".to_owned(),
            file: "x.toml".to_owned(),
            objects: objects.iter().map(|(key, values)| ((*key).to_owned(), owned(values))).collect(),
        }
    }

    fn sentences(list: &[&str], grants: Option<&[Grant]>) -> Vec<String> {
        abilities(&imports(list), grants).into_iter().map(|ability| ability.sentence).collect()
    }

    #[test]
    fn finding_a_bridge_is_looking_at_it_and_no_more() {
        let grants = [grant("bridge", &[("names", &["${config.bridge | cni0}"]), ("promisc", &["true"])])];
        assert_eq!(
            sentences(&["bridge#find"], Some(&grants)),
            ["look at the bridge that the network's `bridge` names (else `cni0`)"]
        );
        assert_eq!(sentences(&["bridge#find"], None), ["look at any bridge that a policy names"]);
        assert_eq!(sentences(&["bridge#find"], Some(&[])), Vec::<String>::new());
    }

    #[test]
    fn a_setting_takes_the_function_its_setter_and_the_grant() {
        let on = [grant("bridge", &[("names", &["br0"]), ("promisc", &["${config.promiscMode | false}"])])];
        let off = [grant("bridge", &[("names", &["br0"]), ("promisc", &["false"])])];
        let promisc = |list: &[&str], grants: &[Grant]| {
            sentences(list, Some(grants)).iter().any(|sentence| sentence.contains("promiscuous"))
        };
        let both = ["bridge#ensure", "bridge#[method]options.set-promisc"];
        assert!(promisc(&both, &on));
        assert!(!promisc(&both, &off));
        assert!(!promisc(&["bridge#ensure"], &on));
        assert!(!promisc(&["bridge#[method]options.set-promisc"], &on));
    }

    #[test]
    fn ports_are_told_with_their_vlan() {
        let list = ["bridge#[method]bridge.attach", "bridge#[method]port.set-vlan"];
        let grants =
            [grant("bridge", &[("names", &["br0"]), ("vlan", &["${config.vlan | 0}"]), ("isolated", &["true"])])];
        assert_eq!(
            sentences(&list, Some(&grants)),
            [
                "attach its own end of the pair, and no other link, to bridge `br0`, as an isolated port only",
                "join that bridge in the VLAN that the network's `vlan` names only, if the bridge filters VLANs",
            ]
        );
        let filled = [grant("bridge", &[("names", &["br0"]), ("vlan", &["0"])])];
        assert_eq!(sentences(&list, Some(&filled)).len(), 1);
    }

    #[test]
    fn native_programs_stand_out() {
        let grants = [grant("ipam", &[("types", &["${config.ipam.type}"]), ("native", &["dhcp"])])];
        let found = abilities(&imports(&["ipam#add"]), Some(&grants));
        let native: Vec<_> = found.iter().filter(|ability| ability.host_privileges).collect();
        assert_eq!(native.len(), 1);
        assert!(native[0].sentence.contains("RUN native program `dhcp` WITH ALL OF THE HOST'S PRIVILEGES"));
        let grants = [grant("ipam", &[("types", &["host-local"]), ("native", &[])])];
        assert_eq!(
            sentences(&["ipam#add"], Some(&grants)),
            ["run IPAM plugin `host-local`, sandboxed under its own policy"]
        );
    }

    #[test]
    fn what_of_an_earlier_result_counts_is_told() {
        let found = |objects: &[(&str, &[&str])]| sentences(&["link#own"], Some(&[grant("previous", objects)]));
        assert_eq!(
            found(&[("addresses", &["10.0.0.0/8"]), ("names", &["tap*"])]),
            [
                "use as the attachment's own, from an earlier native plugin: address `10.0.0.0/8`",
                "take for the attachment's own on the host, from an earlier native plugin: any link like `tap*`",
            ]
        );
        assert_eq!(found(&[("names", &["tap0"])]).len(), 1);
        assert_eq!(found(&[("in-container", &["true"])]), IN_CONTAINER);
        assert!(found(&[("in-container", &["false"])]).is_empty());
        let configured = found(&[("in-container", &["${config.trust | false}"])]);
        assert!(
            configured.iter().all(|sentence| sentence.ends_with(", where the network's `trust` says so")),
            "{configured:?}"
        );
    }

    #[test]
    fn tells_what_does_not_fit() {
        let imports = imports(&["veth#create", "link#own"]);
        let grants = [grant("veth", &[]), grant("forwarding", &[])];
        assert_eq!(unused(&imports, &grants), ["forwarding"]);
        assert_eq!(ungranted(&imports, &grants), ["link"]);
        let cannot = inabilities(&imports, &grants);
        assert!(!cannot.contains(&"create interfaces") && cannot.contains(&"touch a link in the container"));
        assert_eq!(always(&Imports::default()), ["the plugin can only compute and print an answer"]);
    }
}
