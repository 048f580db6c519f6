//! The kinds of links that the running kernel may lack. A test first checks for its kind of link. Without this kind,
//! the test counts as skipped. `tests/vm/kernel` runs the same tests in a virtual machine whose kernel has all these
//! links.

use crate::{Node, skip, skip_part};
use anyhow::{Context, Result};

/// The skip reason of tests with taps for an ordinary user.
pub const NO_TAPS: &str = "this user may not open /dev/net/tun";

/// True if the kernel can make links of this kind: `dummy`, `vlan`, `ipvlan`, `macvlan`, `vrf`, `tap`.
///
/// # Errors
/// The node of the test can't be made.
pub fn has(kind: &str) -> Result<bool> {
    let node = Node::new()?;
    let make = match kind {
        "vlan" => "ip link add link probe0 name probe2 type vlan id 5".to_owned(),
        "ipvlan" | "macvlan" => format!("ip link add link probe0 name probe2 type {kind}"),
        "vrf" => "ip link add probe2 type vrf table 9".to_owned(),
        "tap" => "ip tuntap add dev probe2 mode tap".to_owned(),
        kind => format!("ip link add probe2 type {kind}"),
    };
    let script = format!("ip link add probe0 type veth peer name probe1; {make} 2> /dev/null && echo yes || true");
    Ok(node.sh(&script).context("a probe of the kernel")? == "yes\n")
}

/// As [`has`]. If the kernel lacks such links, this test counts as skipped.
///
/// # Errors
/// As [`has`].
pub fn has_or_skips(kind: &str) -> Result<bool> {
    let here = has(kind)?;
    if !here {
        skip(&format!("this kernel has no {kind} links"));
    }
    Ok(here)
}

/// As [`has`]. If the kernel lacks such links, the part of this test that needs them counts as skipped.
///
/// # Errors
/// As [`has`].
pub fn has_or_skips_part(kind: &str) -> Result<bool> {
    let here = has(kind)?;
    if !here {
        skip_part(kind, &format!("this kernel has no {kind} links"));
    }
    Ok(here)
}
