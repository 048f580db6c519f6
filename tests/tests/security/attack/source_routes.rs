//! Source routing: addresses and gateways of others, tables of the kernel and of another attachment, and tables that
//! the network does not choose.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, attack};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// A wide policy: tables of the kernel and other tables, and the addresses of `prevResult`.
const ANY: &str = "[previous]\naddresses = [\"10.9.0.0/24\", \"fd00:9::/64\"]\n[grant.link]\n[grant.source-routes]\n\
    tables = [\"0\", \"253\", \"254\", \"255\", \"77\", \"100\", \"500\"]";
/// The shipped policy.
const SHIPPED: &str =
    "[previous]\naddresses = [\"10.9.0.0/24\"]\n[grant.link]\n[grant.source-routes]\ntables = [\"${config.table}\"]";

/// The attacker's container has its own link, and a neighbour's link `eth1`, which has its own table.
const LINKS: &str = "ip -n c1 link show dev eth0 > /dev/null 2>&1 || {
        ip -n c1 link add eth0 type veth peer name far0; ip -n c1 link set far0 up; ip -n c1 link set eth0 up
        ip -n c1 address add 10.9.0.50/24 dev eth0
        ip -n c1 link add eth1 type veth peer name far1; ip -n c1 link set far1 up; ip -n c1 link set eth1 up
        ip -n c1 address add 10.8.0.2/24 dev eth1
        ip -n c1 rule add from 10.8.0.2 lookup 100; ip -n c1 route add default via 10.8.0.1 table 100
        ip -n c1 route add default via 10.8.0.1 table 77
    }";

fn applied(name: &'static str, sources: &Value, table: &Value) -> Attack {
    let apply = json!({"op": "source-routes-apply", "link": 0, "sources": sources, "table": table, "hints": false});
    let steps = json!({
        "type": "chained", "rogue": [{"call": {"op": "link-own"}}, {"call": apply}],
        "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.50/24"}]},
    });
    attack(name, "chained", steps).policy(ANY)
}

fn own() -> Value {
    json!([{"address": "10.9.0.50/24", "gateway": "10.9.0.1"}])
}

#[test]
fn addresses_gateways_and_tables_are_the_attachments() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(LINKS)?;
    let foreign = "is not an address of this attachment";
    let via = |gateway: &str| json!([{"address": "10.9.0.50/24", "gateway": gateway}]);
    let none = json!(null);
    for attack in [
        applied("a neighbour's address", &json!([{"address": "10.77.0.2/24"}]), &none).ends(999, foreign),
        applied("the other link's address", &json!([{"address": "10.8.0.2/24"}]), &none).ends(999, foreign),
        applied("all senders", &json!([{"address": "0.0.0.0/0"}]), &none).ends(999, foreign),
        applied("the whole network", &json!([{"address": "10.9.0.0/24"}]), &none).ends(999, foreign),
        applied("own, and another's", &json!([{"address": "10.9.0.50/24"}, {"address": "10.8.0.2/24"}]), &none)
            .ends(999, foreign),
        applied("a gateway of the other link", &via("10.8.0.1"), &none).ends(999, "does not lie in the network"),
        applied("a gateway of the node", &via("192.0.2.1"), &none).ends(999, "does not lie in the network"),
        applied("a gateway of the other family", &via("fe80::1"), &none).ends(999, "does not lie in the network"),
        applied("itself as gateway", &via("10.9.0.50"), &none).ends(999, "does not lie in the network"),
        applied("table 0", &own(), &json!(0)).ends(999, "table 0 is the kernel's own"),
        applied("table default", &own(), &json!(253)).ends(999, "table 253 is the kernel's own"),
        applied("table main", &own(), &json!(254)).ends(999, "table 254 is the kernel's own"),
        applied("table local", &own(), &json!(255)).ends(999, "table 255 is the kernel's own"),
        applied("another attachment's table", &own(), &json!(100)).ends(999, "it serves senders in 10.8.0.2/32"),
        applied("a table with routes of another link", &own(), &json!(77)).ends(999, "through another link"),
        applied("a table that policy does not have", &own(), &json!(501)).ends(110, "with table 501"),
        applied("a table that the network does not name", &own(), &json!(500))
            .policy(SHIPPED)
            .with(r#"{"table": 600}"#)
            .ends(110, "with table 500"),
        applied("a table where the network names none", &own(), &json!(500))
            .policy(SHIPPED)
            .ends(110, "with table 500"),
        applied("no table where the network names one", &own(), &none)
            .policy(SHIPPED)
            .with(r#"{"table": 600}"#)
            .ends(110, "without table 600, which the network names"),
        applied("outside of ADD", &own(), &none).on("CHECK").ends(110, "is not for CHECK"),
        applied("without the grant", &own(), &none)
            .policy("[previous]\naddresses = [\"10.9.0.0/24\"]\n[grant.link]")
            .ends(110, "policy does not allow plugin \"chained\" source-routes.apply"),
        applied("an address that nobody gave", &own(), &none)
            .policy("[grant.link]\n[grant.source-routes]")
            .ends(999, foreign),
    ] {
        // The kernel adds link-local addresses at any time, so they are left out.
        let look = "(ip rule; ip -6 rule; ip route show table all) | grep -v -e fe80 -e ff00";
        let before = attacked.node().sh_in("c1", look)?;
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
        let after = attacked.node().sh_in("c1", look)?;
        ensure!(before == after, "{}: {before}\n{after}", attack.name);
    }
    Ok(())
}
