//! Delegation by flannel: plugins that policy does not grant, another configuration than the host's, subnet files and
//! state files of others, and the node's own subnets.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, attack, honest, withstand};
use anyhow::{Context, Result};
use serde_json::{Value, json};

const POLICY: &str = "[grant.delegate]\ntypes = [\"bridge\", \"${config.delegate.type | bridge}\"]\n\
    files = [\"${config.subnetFile | /run/flannel/subnet.env}\"]\ndirectories = [\"${config.dataDir | /var/lib/cni/flannel}\"]";

const FILE: &str = "mkdir -p /run/flannel /run/of-others /run/open; \
    printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.9.0.1/24\\nFLANNEL_MTU=1400\\nFLANNEL_IPMASQ=true\\n' > /run/flannel/subnet.env; \
    cp /run/flannel/subnet.env /run/of-others/subnet.env; chown -R 1000 /run/of-others 2> /dev/null || chmod 777 /run/of-others; \
    cp /run/flannel/subnet.env /run/open/subnet.env; chmod 777 /run/open; cp /run/flannel/subnet.env /run/flannel/written; chmod 666 /run/flannel/written; \
    ln -s /run/flannel/subnet.env /run/flannel/link; ln -s /run/open /run/flannel/way; \
    (cat /run/flannel/subnet.env; head -c 70000 /dev/zero | tr '\\0' x) > /run/flannel/long; mkfifo /run/flannel/pipe; \
    for of in lo:127.8.0.0/24 covers-lo:96.0.0.0/3 node:192.0.2.0/24; do \
        sed \"s,FLANNEL_SUBNET=.*,FLANNEL_SUBNET=${of#*:},\" /run/flannel/subnet.env > /run/flannel/of-${of%%:*}; done; \
    sed 's/FLANNEL_SUBNET.*/FLANNEL_IPV6_SUBNET=::1\\/64/' /run/flannel/subnet.env > /run/flannel/of-v6";

/// The configuration that the host makes for the attacker's network.
fn made() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "hostile0", "ipMasq": false, "mtu": 1400, "isGateway": true,
        "ipam": {"type": "host-local", "dataDir": "/var/lib/hostile", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "10.9.0.0/16"}]},
    })
}

/// Makes an attack by a sandbox process that delegates with a changed configuration.
fn changed(name: &'static str, patch: &Value) -> Attack {
    let mut config = made();
    postern_tests::merge(&mut config, patch);
    call(name, &json!({"op": "delegate-add", "config": config.to_string()}))
}

fn call(name: &'static str, operation: &Value) -> Attack {
    let steps = json!({"type": "rogue", "rogue": [{"call": operation}], "delegate": {"bridge": "hostile0"}, "ipam": {"ranges": null}});
    attack(name, "rogue", steps).policy(POLICY)
}

fn flannel(name: &'static str, patch: &str) -> Attack {
    honest(name, "flannel", r#"{"delegate": {"bridge": "hostile0"}, "ipam": {"ranges": null}}"#).with(patch)
}

fn node() -> Result<AttackedNode> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(FILE)?;
    Ok(attacked)
}

