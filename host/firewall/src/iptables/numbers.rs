//! Removal by the kernel's numbers. No rule of a shared chain is read. To show a rule, the kernel walks through the
//! chain, so the cost would grow with the attachments.

use super::prelude::*;
use crate::nft::batch::Batch;

/// The kernel's numbers of the rules that lead to an owner's chain, and of the tables that they were made in.
///
/// In a table, the kernel never uses the number of a rule again. It never uses the number of a table again. So in the
/// same tables the numbers lead to these rules, or to no rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleHandles<'a> {
    /// The handles of the rules, IPv4 first.
    pub handles: &'a [u64],
    /// The handles of the tables, IPv4 first; empty if they are not known.
    pub tables: &'a [u64],
    /// The place of the rules, according to the record.
    pub recorded: Recorded,
}

impl<'a> RuleHandles<'a> {
    /// Returns the handles of one family's rules, and the handle of their table, if each of these addresses has one
    /// rule.
    pub(super) fn of(self, addrs: &[IpNet], v6: bool) -> Option<(&'a [u64], u64)> {
        let count = addrs.iter().filter(|address| address.addr().is_ipv4()).count();
        let (of_v4, of_v6) = self.handles.split_at_checked(count).filter(|_| self.handles.len() == addrs.len())?;
        let table = self.tables.get(usize::from(v6 && !of_v4.is_empty()))?;
        Some((if v6 { of_v6 } else { of_v4 }, *table))
    }
}

/// Returns the handles of the `nat` tables of these addresses' families, for [`RuleHandles`]. Empty if a table is
/// missing, or if only iptables can read its rules. If the handles are the same before and after rules are made, the
/// rules are in these tables.
#[must_use]
pub fn nat_tables(addrs: &[IpNet], runner: ProgramRunner<'_>) -> Vec<u64> {
    tables(NAT, addrs, runner)
}

pub(super) fn tables(name: &'static str, addrs: &[IpNet], runner: ProgramRunner<'_>) -> Vec<u64> {
    let handle = |v6: bool| {
        let read = |nft: &mut Nft| nft.table(table(v6, name));
        Programs::nft(v6, runner).without(read)?.ok()??.handle
    };
    by_family(addrs).map(|(v6, _)| handle(v6)).collect::<Option<_>>().unwrap_or_default()
}

/// Removes the owner's chain and all rules that lead to it. `numbered` has the handles of these rules, and the handle
/// of their table. `sets` are the forms that the owner's rules can have. Returns the number of removed rules.
///
/// Returns `None`, and changes nothing, if the numbers are not known, or if the table or a rule is gone. The result is
/// also `None` if the chain has other rules, or if foreign rules lead to it.
///
/// # Errors
/// The deadline passes.
pub(super) fn remove(
    sets: &[IptablesRuleSet; 2],
    numbered: Option<(&[u64], u64)>,
    programs: &Programs<'_>,
) -> Result<Option<usize>, FirewallError> {
    let Some(numbered) = numbered else { return Ok(None) };
    let change = |nft: &mut Nft| nft.change(|nft, batch| plan(nft, batch, programs.v6, sets, numbered));
    match programs.without(change) {
        Some(Err(error)) if error.is_timeout() => Err(error),
        // The kernel refuses if a rule is gone, or if another rule leads to the chain. In both cases nothing is removed here.
        removed => Ok(removed.and_then(Result::ok).flatten()),
    }
}

