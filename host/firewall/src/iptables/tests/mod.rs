//! Tests that compare rules over netlink with the iptables programs, and tests of garbage collection.

use super::text::SavedTable;
use super::{SeenTable, Tables};
use crate::{AttachmentKey, FirewallError};

mod oracle;
mod without_the_program;

#[test]
fn busy_owners_are_asked_only_if_something_would_be_removed() {
    let saved = SavedTable::parse("-A C -m comment --comment a -j X\n-A C -m comment --comment b -j X\n");
    let tables = Tables(vec![SeenTable { v6: false, program: String::new(), saved }]);
    let owner = |id: &str| AttachmentKey { network: "n".into(), container_id: id.to_owned(), ifname: String::new() };
    let stale = |network: &str, valid: &[&str], busy: Option<&str>| {
        let named = |id: &str| (id.to_owned(), "eth0".to_owned());
        let busy = || Ok(vec![named(busy.ok_or_else(|| FirewallError::new("ask", "", ""))?)]);
        let valid: Vec<(String, String)> = valid.iter().map(|id| named(id)).collect();
        tables.stale(network, &valid, busy, |rule| rule.comment().map(owner))
    };
    for (network, valid) in [("n", &["a", "b"][..]), ("other", &[])] {
        assert_eq!(stale(network, valid, None).unwrap(), Vec::new());
    }
    assert!(stale("n", &["a"], None).is_err());
    assert_eq!(stale("n", &[], Some("b")).unwrap(), [owner("a")]);
}
