//! `postern install` as packages and containers call it, and its repair: lost files, diversions, links, read-only nodes.

use anyhow::{Context, Result, ensure};
use postern_tests::{Network, Node, copy_bin, flat, native_bin, plugin_bin, skip};
use serde_json::{Value, json};
use std::path::Path;

/// A build, in which a test may change files.
const BUILD: &str = "/run/build";
const PLUGINS: &str = "host-local,ptp,static";

/// Makes a node with a separate `/usr/local`, a build, and no native plugins in the usual directories.
fn node() -> Result<Node> {
    let node = Node::new()?;
    let copy = copy_bin(&plugin_bin()?, BUILD);
    node.sh("for bin in /opt/cni/bin /usr/lib/cni /usr/libexec/cni; do [ ! -d $bin ] || mount -t tmpfs -o mode=755 hidden $bin; done")?;
    node.sh(&format!("mount -t tmpfs -o mode=755 local /usr/local; mkdir /usr/local/lib /usr/local/bin; {copy}"))?;
    Ok(node)
}

/// Returns the words of a command of the build's `postern-admin`, which has to succeed.
fn admin(node: &Node, words: &str) -> Result<String> {
    node.sh(&format!("{BUILD}/postern-admin {words} 2>&1")).map(|printed| flat(&printed))
}

/// Returns the words of a command that has to fail.
fn refused(node: &Node, words: &str) -> Result<String> {
    node.sh(&format!("! {BUILD}/postern-admin {words} 2>&1")).map(|printed| flat(&printed))
}

/// Attaches a container and detaches it, by the plugin in a directory.
fn runs(node: &Node, bin: &str, container: &str) -> Result<()> {
    node.add_container(container)?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]});
    let config = json!({"cniVersion": "1.0.0", "type": "ptp", "ipam": ipam});
    let net = Network::new(node, &config)?.by(Path::new(bin));
    net.add(container)?.del()?;
    Ok(())
}

/// What doctor says of plugins' files: severity, defect and remedy, and its exit status.
fn doctor(node: &Node) -> Result<(Vec<[String; 3]>, i32)> {
    let answer = node.postern_of("/usr/local/bin", "doctor --json --conf-dir /run/conf")?;
    let report: Value = serde_json::from_str(&answer.stdout).context("doctor")?;
    let findings = report.get("findings").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_file = |finding: &&Value| {
        let what = finding["what"].as_str().unwrap_or_default();
        finding["area"] == "plugins" && (what.contains("of Postern w") || what.contains("has no file of"))
    };
    let texts = |finding: &Value| {
        ["severity", "what", "remedy"].map(|key| finding[key].as_str().unwrap_or_default().to_owned())
    };
    Ok((findings.iter().filter(is_file).map(texts).collect(), answer.status))
}

