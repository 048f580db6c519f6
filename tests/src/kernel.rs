//! The kinds of links that the running kernel may lack. A test asks before it runs, and says that it is skipped.
//! `tests/vm/kernel` runs the same programs in a virtual machine whose kernel has them.

use crate::{Node, skip, skip_part};
use anyhow::{Context, Result};

/// Why there are no taps for a test: an ordinary user may not open the file.
pub const NO_TAPS: &str = "this user may not open /dev/net/tun";

/// True if the kernel can make links of this kind: `dummy`, `vlan`, `ipvlan`, `macvlan`, `vrf`, `tap`.
///
/// # Errors
/// No node can be made.
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

/// As [`has`]. Without such links, this test is skipped.
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

/// As [`has`]. Without such links, the part of this test that needs them is skipped.
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
