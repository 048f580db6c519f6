//! `namespace-sysctl`: kernel settings of the container's network namespace that the operator's configuration lists.
//!
//! A key must lead to a setting that each network namespace has for itself. The kernel shows this: the file exists and
//! is writable in the container's namespace, and is not the file of the host's namespace. Since Linux 5.12 only the
//! first namespace may write a shared setting. The settings in [`SHARED`] are exceptions. A test writes each setting in
//! a namespace, and compares the node's settings.

pub mod effect;

use crate::capability::facts::{Facts, NEVER};
use crate::context::System;
use crate::effect::NamespaceSetting;
use crate::errors::{kernel_error, native_error};
use crate::gate::Gate;
use crate::named::each_value;
use crate::places;
use crate::right::Right;
use postern_cni::{Json, NetConf, Verb};
use postern_kernel::sysctl::{self, Setting, SettingFile};
use postern_policy::Granted;
use postern_policy::capability::namespace_sysctl::is_key;
use postern_types::{ErrorCode, OpError, host};
use regex_lite::Regex;
use std::io::Read;
use std::path::Path;

/// The native plugin's list of keys that an operator allows.
pub const ALLOW_LIST: &str = "/etc/cni/tuning/allowlist.conf";

const LIST_LIMIT: u64 = 64 << 10;

/// The most bytes of a value. The kernel takes less than a page.
const VALUE_LIMIT: usize = 4000;

/// The most lines of the allow-list in a refusal.
const SHOWN: usize = 16;

/// A setting that only the first namespace of a machine has.
const OF_THE_FIRST: [&str; 2] = ["core", "dev_weight"];

/// Settings that all namespaces share, but that the kernel lets each namespace write. Linux still allows this for the
/// last setting. Linux before 5.12 allowed it for all of them.
const SHARED: [&str; 5] = [
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_expect_max",
    "net/nf_conntrack_max",
    "net/ipv4/tcp_allowed_congestion_control",
    "net/netfilter/nf_hooks_lwtunnel",
];

/// The hint for a key that leads to no file, and for a key of another link.
const DOTS: &str = "dots and slashes separate the parts of a key, so a key can't contain a link's name with a dot. IFNAME \
                    stands for the name of the attachment's own link, for example in `net.ipv4.conf.IFNAME.arp_filter`";

pub(crate) const FACTS: Facts =
    Facts { keeps: |request, _| (request.verb == Verb::Add).then(|| Right::File(ALLOW_LIST.into())), ..NEVER };

/// Returns the settings that are read in the container's namespace, in addition to the settings that a network lists.
pub fn looks() -> Vec<Setting> {
    Setting::new(OF_THE_FIRST).into_iter().collect()
}

/// True if the network lists settings that need a thread in the container's namespace. Settings of links that come and
/// go need no thread. Settings of `all`, `default` and `lo` need the thread: if they are opened from outside, the
/// kernel keeps their entries as long as the namespace.
pub fn take_thread(conf: &NetConf, ifname: &str) -> bool {
    let is_of_link = |key: &str| {
        below_net(key, ifname).is_none_or(|path| match path.split('/').collect::<Vec<_>>().as_slice() {
            ["ipv4" | "ipv6", "conf", link, ..] => !matches!(*link, "all" | "default" | "lo"),
            _ => false,
        })
    };
    any_pair(conf, |key, _| is_key(key) && !is_of_link(key))
}

