//! The form of each operation in the audit log: its name, and its `request` with the keys in their order. Scripts read
//! this form.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod samples;

use postern_types::{Capability, Operation, WithoutGrant};
use samples::samples;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;

#[test]
fn the_audit_log_keeps_its_form() {
    let mut text = String::new();
    for operation in samples() {
        let json = serde_json::to_string(&operation.logged()).unwrap();
        writeln!(text, "{} {} {json}", operation.name(), operation.lasting().name()).unwrap();
        assert!(!json.contains("null"), "an absent value has no key: {json}");
    }
    assert_eq!(text, include_str!("operations.golden"));
}

#[test]
fn every_operation_is_in_the_list() {
    let listed: BTreeSet<&str> = samples().iter().map(Operation::name).collect();
    let all: BTreeSet<&str> =
        Capability::ALL.iter().flat_map(|capability| capability.rows()).map(|row| row.name).collect();
    assert_eq!(listed, all);
}

#[test]
fn a_name_begins_with_its_capability() {
    for operation in samples() {
        let capability = operation.capability();
        let name = operation.name().strip_prefix(capability.name()).and_then(|rest| rest.strip_prefix('.'));
        assert!(name.is_some_and(|function| !function.is_empty()), "{}", operation.name());
        assert!(capability.rows().contains(operation.row()));
        assert_eq!(Capability::parse(capability.name()), Some(capability));
    }
    assert_eq!(Capability::parse("netlink"), None);
}

/// An operation that removes an attachment's effects needs no grant on DEL. A reviewer has to see each exception.
#[test]
fn few_operations_need_less_or_more_than_others_on_del() {
    let rows = || Capability::ALL.iter().flat_map(|capability| capability.rows());
    let allowed = rows().filter(|row| row.without_grant == WithoutGrant::Allowed).map(|row| row.name);
    let removals = "masquerade.remove mac-guard.remove ipam.del port-mappings.remove firewall.remove bandwidth.remove \
                    link-settings.restore delegate.del source-routes.remove vrf.leave notes.get";
    assert_eq!(allowed.collect::<Vec<_>>().join(" "), removals);
    let other = rows().filter(|row| row.without_grant != WithoutGrant::of(row.lasting));
    let other: Vec<String> = other.map(|row| format!("{} {:?}", row.name, row.without_grant)).collect();
    let expected = [
        "link.delete IfLinkMaker",
        "link.own IfLinkMaker",
        "ipam.del Allowed",
        "leases.release IfAddressPlugin",
        "loopback.down IfNamed",
        "device.give-back IfLinkMaker",
        "delegate.del Allowed",
        "dhcp.release IfAddressPlugin",
        "notes.get Allowed",
    ];
    assert_eq!(other, expected);
}

/// If the table did not list a handle, `postern plan` would take the handle for another link's handle.
#[test]
fn the_table_lists_every_handle() {
    for mut operation in samples() {
        let json = serde_json::to_value(operation.logged()).unwrap();
        let named: BTreeSet<u64> = ["link", "host", "bridge", "parent"]
            .iter()
            .filter_map(|key| json.get(key).and_then(Value::as_u64))
            .collect();
        let listed: BTreeSet<u64> = operation.handles().into_iter().map(|(handle, _)| u64::from(*handle)).collect();
        assert_eq!(listed, named, "{json}");
    }
}

/// These facts decide which rights a run opens and keeps.
#[test]
fn where_capabilities_act() {
    let names = |wanted: fn(Capability) -> bool| {
        let all = Capability::ALL.iter().filter(|capability| wanted(**capability));
        all.map(|capability| capability.name()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names(Capability::acts_in_container),
        "link veth addresses routes link-sysctl loopback parent macvlan vlan ipvlan dummy tap device firewall bandwidth namespace-sysctl link-settings delegate source-routes vrf dhcp"
    );
    assert_eq!(names(|capability| !capability.acts_in_kernel()), "ipam leases resolv-conf notes");
}
