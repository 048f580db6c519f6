//! Sysctls of tuning: finds sysctls that no container's network namespace has, and values that the kernel refuses.

use super::finding::{Sheet, below};
use super::text::{Member, Node};
use std::collections::BTreeSet;

/// Settings of the whole node in each kernel so far: a container's network namespace lacks them, or has them read-only.
const OF_THE_NODE: [&str; 17] = [
    "net.core.bpf_jit_enable",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_mem",
    "net.ipv4.udp_mem",
    "net.netfilter.nf_conntrack_buckets",
    "net.netfilter.nf_conntrack_max",
];

/// Directories with settings below them. In the last four, each link has a directory.
const DIRECTORIES: [&str; 9] = [
    "net.core",
    "net.ipv4",
    "net.ipv6",
    "net.netfilter",
    "net.unix",
    "net.ipv4.conf",
    "net.ipv6.conf",
    "net.ipv4.neigh",
    "net.ipv6.neigh",
];

/// Checks the sysctls that a network gives to all its containers, and the sysctls in its `args`.
pub fn check(sheet: &mut Sheet<'_>, node: &Node, path: &str) {
    let args = node.get("args").and_then(|args| args.get("cni"));
    let of_args = args.map(|cni| (cni, below(&below(path, "args"), "cni")));
    for (object, here) in [Some((node, path.to_owned())), of_args].into_iter().flatten() {
        let here = below(&here, "sysctl");
        let mut seen = BTreeSet::new();
        for member in object.get("sysctl").map(Node::members).unwrap_or_default() {
            let (key, path) = (member.name.replace('/', "."), below(&here, &member.name));
            if !seen.insert(key.clone()) {
                sheet.error("duplicate-key", member.at, &path, "this sysctl is given twice", "keep one value");
            }
            one(sheet, member, &path, &key);
        }
    }
}

/// Checks a sysctl. `key` has dots between its parts.
fn one(sheet: &mut Sheet<'_>, member: &Member, path: &str, key: &str) {
    let is_bad = |part: &str| part.is_empty() || part.contains(char::is_whitespace);
    let parts: Vec<&str> = key.split('.').collect();
    if !key.starts_with("net.") || parts.iter().copied().any(is_bad) {
        let message = "only sysctls below `net` belong to the container's network";
        sheet.error("bad-value", member.at, path, message, "use a sysctl such as `net.core.somaxconn`");
        return;
    }
    let is_of_link = DIRECTORIES.iter().skip(5).any(|above| parts.len() == 4 && key.starts_with(above));
    if DIRECTORIES.contains(&key) || is_of_link {
        let message = "this is a directory of sysctls, and no sysctl";
        sheet.error(
            "bad-value",
            member.at,
            path,
            message,
            "name a sysctl below it, such as `net.ipv4.conf.all.rp_filter`",
        );
    } else if OF_THE_NODE.contains(&key) {
        let message = "an ADD would fail: this is a setting of the whole node, and no container has its own";
        sheet.warning("add-fails", member.at, path, message, "the operator sets it for the node, in /etc/sysctl.d");
    } else if let Some(text) = member.value.text().filter(|text| is_number(&parts) && !is_read_as_number(text)) {
        let message = format!("the kernel takes a number here, and not {}", postern_cni::quote(text));
        sheet.error("bad-value", member.value.at, path, message, "use a number such as \"1\"");
    }
}

/// True for settings of links. All of them are numbers, except `stable_secret`.
fn is_number(parts: &[&str]) -> bool {
    matches!(parts, ["net", "ipv4" | "ipv6", "conf", _, .., name] if *name != "stable_secret")
}

/// True if the kernel reads a text as a number. The kernel skips white space, takes an empty text for no change, and
/// reads only one number.
fn is_read_as_number(text: &str) -> bool {
    let Some(word) = text.split_whitespace().next() else { return true };
    let digits = word.strip_prefix('-').unwrap_or(word);
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