impl host::NamespaceSysctl for Gate<'_> {
    fn set(&mut self, key: &str, value: &str) -> Result<(), OpError> {
        let (path, setting) = resolve(self, key, value)?;
        allowed(key)?;
        let file = own_file(self.run.system, key, &setting)?;
        let container = self.run.system.container_required()?;
        // A setting that can only be written has no value to restore (`net.ipv4.route.flush`).
        let before = match file.readable {
            true => Some(container.setting_read(&setting).map_err(|error| refused(error, &setting))?),
            false => None,
        };
        if before.as_deref() == Some(value) {
            return Ok(());
        }
        if let Some(before) = before {
            let note = NamespaceSetting::note(self.run.view(), path, before)?;
            self.run.journal.intend(self.run.view(), note)?;
        }
        container.setting_write(&setting, value).map_err(|error| refused(error, &setting))?;
        Ok(())
    }

    fn check(&mut self, key: &str, value: &str) -> Result<(), OpError> {
        let (_, setting) = resolve(self, key, value)?;
        let container = self.run.system.container_required()?;
        let have = container.setting_read(&setting).map_err(|error| refused(error, &setting))?;
        // The values are compared without blanks, because the kernel writes tabs between numbers.
        if have.split_whitespace().eq(value.split_whitespace()) {
            return Ok(());
        }
        let message =
            format!("Error: Tuning configured value of /proc/sys/{setting} is {value}, current value is {have}");
        Err(OpError::new(ErrorCode::Mismatch, key, message))
    }
}

/// Returns the kernel's refusal in the native plugin's words.
fn refused(error: postern_kernel::KernelError, setting: &Setting) -> OpError {
    let act = if error.errno == Some(nix::libc::EINVAL) { "write" } else { "open" };
    native_error(error, &setting.to_string(), format_args!("{act} /proc/sys/{setting}"))
}

/// Returns the parts of a configuration's key below `net`, with slashes between them, and the setting to which the key
/// leads.
fn resolve(gate: &Gate<'_>, key: &str, value: &str) -> Result<(String, Setting), OpError> {
    let request = gate.run.request;
    let invalid = |message: String| OpError::new(ErrorCode::InvalidArgument, key, message);
    // Go reads `null` as the empty text.
    if value.is_empty() && any_entry(&request.conf, |name, value| name == key && matches!(value, Json::Null)) {
        let message = format!("the value for {key} is null, and a setting needs a text");
        return Err(invalid(message).hint("name a value, or leave the key out"));
    }
    // Any object of the configuration may list the key: plugins of third parties have keys of their own.
    if !any_pair(&request.conf, |name, text| name == key && text == value) {
        let message = format!("the network's configuration does not list {key:?} with this value");
        return Err(invalid(message)
            .hint("a plugin can only set a pair of key and text that the configuration or `args.cni.sysctl` lists"));
    }
    if !is_value(value) {
        let message =
            format!("the value for {key} is invalid: a value may have {VALUE_LIMIT} bytes, and no control characters");
        return Err(invalid(message));
    }
    let path = below_net(key, &request.ifname).ok_or_else(|| {
        invalid(format!("invalid net sysctl key: {key:?}")).hint("keys are net.ipv4.ip_forward and the like")
    })?;
    own_link(&path, &request.ifname, gate.guest.granted())?;
    let setting = NamespaceSetting::setting(&path)?;
    Ok((path, setting))
}

/// True if `holds` is true for a key and its value in one of the configuration's objects.
fn any_entry(conf: &NetConf, holds: impl Fn(&str, &Json) -> bool) -> bool {
    let mut found = false;
    each_value(conf, &mut |value| {
        if let Json::Object(entries) = value {
            found |= entries.iter().any(|(key, value)| holds(key, value));
        }
    });
    found
}

/// True if `holds` is true for a key and its text in the operator's configuration or `args.cni.sysctl`. All other keys
/// that a runtime adds may come from the container's user.
fn any_pair(conf: &NetConf, holds: impl Fn(&str, &str) -> bool) -> bool {
    let holds = |key: &str, value: &Json| matches!(value, Json::String(text) if holds(key, text));
    if any_entry(conf, holds) {
        return true;
    }
    let fields = conf.fields();
    let args = fields.object("args").ok().flatten();
    let cni = args.and_then(|args| args.object("cni").ok().flatten());
    let map = cni.and_then(|cni| cni.map("sysctl").ok().flatten()).unwrap_or_default();
    map.into_iter().any(|(key, value)| holds(key, value))
}

fn is_value(value: &str) -> bool {
    value.len() <= VALUE_LIMIT && !value.chars().any(|c| c.is_control() && c != '\t')
}

