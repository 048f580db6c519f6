//! A real firewalld, on the node's own message bus. `tests/install-packages firewalld` installs the packages. The tests
//! are `ignored` for nodes without firewalld. `make test-all` runs them, or says that it can't.

use crate::firewall::place::{Place, Side};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use postern_tests::Attachment;
use postern_tests::proof::Refusal;
use serde_json::json;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A bus that only root may use, without the system's users and services.
const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>"#;

/// The node of the other firewall tests, with a firewalld that ends when the value is dropped.
struct Firewalld {
    place: Place,
    daemons: Vec<Child>,
}

impl Firewalld {
    fn new() -> Result<Self> {
        let place = Place::new()?;
        // firewalld has its own chain, which decides about forwarding.
        place.node.sh(
            "iptables -P FORWARD ACCEPT; ip6tables -P FORWARD ACCEPT
             mkdir -p /run/dbus /run/firewalld/zones /run/firewalld/services /run/firewalld/ipsets /run/firewalld/policies /run/firewalld/icmptypes /run/firewalld/helpers",
        )?;
        std::fs::write(place.node.path("/run/dbus/bus.conf"), BUS)?;
        let mut new = Self { place, daemons: Vec::new() };
        new.start("dbus-daemon", &["--config-file=/run/dbus/bus.conf", "--nofork", "--nopidfile"])?;
        new.wait("[ -S /run/dbus/system_bus_socket ]")?;
        new.start("firewalld", &["--nofork", "--nopid", "--system-config", "/run/firewalld"])?;
        new.wait("firewall-cmd --state")?;
        Ok(new)
    }

    fn start(&mut self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = self.place.node.command(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().with_context(|| program.to_owned())?);
        Ok(())
    }

