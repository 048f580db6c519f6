//! A plugin may have one lease of a DHCP service, for its own attachment. Each request is allowed on certain verbs. No
//! service runs, so an allowed request fails when the host connects.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::rogue;
use anyhow::{Context, Result};

const GRANT: &str = "[grant.dhcp]\nsockets = [\"${config.ipam.daemonSocketPath | /run/cni/dhcp.sock}\"]";
const ELSEWHERE: &str = "[grant.dhcp]\nsockets = [\"/run/cni/*.sock\"]";

#[test]
fn leases_of_a_service_are_the_attachments_own() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let absent = "error dialing DHCP daemon: dial unix /run/cni/dhcp.sock";
    for attack in [
        rogue("without the grant", r#"["dhcp-acquire"]"#)
            .policy("[grant.link]")
            .ends(110, "policy does not allow plugin \"rogue\" dhcp.acquire"),
        rogue("a lease for another attachment", r#"[{"op": "dhcp-acquire", "container_id": "c3", "ifname": "eth0"}]"#)
            .policy(GRANT)
            .ends(999, absent),
        rogue(
            "release another attachment's lease",
            r#"[{"op": "dhcp-release", "container_id": "c3", "network": "bystander"}]"#,
        )
        .policy(GRANT)
        .ends(110, "dhcp.release"),
        rogue("a lease on CHECK", r#"["dhcp-acquire"]"#).policy(GRANT).on("CHECK").ends(110, "is not for CHECK"),
        rogue("a lease on DEL", r#"["dhcp-acquire"]"#).policy(GRANT).on("DEL").ends(110, "is not for DEL"),
        rogue("given back on ADD", r#"["dhcp-release"]"#).policy(GRANT).ends(110, "dhcp.release"),
        rogue("a socket that policy does not have", r#"["dhcp-acquire"]"#)
            .policy(ELSEWHERE)
            .with(r#"{"ipam": {"daemonSocketPath": "/run/operator.sock"}}"#)
            .ends(110, "/run/operator.sock"),
        rogue("a socket outside of the directory that policy names", r#"["dhcp-status"]"#)
            .policy(ELSEWHERE)
            .with(r#"{"ipam": {"daemonSocketPath": "/run/cni/../operator.sock"}}"#)
            .ends(110, "operator.sock"),
    ] {
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}
