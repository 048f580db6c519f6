//! Leases, ranges and directories of other attachments.

use crate::attack::attacked_node::{AttackedNode, good};
use crate::attack::{honest, hostile, rogue, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;

#[test]
fn ranges_and_leases_of_others() -> Result<()> {
    let denied = "policy does not allow plugin…leases.reserve";
    let reserve = |name, sets: &str, requested: &str| {
        rogue(name, &format!(r#"[{{"op": "leases-reserve", "sets": {sets}, "requested": {requested}}}]"#))
    };
    let granted = r#"[[{"subnet": "10.9.0.0/24"}]]"#;
    withstand(&[
        hostile("a range that is not granted", "leases").ends(110, denied),
        reserve("the neighbour's lease", granted, r#"["10.9.0.2"]"#).ends(999, "10.9.0.2"),
        reserve("the network's gateway", granted, r#"["10.9.0.1"]"#)
            .ends(999, "requested ip 10.9.0.1 is subnet's gateway"),
        reserve("the broadcast address", granted, r#"["10.9.0.255"]"#).ends(999, "10.9.0.255"),
        reserve("an address outside of the range", granted, r#"["10.77.0.2"]"#).ends(999, "10.77.0.2"),
        reserve("the bystander's range", r#"[[{"subnet": "10.77.0.0/24"}]]"#, "[]").ends(110, denied),
        reserve("a granted range and another", r#"[[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.66.0.0/24"}]]"#, "[]")
            .ends(110, denied),
        reserve("two ranges in one set", r#"[[{"subnet": "10.9.0.0/24"}, {"subnet": "10.66.0.0/24"}]]"#, "[]")
            .ends(110, denied),
        reserve("a range around the granted one", r#"[[{"subnet": "10.0.0.0/8"}]]"#, "[]").ends(110, denied),
        reserve(
            "a range around the granted range, by its ends",
            r#"[[{"subnet": "10.0.0.0/8", "start": "10.9.0.3", "end": "10.9.0.9"}]]"#,
            "[]",
        )
        .ends(110, denied),
        reserve("all of IPv4", r#"[[{"subnet": "0.0.0.0/0"}]]"#, "[]").ends(110, denied),
        reserve("all of IPv6", r#"[[{"subnet": "::/0"}]]"#, "[]").ends(110, denied),
        reserve("the granted range, mapped", r#"[[{"subnet": "::ffff:10.9.0.0/120"}]]"#, "[]")
            .ends(999, "IPNet IP and Mask version mismatch"),
        reserve("no range at all", "[]", "[]").ends(999, "no IP ranges specified"),
        rogue("the leases of all others on ADD", r#"["leases-retain"]"#).ends(110, "leases.retain is not for ADD"),
        rogue("the leases of all others on DEL", r#"["leases-retain"]"#)
            .on("DEL")
            .ends(110, "leases.retain is not for DEL"),
        rogue("the leases of all others, without a list", r#"["leases-retain"]"#).on("GC").ends(0, ""),
        rogue("collect what others left, without a grant", r#"["attachments-collect"]"#)
            .on("GC")
            .with(r#"{"cni.dev/valid-attachments": []}"#)
            .ends(110, "policy does not allow plugin…attachments.collect"),
        rogue("release on ADD", r#"["leases-release"]"#).ends(110, "leases.release is not for ADD"),
        rogue(
            "reserve on CHECK",
            r#"[{"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": []}]"#,
        )
        .on("CHECK")
        .ends(110, "leases.reserve is not for CHECK"),
    ])
}

#[test]
fn directories_of_others() -> Result<()> {
    let denied = "policy does not allow plugin…leases.reserve on";
    let reserve =
        |name| rogue(name, r#"[{"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": []}]"#);
    withstand(&[
        hostile("another directory", "leases")
            .with(r#"{"ipam": {"dataDir": "/var/lib/other"}}"#)
            .ends(110, "policy does not allow plugin…leases.reserve on \"/var/lib/other\""),
        hostile("another file", "file")
            .with(r#"{"ipam": {"resolvConf": "/etc/shadow"}}"#)
            .ends(110, "policy does not allow plugin…resolv-conf.read on \"/etc/shadow\""),
        reserve("out of the granted directory")
            .with(r#"{"ipam": {"dataDir": "/var/lib/hostile/../cni/networks"}}"#)
            .ends(110, denied),
        reserve("the granted directory, spelt otherwise")
            .with(r#"{"ipam": {"dataDir": "/var/lib//hostile"}}"#)
            .ends(110, denied),
        reserve("a relative directory").with(r#"{"ipam": {"dataDir": "var/lib/hostile"}}"#).ends(110, denied),
        reserve("the default directory").with(r#"{"ipam": {"dataDir": ""}}"#).ends(110, denied),
        reserve("the host's own state").with(r#"{"ipam": {"dataDir": "/run/postern"}}"#).ends(110, denied),
        reserve("a network that leads elsewhere")
            .with(r#"{"name": "../bystander"}"#)
            .ends(7, "invalid characters found in network name"),
        reserve("a network that is the directory")
            .with(r#"{"name": "."}"#)
            .ends(7, "invalid characters found in network name"),
        honest("a network of dots for the real plugin", "host-local", r#"{"name": ".."}"#)
            .ends(7, "invalid characters found in network name"),
        honest("a network with a separator for the real plugin", "bridge", r#"{"name": "net/../bystander"}"#)
            .ends(7, "invalid characters found in network name"),
        honest("a record for a directory", "host-local", r#"{"ipam": {"dataDir": "/etc/operator/shadow"}}"#)
            .ends(5, "/etc/operator/shadow: it is no directory"),
    ])
}

/// Each case: a name, a change that the attacker or another user makes on the disk, the repair, and the words of the
/// refusal.
const PREPARED: [(&str, &str, &str, &str); 6] = [
    (
        "a data directory that others can write",
        "chmod 777 /var/lib/hostile",
        "chmod 755 /var/lib/hostile",
        "/var/lib/hostile: everybody may write to it…chmod o-w",
    ),
    (
        "a network's directory that others can write",
        "chmod 777 /var/lib/hostile/net",
        "chmod 755 /var/lib/hostile/net",
        "/var/lib/hostile/net can be written by others than its owner",
    ),
    (
        "a network's directory that leads elsewhere",
        "mv /var/lib/hostile/net /var/lib/hostile/kept; ln -s /var/lib/cni/networks/bystander /var/lib/hostile/net",
        "rm /var/lib/hostile/net; mv /var/lib/hostile/kept /var/lib/hostile/net",
        "refusing /var/lib/hostile/net: it is no directory",
    ),
    (
        "a network's directory that is a file",
        "mv /var/lib/hostile/net /var/lib/hostile/kept; echo > /var/lib/hostile/net",
        "rm /var/lib/hostile/net; mv /var/lib/hostile/kept /var/lib/hostile/net",
        "refusing /var/lib/hostile/net: it is no directory",
    ),
    (
        "a lock that leads elsewhere",
        "rm /var/lib/hostile/net/lock; ln -s /etc/operator/shadow /var/lib/hostile/net/lock",
        "rm /var/lib/hostile/net/lock; touch /var/lib/hostile/net/lock; chmod 750 /var/lib/hostile/net/lock",
        "/var/lib/hostile/net/lock",
    ),
    (
        "a lock that is a directory",
        "rm /var/lib/hostile/net/lock; mkdir /var/lib/hostile/net/lock",
        "rmdir /var/lib/hostile/net/lock; touch /var/lib/hostile/net/lock; chmod 750 /var/lib/hostile/net/lock",
        "/var/lib/hostile/net/lock",
    ),
];

#[test]
fn directories_that_others_prepared() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    crate::attack::each(
        PREPARED,
        |case| case.0.to_owned(),
        |(_, prepare, repair, words)| {
            attacked.prepare(prepare)?;
            let answer = attacked.plugin("hostile", "ADD", &good())?;
            let unchanged = attacked.same();
            let refused = Refusal::of(&answer).and_then(|refusal| {
                ensure!(matches!(refusal.code, 5 | 999), "{refusal:?}");
                refusal.expect(refusal.code, words)
            });
            attacked.prepare(repair)?;
            attacked.plugin("hostile", "DEL", &good())?.success()?;
            attacked.look()?;
            refused.and(unchanged)
        },
    )
}

/// Another object has the name of a lease. The address counts as taken, and the object is neither followed nor removed.
#[test]
fn leases_that_others_prepared() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(
        "cd /var/lib/hostile/net; for at in $(seq 4 50); do
           case $((at % 4)) in
             0) ln -s /etc/operator/shadow 10.9.0.$at ;;
             1) mkdir 10.9.0.$at ;;
             2) mkfifo 10.9.0.$at ;;
             3) head -c 1000000 /dev/zero | tr '\\0' x > 10.9.0.$at ;;
           esac; done
         rm -f last_reserved_ip.0; ln -s /etc/operator/shadow last_reserved_ip.0",
    )?;
    for _ in 0..3 {
        let result = attacked.plugin("hostile", "ADD", &good())?.success()?;
        let address =
            result.pointer("/ips/0/address").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        let last: u32 = address.trim_start_matches("10.9.0.").trim_end_matches("/24").parse()?;
        ensure!(last == 3 || last > 50, "an address was given though its lease file is another object: {address}");
        attacked.plugin("hostile", "DEL", &good())?.success()?;
        // host-local replaces this file, and does not follow the link.
        attacked
            .node()
            .sh("cd /var/lib/hostile/net; rm -f last_reserved_ip.0; ln -s /etc/operator/shadow last_reserved_ip.0")?;
        attacked.unchanged()?;
    }
    Ok(())
}