    fn wait(&self, condition: &str) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(30);
        while let Err(error) = self.place.node.sh(&format!("{condition} >/dev/null 2>&1")) {
            ensure!(Instant::now() < until, "{condition}: {error:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Ends only firewalld, which was started last.
    fn stop(&mut self) -> Result<()> {
        self.daemons.pop().into_iter().for_each(end);
        self.wait("! firewall-cmd --state")
    }

    fn sources(&self, zone: &str) -> Result<Vec<String>> {
        let said = self.place.node.sh(&format!("firewall-cmd --zone={zone} --list-sources"))?;
        let mut sources: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
        sources.sort();
        Ok(sources)
    }
}

impl Drop for Firewalld {
    fn drop(&mut self) {
        while let Some(daemon) = self.daemons.pop() {
            end(daemon);
        }
    }
}

/// Ends a daemon. Its process is `timeout`, which passes the signal on.
fn end(mut daemon: Child) {
    let _ = nix::sys::signal::kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM);
    let _ = daemon.wait();
}

fn own(attachment: &Attachment) -> Vec<String> {
    let source = |address: String| format!("{address}/{}", if address.contains(':') { 128 } else { 32 });
    let mut own: Vec<String> = attachment.bare_addresses().into_iter().map(source).collect();
    own.sort();
    own
}

#[test]
#[ignore = "needs firewalld: tests/install-packages firewalld"]
fn firewalld_has_the_addresses_where_it_runs() -> Result<()> {
    let firewalld = Firewalld::new()?;
    let place = &firewalld.place;
    let c1 = place.attach(Side::Ours, "c1", 1, &json!({}))?;
    place.is_cut_off("c1", "192.0.2.2")?;
    c1.call_at(1, "ADD")?.success()?;
    ensure!(firewalld.sources("trusted")? == own(&c1), "{:?}", firewalld.sources("trusted")?);
    ensure!(place.rules("CNI-FORWARD")?.is_empty(), "{:?}", place.rules("")?);
    place.reaches("c1", "192.0.2.2")?;
    for whose in [Side::Ours, Side::Native] {
        whose.of(&c1)?.call_at(1, "CHECK")?.success()?;
    }
    let shown = place.node.sh(&format!("{}/postern show c1 || true", postern_tests::plugin_bin()?.display()))?;
    ensure!(shown.contains("10.9.1.2 by zone trusted of firewalld"), "{shown}");
    // firewalld forgets the addresses when it reloads.
    place.node.sh("firewall-cmd --reload")?;
    ensure!(firewalld.sources("trusted")?.is_empty(), "{:?}", firewalld.sources("trusted")?);
    // The native plugin does not read the answer to its query, so its CHECK succeeds.
    Side::Native.of(&c1)?.call_at(1, "CHECK")?.success()?;
    let refused = Refusal::of(&c1.call_at(1, "CHECK")?)?;
    refused.expect(999, "failed to find the address 10.9.1.2/32 in trusted zone")?;
    let said = place.node.sh(&format!("{}/postern reapply", postern_tests::plugin_bin()?.display()))?;
    ensure!(said.contains("put back: sources in zone trusted of firewalld"), "{said}");
    ensure!(firewalld.sources("trusted")? == own(&c1), "{:?}", firewalld.sources("trusted")?);
    // DEL gets no `prevResult`, and uses the record.
    for _ in 0..2 {
        c1.network.call_at(1, "DEL", "c1", &json!({}))?.success()?;
        ensure!(firewalld.sources("trusted")?.is_empty(), "{:?}", firewalld.sources("trusted")?);
    }
    c1.del()?;
    ensure!(place.records()?.is_empty(), "{}", place.records()?);
    Ok(())
}

/// The configuration chooses backend and zone, within the policy's limits.
#[test]
#[ignore = "needs firewalld: tests/install-packages firewalld"]
fn zones_are_granted() -> Result<()> {
    let firewalld = Firewalld::new()?;
    let place = &firewalld.place;
    let named = json!({"firewalldZone": "internal", "backend": "firewalld"});
    let c1 = place.add("c1", 1, &named)?;
    ensure!(firewalld.sources("internal")? == own(&c1), "{:?}", firewalld.sources("internal")?);
    c1.del()?;
    ensure!(firewalld.sources("internal")?.is_empty(), "{:?}", firewalld.sources("internal")?);
    let c1 = place.add("c1", 1, &json!({"backend": "iptables"}))?;
    ensure!(place.rules("10.9.1.")?.len() == 2 && firewalld.sources("trusted")?.is_empty(), "{:?}", place.rules("")?);
    c1.del()?;
    // Under this policy, a network has to name its zone.
    place.policy("[grant.firewall]\nbackends = [\"firewalld\"]\nadmin-chains = [\"CNI-ADMIN\"]\nzones = [\"${config.firewalldZone}\"]\n[grant.attachments]\n")?;
    let c1 = place.attach(Side::Ours, "c1", 1, &json!({}))?;
    let refused = Refusal::of(&c1.call_at(1, "ADD")?)?;
    refused.expect(110, "firewall.admit on \"trusted\"…zones = [\"${config.firewalldZone}\", \"trusted\"]")?;
    c1.del()?;
    let c1 = place.add("c1", 1, &named)?;
    c1.del()?;
    for (zone, expected) in [
        ("nonexistent", "failed to add the address 10.9.1.…to nonexistent zone: INVALID_ZONE: nonexistent"),
        ("a b", "no policy can allow it"),
        ("-x", "no policy can allow it"),
    ] {
        let c1 = place.attach(Side::Ours, "c1", 1, &json!({"firewalldZone": zone}))?;
        let refused = Refusal::of(&c1.call_at(1, "ADD")?)?;
        refused.expect(refused.code, expected)?;
        c1.del()?;
    }
    Ok(())
}

#[test]
#[ignore = "needs firewalld: tests/install-packages firewalld"]
fn either_side_removes_what_the_other_made() -> Result<()> {
    use Side::{Native, Ours};
    let firewalld = Firewalld::new()?;
    let place = &firewalld.place;
    for (bridge, made, removed) in
        [(Ours, Ours, Native), (Ours, Native, Ours), (Native, Native, Ours), (Native, Ours, Native)]
    {
        let c1 = place.attach(bridge, "c1", 1, &json!({}))?;
        made.of(&c1)?.call_at(1, "ADD")?.success()?;
        ensure!(firewalld.sources("trusted")? == own(&c1), "{made:?}: {:?}", firewalld.sources("trusted")?);
        removed.of(&c1)?.call_at(1, "CHECK")?.success()?;
        removed.of(&c1)?.call_at(1, "DEL")?.success()?;
        ensure!(firewalld.sources("trusted")?.is_empty(), "{made:?}: {:?}", firewalld.sources("trusted")?);
        c1.del()?;
        if bridge == Native {
            Native.of(&c1)?.call_at(0, "DEL")?.success()?;
        }
    }
    Ok(())
}

/// A runtime's directory of plugins is switched while containers run. After each switch, the installed plugins find the
/// addresses in the zone, and each attached container reaches the namespace `out`.
#[test]
#[ignore = "needs firewalld: tests/install-packages firewalld"]
fn a_node_whose_plugins_are_switched() -> Result<()> {
    use Side::{Native, Ours};
    for sides in [[Native, Ours, Native, Ours], [Ours, Native, Ours, Native]] {
        let firewalld = Firewalld::new()?;
        let place = &firewalld.place;
        let named = json!({"backend": "firewalld"});
        let add = |side: Side, container: &str| {
            let attachment = place.attach(side, container, 1, &named)?;
            side.of(&attachment)?.call_at(1, "ADD")?.success().map(|_| attachment)
        };
        let del = |side: Side, attachment: &Attachment| -> Result<()> {
            let attachment = side.of(attachment)?;
            [1, 0].into_iter().try_for_each(|at| attachment.call_at(at, "DEL")?.success().map(drop))
        };
        let stays = add(sides[0], "c1")?;
        let mut moves = add(sides[0], "c2")?;
        let is_healthy = |side: Side, living: &[&Attachment], step: &str| -> Result<()> {
            let mut expected: Vec<String> = living.iter().flat_map(|attachment| own(attachment)).collect();
            expected.sort();
            let found = firewalld.sources("trusted")?;
            ensure!(found == expected, "{step}: {found:?} instead of {expected:?}");
            for attachment in living {
                side.of(attachment)?.call_at(1, "CHECK")?.success().with_context(|| step.to_owned())?;
                place.reaches(&attachment.container, "192.0.2.2").with_context(|| step.to_owned())?;
            }
            Ok(())
        };
        for (at, side) in sides.into_iter().enumerate() {
            let step = format!("{sides:?}, {at}, {side:?}");
            is_healthy(side, &[&stays, &moves], &format!("{step}: switched"))?;
            del(side, &moves)?;
            is_healthy(side, &[&stays], &format!("{step}: one detached"))?;
            moves = add(side, "c2")?;
            is_healthy(side, &[&stays, &moves], &format!("{step}: attached again"))?;
        }
        for attachment in [&stays, &moves] {
            del(sides[3], attachment)?;
            // DEL of our plugins removes the records, which native plugins do not know.
            del(Ours, attachment)?;
        }
        is_healthy(Ours, &[], "at the end")?;
        ensure!(place.records()?.is_empty(), "{}", place.records()?);
    }
    Ok(())
}

/// firewalld's entries end with firewalld, so DEL succeeds without firewalld. An ADD that names firewalld reports that
/// firewalld is missing.
#[test]
#[ignore = "needs firewalld: tests/install-packages firewalld"]
fn del_ends_without_firewalld_too() -> Result<()> {
    let mut firewalld = Firewalld::new()?;
    let c1 = firewalld.place.add("c1", 1, &json!({"backend": "firewalld"}))?;
    firewalld.stop()?;
    let place = &firewalld.place;
    c1.del()?;
    ensure!(place.records()?.is_empty(), "{}", place.records()?);
    let c1 = place.attach(Side::Ours, "c1", 1, &json!({"backend": "firewalld"}))?;
    Refusal::of(&c1.call_at(1, "ADD")?)?
        .expect(999, "which does not run on this node…set \"backend\" to \"iptables\"")?;
    // Without a `backend`, firewall uses iptables.
    let auto = Attachment { network: c1.network.clone().at_with(1, &json!({"backend": null})), ..c1 };
    auto.call_at(1, "ADD")?.success()?;
    ensure!(place.rules("10.9.1.")?.len() == 2, "{:?}", place.rules("")?);
    auto.del()
}