#[test]
fn the_delegate_has_the_hosts_configuration() -> Result<()> {
    let mut attacked = node()?;
    let refused = |attack: Attack, words: &'static str| attack.ends(110, words);
    for attack in [
        refused(changed("another bridge", &json!({"bridge": "cni0"})), "can't run with this 'bridge': network and subnet file give another value"),
        refused(changed("another network", &json!({"name": "bystander"})), "with this 'name'"),
        refused(changed("another plugin", &json!({"type": "ptp"})), "with this 'type'"),
        refused(changed("another range", &json!({"ipam": {"ranges": [[{"subnet": "192.0.2.0/24"}]]}})), "with this 'ipam'"),
        refused(changed("leases elsewhere", &json!({"ipam": {"dataDir": "/var/lib/cni/networks"}})), "with this 'ipam'"),
        refused(changed("another IPAM plugin", &json!({"ipam": {"type": "static", "addresses": [{"address": "10.66.0.1/8"}]}})), "with this 'ipam'"),
        refused(changed("a route of the node's", &json!({"ipam": {"routes": [{"dst": "0.0.0.0/0"}]}})), "with this 'ipam'"),
        refused(changed("masquerading", &json!({"ipMasq": true})), "with this 'ipMasq'"),
        refused(changed("an MTU", &json!({"mtu": 68})), "with this 'mtu'"),
        refused(changed("no gateway", &json!({"isGateway": null})), "with this 'isGateway'"),
        refused(changed("an additional key", &json!({"promiscMode": true})), "with this 'promiscMode'"),
        refused(changed("another spelling", &json!({"BRIDGE": "cni0"})), "with this 'BRIDGE'"),
        refused(changed("an earlier result", &json!({"prevResult": {"cniVersion": "1.1.0"}})), "with this 'prevResult'"),
        call("no JSON", &json!({"op": "delegate-add", "config": "{"})).ends(999, "unexpected end"),
        call("no object", &json!({"op": "delegate-add", "config": "[]"})).ends(999, "is an object"),
        refused(call("outside of ADD", &json!({"op": "delegate-add", "config": made().to_string()})).on("CHECK"), "delegate.add is not for CHECK"),
        refused(call("DEL on ADD", &json!({"op": "delegate-del"})), "delegate.del is not for ADD"),
        refused(call("GC on ADD", &json!({"op": "delegate-gc"})), "delegate.gc is not for ADD"),
        refused(call("without the grant", &json!({"op": "delegate-subnet-file"})).policy("withdraw = []"), "policy does not allow plugin \"rogue\" delegate.subnet-file"),
        refused(
            call("a plugin that is not granted", &json!({"op": "delegate-add", "config": made().to_string()})).policy(
                "[grant.delegate]\ntypes = [\"ptp\"]\nfiles = [\"/run/flannel/subnet.env\"]\ndirectories = [\"/var/lib/cni/flannel\"]",
            ),
            "types = [\"ptp\", \"bridge\"]",
        ),
        refused(
            call("a subnet file that is not granted", &json!({"op": "delegate-subnet-file"})).policy(
                "[grant.delegate]\ntypes = [\"bridge\"]\nfiles = [\"/run/other\"]\ndirectories = [\"/var/lib/cni/flannel\"]",
            ),
            "files = [\"/run/other\", \"/run/flannel/subnet.env\"]",
        ),
        refused(
            call("files of the native plugin elsewhere", &json!({"op": "delegate-add", "config": made().to_string()})).policy(
                "[grant.delegate]\ntypes = [\"bridge\"]\nfiles = [\"/run/flannel/subnet.env\"]\ndirectories = [\"/run/other\"]",
            ),
            "directories = [\"/run/other\", \"/var/lib/cni/flannel\"]",
        ),
        // A second delegation in one ADD would give the second attachment the first attachment's names.
        attack("twice", "rogue", json!({"type": "rogue", "delegate": {"bridge": "hostile0"}, "ipam": {"ranges": null},
            "rogue": [{"try": {"op": "delegate-add", "config": made().to_string()}}, {"call": {"op": "delegate-add", "config": made().to_string()}}]}))
            .policy(POLICY).ends(999, "has been delegated already"),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

#[test]
fn plugins_without_end() -> Result<()> {
    let mut attacked = node()?;
    for attack in [
        flannel("itself", r#"{"delegate": {"type": "flannel"}}"#)
            .ends(999, "\"flannel\" delegates to \"flannel\" without end"),
        flannel("itself for an IPAM plugin", r#"{"ipam": {"type": "flannel"}}"#).ends(999, "is running already"),
        flannel("a path", r#"{"delegate": {"type": "../../bin/sh"}}"#).ends(999, "invalid plugin name: ../../bin/sh"),
        flannel("a program", r#"{"delegate": {"type": "sh"}}"#)
            .env("CNI_PATH", "/usr/bin:/bin")
            .ends(110, "as a native program…native = [\"sh\"]"),
        flannel("no such plugin", r#"{"delegate": {"type": "nothing"}}"#)
            .ends(999, "failed to find plugin \"nothing\""),
        flannel("an attacker's plugin", r#"{"delegate": {"type": "hostile", "hostile": "trap"}}"#)
            .ends(999, "plugin \"hostile\" trapped"),
        flannel("a bridge of others", r#"{"delegate": {"bridge": "op0"}}"#).ends(999, ""),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

#[test]
fn subnet_files_that_others_could_change() -> Result<()> {
    let mut attacked = node()?;
    let file = |name, path: &str| flannel(name, &format!(r#"{{"subnetFile": "{path}"}}"#));
    for attack in [
        file("a directory that others can write", "/run/open/subnet.env").ends(5, "/run/open can be written by others"),
        file("a way through such a directory", "/run/flannel/way/subnet.env")
            .ends(5, "/run/open can be written by others"),
        file("a file of another user", "/run/of-others/subnet.env").ends(5, "/run/of-others"),
        file("a file that others can write", "/run/flannel/written").ends(5, "can be written by others"),
        file("a symbolic link", "/run/flannel/link").ends(5, "is a symbolic link"),
        file("a file without end", "/run/flannel/long").ends(5, "longer than 65536 bytes"),
        file("a pipe", "/run/flannel/pipe").ends(5, "is no regular file"),
        file("a directory", "/run/flannel").ends(5, "is no regular file"),
        file("a device", "/dev/zero").ends(5, ""),
        file("a relative path", "flannel/subnet.env").ends(999, "is no absolute path"),
        // The error does not quote the file.
        file("the operator's secrets", "/etc/operator/shadow")
            .ends(999, "/etc/operator/shadow is missing FLANNEL_NETWORK"),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

#[test]
fn subnets_of_the_node_itself() -> Result<()> {
    let mut attacked = node()?;
    attacked.prepare("ip route add default via 192.0.2.254 dev op0")?;
    let file = |name, path: &str| flannel(name, &format!(r#"{{"subnetFile": "/run/flannel/{path}"}}"#));
    for attack in [
        file("a part of loopback", "of-lo").ends(999, "covers 127.0.0.1, an address of loopback"),
        file("all of loopback", "of-covers-lo").ends(999, "an address of loopback"),
        file("loopback of IPv6", "of-v6").ends(999, "covers ::1, an address of loopback"),
        file("the default route's link", "of-node")
            .ends(999, "subnet 192.0.2.0/24 covers 192.0.2.1, an address of the default route's link"),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}

/// The native plugin's file, as another user could prepare it. Some files name another plugin, network or container.
#[test]
fn state_files_are_never_believed_before_the_record() -> Result<()> {
    let forged = |config: &Value| format!("mkdir -p /run/forged; printf '%s' '{config}' > /run/forged/c1");
    for (name, script) in [
        (
            "of another network",
            forged(
                &json!({"cniVersion": "1.1.0", "name": "bystander", "type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local"}}),
            ),
        ),
        (
            "of another plugin",
            forged(&json!({"cniVersion": "1.1.0", "name": "net", "type": "host-device", "device": "op0"})),
        ),
        ("of a program", forged(&json!({"cniVersion": "1.1.0", "name": "net", "type": "sh"}))),
        ("no JSON", "mkdir /run/forged; echo x > /run/forged/c1".to_owned()),
        ("a link", "mkdir /run/forged; ln -s /etc/operator/shadow /run/forged/c1".to_owned()),
        ("that others can write", format!("{}; chmod 666 /run/forged/c1", forged(&made()))),
        ("in a directory that others can write", format!("{}; chmod 777 /run/forged", forged(&made()))),
    ] {
        let mut attacked = node()?;
        attacked.prepare(&script)?;
        let del = flannel(name, r#"{"dataDir": "/run/forged"}"#).env("CNI_PATH", "/usr/bin:/bin").on("DEL");
        del.withstood_by(&mut attacked).context(name)?;
    }
    withstand(&[])
}