/// Puts the removal into the batch, as [`remove`].
fn plan(
    nft: &mut Nft,
    batch: &mut Batch,
    v6: bool,
    sets: &[IptablesRuleSet; 2],
    (handles, number): (&[u64], u64),
) -> Result<Option<usize>, FirewallError> {
    let (of, mut there) = (table(v6, NAT), None);
    if nft.table(of)?.and_then(|state| state.handle) != Some(number) {
        return Ok(None);
    }
    for set in sets {
        let Some(chain) = &set.owner.chain else { return Ok(None) };
        // If both forms of the chain exist, one form belongs to another owner.
        if let Some(state) = nft.chain(of, chain)?
            && there.replace((set, chain, state.uses)).is_some()
        {
            return Ok(None);
        }
    }
    let Some((set, chain, uses)) = there else { return Ok(None) };
    let is_inside = |rule: &&IptablesRule| rule.chain == *chain;
    let leads = |rule: &&IptablesRule| rule.target_chain() == Some(chain);
    let rules = || set.rules.iter().map(|(_, rule)| rule);
    let own: HashSet<&IptablesRule> = rules().filter(is_inside).collect();
    let inside = netlink::rules_in(nft, of, Some(chain))?;
    let is_own = inside.iter().all(|saved| own.contains(&saved.rule));
    let is_all = usize::try_from(uses).is_ok_and(|uses| uses == inside.len() + handles.len());
    if handles.is_empty() || handles.len() != rules().filter(leads).count() || !is_own || !is_all {
        return Ok(None);
    }
    for handle in handles {
        batch.delete_rule(of, set.owner.home, *handle);
    }
    batch.flush_chain(of, chain);
    batch.delete_chain(of, chain);
    Ok(Some(handles.len() + inside.len()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use nix::sched::{CloneFlags, unshare};
    use postern_confine::{Direct, NoPrograms};

    use super::*;
    use crate::AttachmentKey;
    use crate::hostport::{HostPorts, MarkBy, PortForward};
    use crate::iptables::{ensure_in, remove_known};
    use postern_types::{NatSources, Transport};

    fn sh(script: &str) -> String {
        let output = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn saved() -> Vec<String> {
        let text = sh("iptables-save -t nat; ip6tables-save -t nat");
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    fn key(container_id: &str, ifname: &str) -> AttachmentKey {
        AttachmentKey { network: "n".into(), container_id: container_id.into(), ifname: ifname.into() }
    }

    fn ports(key: AttachmentKey, address: &str, host_port: u16) -> HostPorts {
        let forward = |protocol| PortForward { protocol, host_ip: None, host_port, container_port: 80 };
        HostPorts {
            key,
            address: address.parse().unwrap(),
            forwards: vec![forward(Transport::Tcp), forward(Transport::Udp)],
            sources: NatSources::Own,
            mark: MarkBy::Bit(13),
            conditions: Vec::new(),
        }
    }

    /// Runs a test in its own namespace, over netlink only.
    fn within(test: impl Fn(ProgramRunner<'_>)) {
        assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run this test by cargo, for its runner");
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let (nft, deadline) = (RefCell::new(None), Instant::now() + Duration::from_secs(30));
        test(ProgramRunner { runner: &NoPrograms, deadline, nft: Some(&nft) });
    }

    /// Forwards and masquerading of one attachment go, and rules of other attachments stay, in both families.
    #[test]
    fn the_own_rules_go_and_no_others() {
        within(|runner| {
            let others = [ports(key("c1", "eth0"), "10.1.0.1/16", 8001), ports(key("c2", "eth0"), "fd00::2/64", 8002)];
            let of_others = ["10.1.0.1/16", "fd00::2/64"].map(|address| address.parse().unwrap());
            for other in &others {
                other.iptables_ensure_in(None, runner).unwrap();
                ensure_in(None, &other.key, &of_others, runner).unwrap();
            }
            let before = saved();
            for address in ["10.1.0.3/16", "fd00::3/64"] {
                let own = ports(key("c3", "eth0"), address, 8003);
                let handles = own.iptables_ensure_in(None, runner).unwrap();
                let tables = nat_tables(&[own.address], runner);
                assert_eq!((handles.len(), tables.len()), (2, 1));
                let programs = Programs::locate(address.contains(':'), runner).unwrap();
                let removed = remove(&own.sets().unwrap(), Some((&handles, tables[0])), &programs).unwrap();
                assert_eq!(removed, Some(2 + if address.contains(':') { 4 } else { 6 }), "{address}");
                assert_eq!(saved(), before);
                // The rules are gone already, which is no error.
                let known = RuleHandles { handles: &handles, tables: &tables, ..RuleHandles::default() };
                assert_eq!(own.iptables_remove(known, runner).unwrap(), 0);
            }
            let addrs = ["10.1.0.3/16", "10.2.0.3/16", "fd00::3/64"].map(|address| address.parse().unwrap());
            let handles = ensure_in(None, &key("c3", "eth0"), &addrs, runner).unwrap();
            let tables = nat_tables(&addrs, runner);
            let known = RuleHandles { handles: &handles, tables: &tables, ..RuleHandles::default() };
            assert_eq!((handles.len(), tables.len()), (3, 2));
            assert_eq!(known.of(&addrs, false), Some((&handles[..2], tables[0])));
            assert_eq!(known.of(&addrs, true), Some((&handles[2..], tables[1])));
            assert_eq!(known.of(&addrs[..2], false), None, "there are more handles than addresses");
            // IPv4 has two rules and a chain of three rules; IPv6 has one rule and a chain of two rules.
            assert_eq!(remove_known(&key("c3", "eth0"), &addrs, known, runner).unwrap(), 8);
            assert_eq!(saved(), before);
        });
    }

    /// If something has changed since the rules were made, nothing is removed by numbers. The caller then looks for the
    /// rules.
    #[test]
    fn numbers_that_do_not_tell_all_change_nothing() {
        within(|runner| {
            ports(key("c1", "eth0"), "10.1.0.1/16", 8001).iptables_ensure_in(None, runner).unwrap();
            let own = ports(key("c3", "eth0"), "10.1.0.3/16", 8003);
            let second = ports(key("c3", "eth1"), "10.1.0.4/16", 8004);
            let (sets, programs) = (own.sets().unwrap(), Programs::locate(false, runner).unwrap());
            let chain = sets[0].owner.chain.clone().unwrap();
            let make = || {
                let handles = own.iptables_ensure_in(None, runner).unwrap();
                (handles, nat_tables(&[own.address], runner)[0])
            };
            let refused = |numbered: (&[u64], u64), why: &str| {
                let before = saved();
                assert_eq!(remove(&sets, Some(numbered), &programs).unwrap(), None, "{why}");
                assert_eq!(saved(), before, "{why}");
            };
            let (handles, table) = make();
            refused((&handles[..1], table), "one handle is missing");
            refused((&[], table), "no handle is known");
            refused((&handles, table + 1), "another table");
            let of_second = second.iptables_ensure_in(None, runner).unwrap();
            refused((&handles, table), "another attachment of the container has rules in the chain");
            second.iptables_remove(RuleHandles::default(), runner).unwrap();
            let other = ports(key("c2", "eth0"), "10.1.0.2/16", 8002);
            let of_other = other.iptables_ensure_in(None, runner).unwrap();
            refused((&of_other, table), "rules of another container");
            refused((&of_second, table), "rules that are gone");
            for (what, rule) in [
                ("a foreign rule leads to the chain", format!("PREROUTING -s 192.0.2.1 -j {chain}")),
                ("a foreign rule is in the chain", format!("{chain} -s 192.0.2.1 -j RETURN")),
            ] {
                sh(&format!("iptables -t nat -A {rule}"));
                refused((&handles, table), what);
                sh(&format!("iptables -t nat -D {rule}"));
            }
            sh("iptables-save > /tmp/numbers.$$; iptables-restore < /tmp/numbers.$$; rm /tmp/numbers.$$");
            refused((&handles, table), "the tables were made again");
            let deadline = Instant::now() + Duration::from_secs(30);
            let programs = Programs::locate(false, ProgramRunner { runner: &Direct, deadline, nft: None }).unwrap();
            assert_eq!(remove(&sets, Some((&handles, table)), &programs).unwrap(), None, "by programs");
            let known = RuleHandles { handles: &handles, tables: &[table], ..RuleHandles::default() };
            assert!(own.iptables_remove(known, runner).unwrap() > 0 && !saved().join("\n").contains(&chain));
        });
    }
}