#[test]
fn doctor_names_all_lost_files_with_one_remedy() -> Result<()> {
    let node = node()?;
    let native = native_bin()?;
    let native = native.display();
    admin(&node, &format!("install --bin-dir /run/bin --bin-dir /run/other --plugins {PLUGINS}"))?;
    ensure!(doctor(&node)?.0.is_empty(), "{:?}", doctor(&node)?);
    let looked = node.postern_of("/usr/local/bin", "doctor --conf-dir /run/conf")?.words();
    ensure!(looked.contains("this postern in /usr/local/lib/postern, installed by source"), "{looked}");

    // As an installer of native plugins in one directory, and the removal of a package in the other.
    node.sh(&format!("cp {native}/ptp {native}/static /run/bin/; rm /run/other/ptp"))?;
    let (found, status) = doctor(&node)?;
    let what =
        "3 files of Postern were replaced or removed: replaced in /run/bin: ptp, static; gone from /run/other: ptp";
    let remedy = "postern install --bin-dir /run/bin --bin-dir /run/other";
    ensure!(status == 1 && found == [["error", what, remedy].map(str::to_owned)], "{status} {found:?}");
    node.sh(&format!("PATH=/usr/local/bin:$PATH; {remedy}"))?;
    ensure!(doctor(&node)?.0.is_empty(), "{:?}", doctor(&node)?);
    node.sh(&format!("cmp {native}/ptp /run/bin/ptp.native; test ! -e /run/other/ptp.native"))?;
    runs(&node, "/run/bin", "c1")?;

    // The directory itself went with its package.
    node.sh("rm -r /run/other")?;
    let (found, status) = doctor(&node)?;
    let what = "3 files of Postern were replaced or removed: gone from /run/other: host-local, ptp, static";
    let remedy = "postern install --bin-dir /run/other";
    ensure!(status == 1 && found == [["error", what, remedy].map(str::to_owned)], "{status} {found:?}");
    node.sh(&format!("PATH=/usr/local/bin:$PATH; {remedy}"))?;
    ensure!(doctor(&node)?.0.is_empty() && node.sh("ls /usr/local/lib/postern/versions | wc -l")? == "1\n");

    // A plugin that the operator takes away is noted, until a list needs the plugin.
    node.sh("rm /run/bin/ptp* /run/other/ptp")?;
    admin(&node, "install --bin-dir /run/bin --bin-dir /run/other --plugins host-local,static")?;
    let (found, _) = doctor(&node)?;
    ensure!(
        found.len() == 2
            && found.iter().all(|[severity, what, _]| severity == "note" && what.ends_with("plugins: ptp")),
        "{found:?}"
    );
    node.sh(r#"mkdir -p /run/conf; echo '{"cniVersion": "1.0.0", "name": "n", "type": "ptp"}' > /run/conf/n.conf"#)?;
    let (found, status) = doctor(&node)?;
    let what = "2 files of Postern were replaced or removed: gone from /run/bin: ptp; gone from /run/other: ptp";
    let remedy = "postern install --bin-dir /run/bin --bin-dir /run/other --plugins ptp";
    ensure!(status == 1 && found == [["error", what, remedy].map(str::to_owned)], "{status} {found:?}");
    node.sh(&format!("PATH=/usr/local/bin:$PATH; {remedy}"))?;
    ensure!(doctor(&node)?.0.is_empty(), "{:?}", doctor(&node)?);
    Ok(())
}

#[test]
fn the_remedy_keeps_the_prefix_and_the_means() -> Result<()> {
    let node = node()?;
    admin(&node, &format!("install --prefix /usr/local/other --by image --bin-dir /run/bin --plugins {PLUGINS}"))?;
    node.sh("rm /run/bin/ptp")?;
    let answer = node.postern_of("/usr/local/other/bin", "doctor --conf-dir /run/conf")?;
    let remedy = "/usr/local/other/bin/postern install --prefix /usr/local/other --bin-dir /run/bin";
    let shown = remedy.strip_prefix("/usr/local/other/bin/").unwrap_or_default();
    ensure!(answer.status == 1 && answer.words().contains(shown), "{answer:?}");
    node.sh(&format!("{remedy}; test \"$(cat /usr/local/other/lib/postern/installed-by)\" = image"))?;
    runs(&node, "/run/bin", "c1")
}

#[test]
fn names_are_diverted_in_a_debian_root() -> Result<()> {
    let node = node()?;
    if node.sh("command -v dpkg-divert").is_err() {
        skip("dpkg-divert is not installed");
        return Ok(());
    }
    let native = native_bin()?;
    node.sh(&format!("mkdir /run/bin; cp {}/ptp /run/bin", native.display()))?;
    let tree = || node.sh("find /usr/local /run/bin -printf '%p %y %m %s %l %T@\\n' | sort");
    let list = || node.sh("LC_ALL=C dpkg-divert --list");
    let before = tree()?;
    // Without a dpkg, nothing is changed. The database of a node's dpkg is in /var/lib, which is empty here.
    let printed = refused(&node, &format!("install --divert --bin-dir /run/bin --plugins {PLUGINS}"))?;
    ensure!(printed.contains("--divert needs dpkg-divert and /var/lib/dpkg") && tree()? == before, "{printed}");
    node.sh("mkdir -p /var/lib/dpkg; touch /var/lib/dpkg/status /var/lib/dpkg/diversions")?;
    node.sh("dpkg-divert --quiet --package theirs --no-rename --divert /run/bin/static.theirs --add /run/bin/static")?;
    let printed = refused(&node, &format!("install --divert --bin-dir /run/bin --plugins {PLUGINS}"))?;
    ensure!(
        printed.contains("/run/bin/static is diverted to /run/bin/static.theirs: `dpkg-divert --list /run/bin/static`"),
        "{printed}"
    );
    ensure!(tree()? == before, "{}", tree()?);
    node.sh("dpkg-divert --quiet --package theirs --no-rename --remove /run/bin/static")?;
    let printed = admin(&node, &format!("install --divert --bin-dir /run/bin --plugins {PLUGINS} --dry-run"))?;
    ensure!(printed.contains("3 names would be diverted") && tree()? == before && list()?.is_empty(), "{printed}");

    for (by, owner) in [("source", "local diversion"), ("deb", "diversion")] {
        // Twice: an upgrade finds its own diversions.
        for _ in 0..2 {
            admin(
                &node,
                &format!("install --divert --by {by} --bin-dir /run/bin --bin-dir /run/other --plugins {PLUGINS}"),
            )?;
        }
        let diverted = list()?;
        ensure!(diverted.lines().count() == 6 && diverted.lines().all(|line| line.starts_with(owner)), "{diverted}");
        ensure!(diverted.contains(&format!("{owner} of /run/bin/ptp to /run/bin/ptp.native")), "{diverted}");
        runs(&node, "/run/bin", &format!("c-{by}"))?;
        // One directory loses its diversions, then the other.
        admin(&node, "uninstall --yes --bin-dir /run/other")?;
        ensure!(list()?.lines().count() == 3, "{}", list()?);
        admin(&node, "uninstall --yes --from-package")?;
        ensure!(list()?.is_empty(), "{}", list()?);
        ensure!(node.sh("ls /run/bin")? == "ptp\n");
    }
    // In the root of an image, its dpkg counts.
    node.sh("mkdir -p /run/root/var/lib/dpkg; touch /run/root/var/lib/dpkg/status /run/root/var/lib/dpkg/diversions")?;
    admin(&node, &format!("install --destdir /run/root --divert --bin-dir /usr/lib/cni --plugins {PLUGINS}"))?;
    let of_root = node.sh("LC_ALL=C dpkg-divert --root /run/root --list")?;
    ensure!(
        of_root.lines().count() == 3 && of_root.contains("of /usr/lib/cni/ptp to") && list()?.is_empty(),
        "{of_root}"
    );
    Ok(())
}

#[test]
fn a_packages_files_are_linked_and_may_go() -> Result<()> {
    let node = node()?;
    let bundle = "/usr/local/lib/postern/bundle/1";
    node.sh(&format!("mkdir -p {bundle}; cp -a {BUILD}/. {bundle}; chmod g+w {bundle}/postern-wasi"))?;
    let install = |by: &str| {
        node.sh(&format!(
            "{bundle}/postern-admin install --from {bundle} --by {by} --bin-dir /run/bin --plugins {PLUGINS} 2>&1"
        ))
    };
    let links = || {
        node.sh(&format!(
            "cd {bundle}; stat -c %h postern postern-admin postern.d/ptp.cwasm postern-wasi | paste -sd ' '"
        ))
    };
    install("source")?;
    ensure!(links()? == "1 1 1 1\n", "an installation from source has links: {}", links()?);
    node.sh(&format!("{BUILD}/postern-admin uninstall --yes"))?;
    node.sh(&format!("chmod g-w {bundle}/postern-wasi"))?;
    install("deb")?;
    ensure!(links()? == "2 2 2 2\n", "{}", links()?);
    let modes = node.sh(
        "cd /usr/local/lib/postern/current/; stat -c %a postern postern-wasi postern.d/ptp.cwasm | paste -sd ' '",
    )?;
    ensure!(modes == "755 755 644\n", "{modes}");
    // An equal version is used again.
    install("deb")?;
    ensure!(node.sh("ls /usr/local/lib/postern/versions | wc -l")? == "1\n");
    // A package manager replaces files by renaming, and then deletes the old package's files.
    node.sh(&format!("cd {bundle}; echo new > postern.new; mv postern.new postern; cat postern.d/ptp.cwasm > x; mv x postern.d/ptp.cwasm"))?;
    runs(&node, "/run/bin", "c1")?;
    node.sh(&format!("rm -r {bundle}; mkdir {bundle}; echo theirs > {bundle}/file"))?;
    runs(&node, "/run/bin", "c2")?;
    let printed = flat(&node.sh(&format!("{BUILD}/postern-admin uninstall --yes --from-package 2>&1"))?);
    ensure!(!printed.contains("files that were not installed"), "{printed}");
    ensure!(node.sh(&format!("ls /usr/local/lib/postern; cat {bundle}/file"))? == "bundle\ntheirs\n");
    // The bundle is on another file system.
    let printed = admin(&node, &format!("install --by rpm --bin-dir /run/bin --plugins {PLUGINS}"))?;
    ensure!(node.sh(&format!("stat -c %h {BUILD}/postern"))? == "1\n", "{printed}");
    runs(&node, "/run/bin", "c3")
}

#[test]
fn files_of_others_are_noted_or_refused() -> Result<()> {
    let node = node()?;
    node.sh(&format!("chmod 664 {BUILD}/postern.d/ptp.cwasm"))?;
    let install = |by: &str| format!("install --by {by} --bin-dir /run/bin --plugins {PLUGINS}");
    // All files of a package or an image belong to root.
    for by in ["deb", "rpm", "image", "sysext"] {
        let printed = refused(&node, &install(by))?;
        ensure!(printed.contains("/run/build/postern.d/ptp.cwasm can be written by others"), "{by}: {printed}");
        ensure!(printed.contains("Nothing of /run/build was installed"), "{by}: {printed}");
        ensure!(node.sh("ls /usr/local/lib")?.is_empty(), "{by}");
    }
    // A user may have unpacked an archive.
    let printed = admin(&node, &install("archive"))?;
    ensure!(printed.contains("The present files of /run/build are installed"), "{printed}");
    Ok(())
}

#[test]
fn a_packages_manager_removes_its_installation() -> Result<()> {
    let node = node()?;
    let state = || node.sh("find /run/postern /var/lib/postern -printf '%p %y %m %s\\n' | sort");
    for (by, command) in [("deb", "`apt remove postern`"), ("rpm", "`dnf remove postern`")] {
        admin(&node, &format!("install --by {by} --bin-dir /run/bin --plugins {PLUGINS}"))?;
        // Another directory does not change the means.
        admin(&node, "upgrade --bin-dir /run/other")?;
        ensure!(node.sh("cat /usr/local/lib/postern/installed-by")?.trim() == by, "{by}");
        for words in ["uninstall --yes", "uninstall --dry-run"] {
            let printed = refused(&node, words)?;
            ensure!(printed.contains(command) && printed.contains("--from-package"), "{words}: {printed}");
        }
        runs(&node, "/run/bin", &format!("c-{by}"))?;
        // The package's purge removes records and notes.
        let before = state()?;
        let printed = admin(&node, "uninstall --yes --from-package --keep-state")?;
        ensure!(state()? == before && !before.is_empty(), "{printed}");
        ensure!(node.sh("ls /usr/local/lib")?.is_empty(), "{printed}");
    }
    admin(&node, &format!("install --by deb --bin-dir /run/bin --plugins {PLUGINS}"))?;
    admin(&node, "uninstall --yes --from-package")?;
    ensure!(node.sh("ls -d /run/postern /var/lib/postern 2>/dev/null || true")?.is_empty());
    Ok(())
}

/// Calls a command as a container of a DaemonSet does: only two directories of the node can be written, the root is
/// read-only, and no capability is left.
const CONTAINER: &str = r#"unshare --mount --propagation private sh -euc '
    for place in /run/host/usr/local/lib/postern /run/host/opt/cni/bin; do mount --bind $place $place; done
    while read -r _ _ _ _ place options _; do
      case $place in /run/host/*) continue ;; esac
      mount -o "remount,bind,ro,$(echo "$options" | sed "s/^rw,\?//; s/^ro,\?//")" "$place" 2> /dev/null || true
    done < /proc/self/mountinfo
    for place in / /usr /usr/local /etc /run /run/host /run/host/usr/local /tmp; do
      if [ -w $place ]; then echo "$place can be written"; exit 9; fi
    done
    exec setpriv --bounding-set=-all --inh-caps=-all "$@"' sh "#;

#[test]
fn a_container_installs_with_two_mounts_and_no_capability() -> Result<()> {
    let node = node()?;
    node.sh("mkdir -p /run/host/usr/local/lib/postern /run/host/opt/cni/bin /run/host/etc; echo native > /run/host/opt/cni/bin/ptp")?;
    let tree = || node.sh("cd /run/host; find . -printf '%p %y %m %U %s %l\\n' | sort");
    let before = tree()?;
    let call = |words: &str| {
        node.sh(&format!("{CONTAINER} {BUILD}/postern-admin {words} --destdir /run/host --prefix /usr/local 2>&1"))
            .map(|printed| flat(&printed))
    };
    for _ in 0..2 {
        let printed = call("install --by image --bin-dir /opt/cni/bin")?;
        for object in ["the command postern is left out", "the units of the DHCP service are left out"] {
            ensure!(printed.contains(object), "{printed}");
        }
        ensure!(!printed.contains("systemctl"), "{printed}");
    }
    let outside = node.sh(
        "cd /run/host; find . -path ./usr/local/lib/postern -prune -o -path ./opt/cni/bin -prune -o -print | sort",
    )?;
    ensure!(outside == ".\n./etc\n./opt\n./opt/cni\n./usr\n./usr/local\n./usr/local/lib\n", "{outside}");
    // The node itself then runs the plugins.
    node.sh("cp -a /run/host/usr/local/lib/postern /usr/local/lib/")?;
    runs(&node, "/run/host/opt/cni/bin", "c1")?;
    let printed = call("uninstall --yes")?;
    ensure!(
        tree()? == before && !printed.contains("not installed"),
        "{printed}\nbefore:\n{before}\nafter:\n{}",
        tree()?
    );
    Ok(())
}
