//! VRFs: names of other links, tables of the kernel and of others. The gate refuses each call before it asks the
//! kernel. So the test also works on a kernel without VRFs.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, attack};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The widest policy.
const ANY: &str = "[grant.link]\n[grant.vrf]\nnames = [\"*\"]\n\
    tables = [\"0\", \"253\", \"254\", \"255\", \"77\", \"100\", \"4294967295\"]";
/// The shipped policy.
const SHIPPED: &str = "[grant.link]\n[grant.vrf]\nnames = [\"${config.vrfname}\"]\ntables = [\"${config.table}\"]";

/// The attacker's container has its own link, a neighbour's link `eth1` with its own tables, and a bridge.
const LINKS: &str = "ip -n c1 link show dev eth0 > /dev/null 2>&1 || {
        ip -n c1 link add eth0 type veth peer name far0; ip -n c1 link set far0 up; ip -n c1 link set eth0 up
        ip -n c1 link add eth1 type veth peer name far1; ip -n c1 link set far1 up; ip -n c1 link set eth1 up
        ip -n c1 link property add dev eth1 altname second
        ip -n c1 address add 10.8.0.2/24 dev eth1; ip -n c1 link add inner0 type bridge
        ip -n c1 rule add from 10.8.0.2 lookup 100; ip -n c1 route add default via 10.8.0.1 table 77
    }";

fn joined(name: &'static str, vrf: &str, table: &Value) -> Attack {
    let join = json!({"op": "vrf-join", "link": 0, "name": vrf, "table": table});
    let steps = json!({
        "type": "chained", "rogue": [{"call": {"op": "link-own"}}, {"call": join}], "vrfname": "blue",
        "prevResult": {"cniVersion": "1.1.0"},
    });
    attack(name, "chained", steps).policy(ANY)
}

#[test]
fn names_and_tables_are_no_other_links_and_nobody_elses() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(LINKS)?;
    let none = json!(null);
    for attack in [
        joined("the own link", "eth0", &none).ends(999, "Netlink eth0 is not a VRF"),
        joined("the other link", "eth1", &none).ends(999, "Netlink eth1 is not a VRF"),
        joined("the other link by its second name", "second", &none).ends(999, "Netlink second is not a VRF"),
        joined("a bridge", "inner0", &none).ends(999, "Netlink inner0 is not a VRF"),
        joined("the loopback link", "lo", &none).ends(999, "Netlink lo is not a VRF"),
        joined("no name", "", &none).ends(999, "could not add VRF"),
        joined("a path", "../x", &none).ends(110, "no policy can allow it"),
        joined("a long name", "sixteen-letters-", &none).ends(999, "could not add VRF"),
        joined("table 0", "blue", &json!(0)).ends(999, "table 0 is the kernel's own"),
        joined("table default", "blue", &json!(253)).ends(999, "table 253 is the kernel's own"),
        joined("table main", "blue", &json!(254)).ends(999, "table 254 is the kernel's own"),
        joined("table local", "blue", &json!(255)).ends(999, "table 255 is the kernel's own"),
        joined("a table with routes of another link", "blue", &json!(77)).ends(999, "table 77 is in use"),
        joined("a table with a rule of another sender", "blue", &json!(100)).ends(999, "table 100 is in use"),
        joined("a table that policy does not have", "blue", &json!(5)).ends(110, "with table 5"),
        joined("a VRF that the network does not name", "red", &none).policy(SHIPPED).ends(110, "vrf.join on \"red\""),
        joined("a table that the network does not name", "blue", &json!(77)).policy(SHIPPED).ends(110, "with table 77"),
        joined("outside of ADD", "blue", &none).on("CHECK").ends(110, "is not for CHECK"),
        joined("without the grant", "blue", &none)
            .policy("[grant.link]")
            .ends(110, "policy does not allow plugin \"chained\" vrf.join"),
    ] {
        let look = "(ip link; ip rule; ip -6 rule; ip route show table all) | grep -v -e fe80 -e ff00";
        let before = attacked.node().sh_in("c1", look)?;
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
        let after = attacked.node().sh_in("c1", look)?;
        ensure!(before == after, "{}: {before}\n{after}", attack.name);
    }
    Ok(())
}