/// Returns the parts of a key below `net`, with slashes between them. The first `IFNAME` stands for the name of the
/// attachment's link. `None` if the parts of the key are not exact names.
fn below_net(key: &str, ifname: &str) -> Option<String> {
    if !is_key(key) {
        return None;
    }
    key.replace('.', "/").replacen("IFNAME", ifname, 1).strip_prefix("net/").map(str::to_owned)
}

/// Refuses the settings of another link of the container, which may belong to another attachment.
fn own_link(path: &str, ifname: &str, granted: &Granted) -> Result<(), OpError> {
    let parts: Vec<&str> = path.split('/').collect();
    let [_, "conf" | "neigh", link, _, ..] = parts.as_slice() else { return Ok(()) };
    if *link == ifname || matches!(*link, "all" | "default" | "lo") || granted.may_set_other_links() {
        return Ok(());
    }
    let message = format!("net/{path} is a setting of \"{link}\", and this attachment's link is \"{ifname}\"");
    let error = OpError::new(ErrorCode::Denied, *link, message);
    // If the name of the attachment's link has a dot, the key probably means this link.
    let is_own = ifname.split('.').next() == Some(*link) && ifname.contains('.');
    Err(error.hint(if is_own { DOTS.to_owned() } else { granted.object_hint("namespace-sysctl.other-links", "true") }))
}

/// Returns the file of a setting. Each namespace must have this setting for itself.
fn own_file(system: &System, key: &str, setting: &Setting) -> Result<SettingFile, OpError> {
    let container = system.container_required()?;
    let look = |setting: &Setting| container.setting_look(setting).map_err(kernel_error);
    let Some(file) = look(setting)? else {
        let message = format!("open /proc/sys/{setting}: no such file or directory");
        let is_of_link = setting.to_string().split('/').any(|part| matches!(part, "conf" | "neigh"));
        let way_out =
            if is_of_link { DOTS } else { "this kernel has no such setting in a container's network namespace" };
        return Err(OpError::new(ErrorCode::NotFound, key, message).hint(way_out));
    };
    if !file.is_file {
        return Err(OpError::new(ErrorCode::InvalidArgument, key, format!("open /proc/sys/{setting}: is a directory")));
    }
    let of_the_first = NamespaceSetting::setting(&OF_THE_FIRST.join("/"))?;
    let on_host = sysctl::look(setting).map_err(kernel_error)?;
    let is_shared = on_host.is_some_and(|on_host| on_host.inode == file.inode)
        || !file.writable
        || SHARED.contains(&setting.to_string().as_str())
        || look(&of_the_first)?.is_some();
    if is_shared {
        let message = format!("{key} is no setting that this container's network namespace has for itself");
        return Err(OpError::new(ErrorCode::InvalidArgument, key, message)
            .hint("the operator sets the settings of the node, in /etc/sysctl.d"));
    }
    Ok(file)
}

/// Fails if the operator's allow-list does not match the key as it is written.
fn allowed(key: &str) -> Result<(), OpError> {
    let Some(list) = allow_list()? else { return Ok(()) };
    let lines = list.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    let mut shown = Vec::new();
    for (number, line) in lines {
        let pattern = Regex::new(line).map_err(|error| {
            let message = format!("{ALLOW_LIST}, line {}: {line:?} is no regular expression: {error}", number + 1);
            OpError::new(ErrorCode::Denied, ALLOW_LIST, message).hint("correct the line; until then no sysctl is set")
        })?;
        if pattern.is_match(key) {
            return Ok(());
        }
        if shown.len() <= SHOWN {
            shown.push(if shown.len() < SHOWN { line.to_owned() } else { "...".to_owned() });
        }
    }
    let shown = shown.join(" ");
    let message = format!("Sysctl {key} is not allowed. Only the following sysctls are allowed: [{shown}]");
    Err(OpError::new(ErrorCode::Denied, key, message).hint(format!("an operator can add the key to {ALLOW_LIST}")))
}

