//! Attacks with taps: without the grant, for another user, in a bridge that is not granted, or beside an existing link.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{rogue, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::{Refusal, each};
use serde_json::{Value, json};

/// A tap with these settings, as the sandbox process asks for it.
fn create(patch: &Value) -> String {
    let mut settings = json!({"mtu": null, "mac": null, "owner": null, "group": null, "multi_queue": false,
        "packet_information": false, "vnet_header": false});
    postern_tests::merge(&mut settings, patch);
    json!({"op": "tap-create", "settings": settings}).to_string()
}

fn join(link: u32, bridge: &str) -> String {
    json!({"op": "tap-join", "link": link, "bridge": bridge}).to_string()
}

/// The gate refuses these calls before it asks the kernel. So the test also works on a kernel without taps.
#[test]
fn taps_that_are_not_granted() -> Result<()> {
    let steps = |name, steps: &[&str]| rogue(name, &format!("[{}]", steps.join(", ")));
    let plain = create(&json!({}));
    let of_zero = "[grant.tap]\nowners = [\"0\"]\nmtu = \"1400\"\nbridges = [\"br7\"]";
    let looks = "[grant.tap]\nlook-only = \"true\"\nbridges = [\"br7\"]";
    let with = |patch: Value| create(&patch);
    let own = "is not for the attachment's own link";
    withstand(&[
        steps("without the grant", &[&plain]).ends(110, "tap.create"),
        steps("to look only", &[&plain]).policy(looks).ends(110, "tap.create"),
        steps("to look only: a bridge", &["\"veth-create\"", &join(0, "br7")]).policy(looks).ends(110, "tap.join"),
        // Only the network's user in the container may have the frames.
        steps("for everybody", &[&plain]).policy(of_zero).ends(110, "tap.create without owner"),
        steps("for another user", &[&with(json!({"owner": 1000}))]).policy(of_zero).ends(110, "with owner 1000"),
        steps("for a group too", &[&with(json!({"owner": 0, "group": 0}))]).policy(of_zero).ends(110, "with group 0"),
        steps("in a context", &[&with(json!({"owner": 0, "selinux_context": "system_u:system_r:init_t:s0"}))])
            .policy(of_zero)
            .ends(110, "with SELinux context system_u:system_r:init_t:s0"),
        steps("in the host's context", &[&plain])
            .policy("[grant.tap]\nselinux-context = \"u:r:tap_t:s0\"")
            .ends(110, "tap.create without SELinux context"),
        steps("for a user where none is named", &[&with(json!({"owner": 0}))])
            .policy("[grant.tap]")
            .ends(110, "with owner 0"),
        steps("a user beyond 32 bits", &[&with(json!({"owner": 4_294_967_296_u64}))])
            .policy(of_zero)
            .ends(999, "malformed message"),
        steps("queues", &[&with(json!({"owner": 0, "multi_queue": true}))])
            .policy(of_zero)
            .ends(110, "with several queues"),
        steps("an MTU", &[&with(json!({"owner": 0, "mtu": 1500}))]).policy(of_zero).ends(110, "with MTU 1500"),
        steps("a group's address", &[&with(json!({"mac": "01:00:5e:00:00:01"}))])
            .policy("[grant.tap]")
            .ends(999, "failed to create tap"),
        steps("in the node's bridge", &["\"veth-create\"", &join(0, "cni0")])
            .policy(of_zero)
            .ends(110, "tap.join on \"cni0\""),
        steps("in no bridge", &["\"veth-create\"", &join(0, "")]).policy(of_zero).ends(110, "tap.join"),
        // A veth is no tap. Otherwise the bridge would get the container's link as its port.
        steps("another link in the bridge", &["\"veth-create\"", &join(0, "br7")])
            .policy(of_zero)
            .ends(999, "is no tap that this attachment made"),
        steps("the host end in the bridge", &["\"veth-create\"", &join(1, "br7")]).policy(of_zero).ends(999, own),
        steps("nothing in the bridge", &[&join(0, "br7")]).policy(of_zero).ends(999, "no such handle was given out"),
        steps("beside a pair", &["\"veth-create\"", &plain]).policy("[grant.tap]").ends(999, "has \"eth0\" already"),
        steps("on CHECK", &[&plain]).policy("[grant.tap]").on("CHECK").ends(110, "tap.create is not for CHECK"),
        steps("on DEL", &[&plain]).policy("[grant.tap]").on("DEL").ends(110, "tap.create is not for DEL"),
        steps("on GC", &[&plain]).policy("[grant.tap]").on("GC").ends(110, "tap.create is not for GC"),
        steps("a bridge on DEL", &["\"link-own\"", &join(0, "br7")])
            .policy(of_zero)
            .on("DEL")
            .ends(110, "is not for DEL"),
    ])
}

/// The grant allows these calls. They try to make a tap for a user that does not exist, to make a second tap in one
/// run, and to join a link that is no bridge of the container.
#[test]
fn taps_beside_what_is_there() -> Result<()> {
    if !postern_tests::kernel::has_or_skips("tap")? {
        return Ok(());
    }
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("rogue", "[grant.tap]\nbridges = [\"*\"]")?;
    let plain = create(&json!({}));
    // The runtime's user namespace maps neither user. The tap must not belong to the kernel's "nobody" or to everybody.
    attacked.operator_policy("rogue", "[grant.tap]\nowners = [\"1000\", \"4294967295\"]")?;
    for owner in [1000, u32::MAX] {
        let answer = rogue("for nobody", &format!("[{}]", create(&json!({"owner": owner})))).call(&attacked)?;
        Refusal::of(&answer)?.expect(999, "the user namespace of the runtime does not have this ID")?;
        ensure!(!attacked.node().sh_in("c1", "ip -o link")?.contains("eth0"), "a tap is left");
    }
    attacked.operator_policy("rogue", "[grant.tap]\nbridges = [\"*\"]")?;
    each(
        [
            // The thread has a descriptor for one tap only. The operation takes no name, so the second tap would have
            // the name of the first tap.
            ([plain.as_str(), plain.as_str()], "has \"eth0\" already"),
            // `cni0` is a bridge of the node, not of the container.
            ([plain.as_str(), join(0, "cni0").as_str()], "failed to get bridge cni0: Link not found"),
            ([plain.as_str(), join(0, "eth0").as_str()], "failed to set tap eth0 as a port of bridge eth0"),
        ],
        |(steps, _)| steps.join(", "),
        |(steps, words)| {
            let answer = rogue("beside", &format!("[{}]", steps.join(", "))).call(&attacked)?;
            let refusal = Refusal::of(&answer)?;
            refusal.expect(999, words)?;
            ensure!(!attacked.node().sh_in("c1", "ip -o link")?.contains("eth0"), "a tap is left");
            Ok(())
        },
    )?;
    attacked.operator_policy("rogue", "")?;
    attacked.unchanged()
}
