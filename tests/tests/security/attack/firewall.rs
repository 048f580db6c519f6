//! The packet filter: addresses of others, isolation that the network does not ask for, and choices that only the
//! configuration makes.

use crate::attack::{Attack, rogue, withstand};
use anyhow::Result;

const POLICY: &str = r#"
[grant.firewall]
backends = ["iptables"]
admin-chains = ["${config.iptablesAdminChainName | CNI-ADMIN}"]
ingress = ["${config.ingressPolicy | open}"]

[grant.leases]
directories = ["/var/lib/hostile"]
ranges = ["10.9.0.0/24"]
"#;
/// Grants only firewalld, in a zone that the network names.
const ZONES: &str = "[grant.firewall]\nbackends = [\"firewalld\"]\nadmin-chains = [\"CNI-ADMIN\"]\nzones = [\"${config.firewalldZone}\"]";
const LEASE: &str = r#"{"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": []}"#;

fn admit(name: &'static str, address: &str) -> Attack {
    rogue(name, &format!(r#"[{LEASE}, {{"op": "firewall-admit", "addresses": ["{address}"]}}]"#)).policy(POLICY)
}

fn bare(name: &'static str) -> Attack {
    rogue(name, r#"[{"op": "firewall-admit", "addresses": ["10.9.0.2/24"]}]"#).policy(POLICY)
}

fn isolate(name: &'static str, ingress: &str) -> Attack {
    rogue(name, &format!(r#"[{{"op": "firewall-isolate", "ingress": "{ingress}"}}]"#)).policy(POLICY)
}

#[test]
fn a_foreign_address_is_not_forwarded() -> Result<()> {
    let nobody = "no record says that an earlier plugin gave";
    withstand(&[
        admit("a neighbour's address", "10.9.0.77/24").ends(110, nobody),
        admit("its own, as a whole network", "10.9.0.2/8").ends(110, nobody),
        admit("the attachment's network", "10.9.0.0/24").ends(110, nobody),
        admit("everything", "0.0.0.0/0").ends(110, nobody),
        admit("the node's address", "192.0.2.1/24").ends(110, nobody),
        admit("an earlier result's address that nobody confirms", "10.7.0.2/24")
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.7.0.2/24"}]}}"#)
            .ends(110, nobody),
        admit("no address", "x").ends(999, ""),
        bare("on DEL").on("DEL").ends(110, "firewall.admit is not for DEL"),
        bare("on CHECK").on("CHECK").ends(110, "firewall.admit is not for CHECK"),
    ])
}

#[test]
fn the_configuration_chooses_and_the_guest_does_not() -> Result<()> {
    let same = r#"{"ingressPolicy": "same-bridge"}"#;
    let refused = "policy does not allow plugin \"rogue\" firewall.isolate";
    let own = |name| rogue(name, r#"[{"op": "firewall-admit", "addresses": []}]"#);
    withstand(&[
        isolate("where the network is open", "isolated").ends(110, refused),
        isolate("more than the network wants", "isolated").with(same).ends(110, refused),
        isolate("a policy that does not exist", "closed").with(same).ends(999, ""),
        isolate("the operator's link", "same-bridge")
            .with(same)
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "op0"}]}}"#)
            .ends(999, "prevResult names \"op0\" as the bridge, and this attachment's host end is no port of a bridge"),
        isolate("the operator's link, wholly", "isolated")
            .with(r#"{"ingressPolicy": "isolated", "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "op0"}]}}"#)
            .ends(999, "prevResult names \"op0\" as the bridge, and this attachment's host end is no port of a bridge"),
        isolate("the bystander's bridge", "same-bridge")
            .with(same)
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "cni0"}]}}"#)
            .ends(999, "prevResult names \"cni0\" as the bridge"),
        isolate("on DEL", "same-bridge").with(same).on("DEL").ends(110, "firewall.isolate is not for DEL"),
        own("without a grant").policy("[grant.link]").ends(110, "firewall.admit"),
        own("a packet filter that is not granted")
            .policy(ZONES)
            .with(r#"{"backend": "iptables"}"#)
            .ends(110, "firewall.admit on \"iptables\""),
        own("zone `trusted`, which no network names")
            .policy(ZONES)
            .with(r#"{"backend": "firewalld"}"#)
            .ends(110, "firewall.admit on \"trusted\"…zones = [\"${config.firewalldZone}\", \"trusted\"]"),
        own("another program's chain")
            .policy(POLICY)
            .with(r#"{"backend": "iptables", "iptablesAdminChainName": "KUBE-FORWARD"}"#)
            .ends(110, "no policy can allow it"),
        own("a chain of the kernel")
            .policy(POLICY)
            .with(r#"{"backend": "iptables", "iptablesAdminChainName": "FORWARD"}"#)
            .ends(110, "no policy can allow it"),
    ])
}