fn allow_list() -> Result<Option<String>, OpError> {
    let path = Path::new(ALLOW_LIST);
    let failed = |error: &dyn std::fmt::Display| OpError::new(ErrorCode::Io, ALLOW_LIST, error.to_string());
    let Some(file) = places::open_trusted(path).map_err(|error| failed(&error))? else { return Ok(None) };
    places::trust(path).map_err(|error| failed(&error))?;
    let mut text = String::new();
    file.take(LIST_LIMIT + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > LIST_LIMIT {
        return Err(failed(&format_args!("{ALLOW_LIST} is longer than {LIST_LIMIT} bytes")));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use postern_policy::Policy;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::sync::mpsc;

    const SETTINGS: &str = "/proc/sys";

    /// Returns the files below a directory of settings, as this thread's namespace shows them.
    fn files(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => files(&entry.path(), found),
                false => found.push(entry.path()),
            }
        }
    }

    /// Returns values that a setting may take, except its present value.
    fn others(value: &str) -> Vec<String> {
        let numbers: Option<Vec<i64>> = value.split_whitespace().map(|word| word.parse().ok()).collect();
        let moved = |by: i64| {
            let moved = numbers.iter().flatten().map(|number| number.saturating_add(by).to_string());
            moved.collect::<Vec<_>>().join(" ")
        };
        let mut all: Vec<String> = [1, -1, 2].map(moved).into();
        all.extend(["0", "1", "2", "reno", "cubic", "default", "NONE", "nfnetlink_log"].map(str::to_owned));
        all.retain(|other| !other.is_empty() && !other.split_whitespace().eq(value.split_whitespace()));
        all
    }

    /// The list of shared settings is complete for this kernel. The test writes all settings outside of the list in a
    /// namespace, and the node's settings must not change.
    #[test]
    fn what_a_namespace_writes_changes_no_other() {
        let in_list =
            |path: &Path| path.strip_prefix(SETTINGS).is_ok_and(|key| SHARED.iter().any(|of| key == Path::new(of)));
        let read_all = || {
            let mut found = Vec::new();
            files(Path::new("/proc/sys/net"), &mut found);
            found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).ok())).collect::<BTreeMap<_, _>>()
        };
        let before = read_all();
        let (wrote, written) = mpsc::channel();
        let (look, looked) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                unshare(CloneFlags::CLONE_NEWNET).unwrap();
                let mut own = Vec::new();
                files(Path::new("/proc/sys/net"), &mut own);
                for path in own {
                    let is_writable = fs::metadata(&path).is_ok_and(|file| file.permissions().mode() & 0o200 != 0);
                    // Read-only settings and shared settings are not written: the test could not restore all of them.
                    if !is_writable || in_list(&path) {
                        continue;
                    }
                    let value = fs::read_to_string(&path).unwrap_or_default();
                    let changed = others(&value).iter().any(|other| fs::write(&path, other).is_ok());
                    wrote.send((path.clone(), changed)).unwrap();
                    looked.recv().unwrap();
                    if changed {
                        let _ = fs::write(&path, value);
                    }
                }
            });
            let mut count = 0;
            for (path, changed) in written {
                count += usize::from(changed);
                // A file that the host's namespace does not have is no setting of the node.
                let is_same = fs::read_to_string(&path).ok() == before.get(&path).cloned().flatten();
                look.send(()).unwrap();
                assert!(is_same || !before.contains_key(&path), "{} also changed on the node", path.display());
            }
            assert!(count > 300, "only {count} settings were written");
        });
        let after = read_all();
        let changed = before.iter().filter(|(path, value)| after.get(*path).is_some_and(|now| now != *value));
        assert_eq!(changed.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
        assert!(in_list(Path::new("/proc/sys/net/netfilter/nf_hooks_lwtunnel")));
    }

    #[test]
    fn a_key_leads_to_the_setting_of_that_name() {
        for (key, ifname, path) in [
            ("net.core.somaxconn", "eth0", "core/somaxconn"),
            ("net/ipv4/ip_forward", "eth0", "ipv4/ip_forward"),
            ("net.ipv4.conf.IFNAME.arp_filter", "eth0", "ipv4/conf/eth0/arp_filter"),
            ("net.ipv4.conf.IFNAME.arp_filter", "eth0.1", "ipv4/conf/eth0.1/arp_filter"),
            ("net.ipv4.conf.IFNAME.IFNAME", "eth0", "ipv4/conf/eth0/IFNAME"),
            ("net.ipv4.conf.eth0.1.arp_filter", "eth0.1", "ipv4/conf/eth0/1/arp_filter"),
        ] {
            assert_eq!(below_net(key, ifname).as_deref(), Some(path), "{key}");
            NamespaceSetting::setting(path).unwrap();
        }
        for key in [
            "kernel.hostname",
            "net",
            "net..ipv4.ip_forward",
            "net.../kernel/hostname",
            "net.ipv4.ip_forward.",
            "IFNAME.x",
        ] {
            assert_eq!(below_net(key, "net"), None, "{key}");
        }
    }

    #[test]
    fn only_settings_of_links_take_no_thread() {
        let takes = |text: &str| {
            let text = format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"tuning"{text}}}"#);
            take_thread(&NetConf::parse(Json::parse(text.as_bytes(), text.len()).unwrap()).unwrap(), "eth0")
        };
        for text in [
            "",
            r#","sysctl":{}"#,
            r#","sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net/ipv6/conf/eth0/accept_ra":"0"}"#,
            // The key is refused before its file is read.
            r#","sysctl":{"kernel.hostname":"x"}"#,
        ] {
            assert!(!takes(text), "{text}");
        }
        for text in [
            r#","sysctl":{"net.core.somaxconn":"1"}"#,
            r#","sysctl":{"net.ipv4.conf.eth0.arp_filter":"1","net.ipv4.ip_forward":"1"}"#,
            r#","SYSCTL":{"net.ipv4.neigh.eth0.gc_stale_time":"1"}"#,
            r#","args":{"cni":{"sysctl":{"net.core.somaxconn":"1"}}}"#,
        ] {
            assert!(takes(text), "{text}");
        }
    }

    #[test]
    fn other_links_are_others() {
        let granted = |policy: &str| Policy::parse(policy, "tuning.toml").unwrap().resolve(&Json::Null, "").unwrap();
        let plain = granted("[grant.namespace-sysctl]\nkeys = [\"net.*\"]");
        let open = granted("[grant.namespace-sysctl]\nkeys = [\"net.*\"]\nother-links = \"true\"");
        for (path, is_own) in [
            ("ipv4/conf/eth0/arp_filter", true),
            ("ipv4/conf/all/arp_filter", true),
            ("ipv6/conf/default/accept_ra", true),
            ("ipv4/neigh/lo/gc_stale_time", true),
            ("ipv4/ip_forward", true),
            ("ipv4/conf/eth1/arp_filter", false),
            ("ipv6/neigh/eth1/gc_stale_time", false),
            ("mpls/conf/eth1/input", false),
            ("ipv4/conf/eth0/1/arp_filter", true),
            ("ipv4/conf/eth/0/arp_filter", false),
        ] {
            assert_eq!(own_link(path, "eth0", &plain).is_ok(), is_own, "{path}");
            assert!(own_link(path, "eth0", &open).is_ok(), "{path}");
        }
        let refusal = own_link("ipv4/conf/eth1/arp_filter", "eth0", &plain).unwrap_err();
        assert!(refusal.hint.contains("other-links = \"true\""), "{refusal}");
    }

    #[test]
    fn values_are_bounded() {
        assert!(is_value("1024\t65000") && is_value("") && is_value(&"1".repeat(VALUE_LIMIT)));
        for value in ["1\n", "1\n2", "\0", "\u{1b}[1m", &"1".repeat(VALUE_LIMIT + 1)] {
            assert!(!is_value(value), "{value:?}");
        }
    }
}
