//! `postern install`, `upgrade` and `rollback` with their options; plugins that were compiled elsewhere, or added to an
//! installation that no command changes.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::{Network, Node, copy_bin, flat, plugin_bin};
use serde_json::json;
use std::path::Path;

/// A build, in which a test may change files.
const BUILD: &str = "/run/build";
/// Two CNI bin directories.
const BINS: [&str; 2] = ["/run/bin", "/run/other"];
/// The catalog of the installation.
const CATALOG: &str = "/usr/local/lib/postern/postern.d";

/// Makes a node with a separate `/usr/local` and a build. The component and the policy of ptp lie in `/run`.
fn node() -> Result<Node> {
    let node = Node::new()?;
    let wasm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wasm32-wasip2/guest/postern-ptp.wasm");
    node.sh(&format!(
        "mount -t tmpfs -o mode=755 local /usr/local; mkdir /usr/local/lib /usr/local/bin; {}
         cp {} /run/theirs.wasm; cp {BUILD}/postern.d/ptp.toml /run/theirs.toml",
        copy_bin(&plugin_bin()?, BUILD),
        wasm.display()
    ))?;
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

/// Returns the name of the version that new runs use.
fn current(node: &Node) -> Result<String> {
    node.sh("readlink /usr/local/lib/postern/current")
}

fn install(node: &Node) -> Result<String> {
    let [one, other] = BINS;
    admin(node, &format!("install --bin-dir {one} --bin-dir {other} --plugins host-local,ptp,static"))
}

/// Runs the code of the plugin `theirs`, which is ptp: attaches a container and detaches it.
fn runs(node: &Node, container: &str) -> Result<()> {
    node.add_container(container)?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]});
    let config = json!({"cniVersion": "1.0.0", "type": "theirs", "ipam": ipam});
    let net = Network::new(node, &config)?.by(Path::new("/run/bin"));
    net.add(container)?.del()?;
    Ok(())
}

#[test]
fn a_dry_run_changes_nothing() -> Result<()> {
    let node = node()?;
    let [bin, _] = BINS;
    let tree = || node.sh("find /usr/local /run/bin /run/other /run/build -printf '%p %y %m %s %l %T@\\n' 2>&1 | sort");
    node.sh(&format!("mkdir {bin}; echo native > {bin}/ptp"))?;
    let before = tree()?;
    let shown = admin(&node, &format!("install --bin-dir {bin} --plugins ptp,static --dry-run"))?;
    ensure!(shown.contains("2 files of plugins would be placed in /run/bin"), "{shown}");
    ensure!(shown.contains("kept as NAME.native: ptp") && shown.contains("nothing was changed"), "{shown}");
    ensure!(tree()? == before, "install");
    // What an installation would refuse, its dry run refuses.
    let printed = refused(&node, "install --bin-dir /run/theirs.toml --plugins ptp --dry-run")?;
    ensure!(printed.contains("there is no CNI bin directory /run/theirs.toml"), "{printed}");
    install(&node)?;
    node.sh(&format!("echo '# second' >> {BUILD}/postern.d/ptp.toml"))?;
    admin(&node, "upgrade")?;
    let before = tree()?;
    for (words, expected) in [
        ("upgrade --dry-run", "3 files of plugins would be placed in /run/other"),
        ("rollback --dry-run", "new runs would use"),
        ("uninstall --dry-run", "3 files of Postern in /run/bin; 1 native plugin is put back"),
    ] {
        let shown = admin(&node, words)?;
        ensure!(shown.contains(expected), "{words}: {shown}");
        ensure!(tree()? == before, "{words} changed a file");
    }
    Ok(())
}

#[test]
fn an_upgrade_keeps_plugins_and_directories_and_is_rolled_back() -> Result<()> {
    let node = node()?;
    ensure!(refused(&node, "upgrade")?.contains("has no installation; --prefix names another place"));
    ensure!(refused(&node, "rollback")?.contains("has no installation with versions"));
    install(&node)?;
    ensure!(refused(&node, "rollback")?.contains("has no earlier version than"), "a first version has an earlier one");
    let first = current(&node)?;
    node.sh(&format!("echo '# second' >> {BUILD}/postern.d/ptp.toml"))?;
    admin(&node, "upgrade")?;
    let second = current(&node)?;
    ensure!(first != second, "{first}");
    for bin in BINS {
        ensure!(node.sh(&format!("ls {bin}"))? == "host-local\nptp\nstatic\n");
        ensure!(node.sh(&format!("{bin}/ptp 2>&1"))?.starts_with("CNI ptp plugin"));
    }
    ensure!(node.sh(&format!("ls {CATALOG}/*.json | wc -l"))? == "3\n");
    // A rollback can be taken back.
    for expected in [&first, &second] {
        admin(&node, "rollback")?;
        ensure!(current(&node)? == *expected);
        ensure!(node.sh("/run/bin/ptp 2>&1")?.starts_with("CNI ptp plugin"));
    }
    // The version before the last installation is kept, however old it is.
    node.sh("touch -d '1 year ago' /usr/local/lib/postern/versions/*")?;
    admin(&node, "upgrade")?;
    ensure!(node.sh("ls /usr/local/lib/postern/versions | wc -l")? == "2\n");
    admin(&node, "uninstall --yes")?;
    ensure!(node.sh("ls -d /usr/local/lib/* /run/bin /run/other 2>/dev/null || true")?.is_empty());
    Ok(())
}

#[test]
fn a_plugin_that_was_compiled_elsewhere_is_added() -> Result<()> {
    let node = node()?;
    install(&node)?;
    let printed = admin(&node, "compile /run/theirs.wasm --policy /run/theirs.toml -o /run/bundle")?;
    ensure!(printed.contains("postern add /run/bundle/theirs.json"), "{printed}");
    ensure!(node.sh("ls /run/bundle")? == "theirs.cwasm\ntheirs.json\ntheirs.toml\n");
    let unknown = "compile /run/theirs.wasm --policy /run/theirs.toml --architecture riscv64 -o /run/bundle";
    ensure!(refused(&node, unknown)?.contains("does not compile for the architecture \"riscv64\""), "riscv64");
    // The name of an architecture is known without a compilation.
    node.sh(&format!("mv {BUILD}/postern-compiler /run/hidden"))?;
    ensure!(refused(&node, unknown)?.contains("does not compile for the architecture \"riscv64\""), "no compiler");
    node.sh(&format!("mv /run/hidden {BUILD}/postern-compiler"))?;
    // The installation has no compiler from here on.
    node.sh("rm /usr/local/lib/postern/current/postern-compiler")?;
    let postern =
        |words: &str| node.sh(&format!("/usr/local/bin/postern {words} 2>&1 || true")).map(|text| flat(&text));
    let missing = postern("add /run/theirs.wasm --policy /run/theirs.toml")?;
    ensure!(missing.contains("install the package postern-compiler"), "{missing}");
    for (change, words) in [
        ("echo >> /run/bundle/theirs.cwasm", "its code has another digest than its manifest"),
        (
            "sed -i 's/wasmtime-48/wasmtime-47/' /run/bundle/theirs.json",
            "its code is for another engine, \"wasmtime-47",
        ),
        ("sed -i 's/\"theirs\"/\"mine\"/' /run/bundle/theirs.json", "its manifest belongs to \"mine\""),
        ("rm /run/bundle/theirs.toml", "/run/bundle/theirs.toml: No such file"),
        ("chmod 666 /run/bundle/theirs.cwasm", "chmod go-w"),
    ] {
        node.sh(&format!("cp -a /run/bundle /run/kept; {change}"))?;
        let printed = postern("add /run/bundle/theirs.json --bin /run/bin")?;
        ensure!(printed.contains(words), "{change}: {printed}");
        ensure!(node.sh("ls /run/bin")? == "host-local\nptp\nstatic\n", "{change}");
        node.sh("rm -r /run/bundle; mv /run/kept /run/bundle")?;
    }
    let printed = postern("add /run/bundle/theirs.json --bin /run/bin")?;
    ensure!(printed.contains("theirs: placed as /run/bin/theirs"), "{printed}");
    runs(&node, "c1")
}

#[test]
fn an_upgrade_compiles_an_added_plugin_again_or_replaces_nothing() -> Result<()> {
    let node = node()?;
    install(&node)?;
    node.sh("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --bin /run/bin")?;
    admin(&node, "compile /run/theirs.wasm --policy /run/theirs.toml -o /run/bundle")?;
    // As after a change of the engine.
    let other = || node.sh(&format!("sed -i 's/wasmtime-48/wasmtime-47/' {CATALOG}/theirs.json"));
    let tree = || node.sh("find /usr/local /run/bin /run/other -printf '%p %y %m %s %l %T@\\n' | sort");
    other()?;
    let printed = admin(&node, "upgrade")?;
    ensure!(printed.contains("plugin \"theirs\" was compiled again, for wasmtime-48"), "{printed}");
    runs(&node, "c2")?;
    let ways = |printed: &str| {
        [
            "plugin \"theirs\" has code for another engine, and nothing was replaced",
            "install postern-compiler",
            "postern-admin add theirs.json",
        ]
        .iter()
        .all(|words| printed.contains(words))
    };
    // Without a compiler, and with a compiler but without the component.
    let hide = "mv /run/build/postern-compiler /run/hidden";
    let show = "mv /run/hidden /run/build/postern-compiler";
    other()?;
    node.sh(hide)?;
    let before = tree()?;
    let printed = refused(&node, "upgrade --without-missing")?;
    ensure!(ways(&printed) && tree()? == before, "{printed}");
    node.sh(&format!("{show}; mv {CATALOG}/theirs.wasm /run/component"))?;
    let before = tree()?;
    let printed = refused(&node, "upgrade")?;
    ensure!(ways(&printed) && printed.contains("its component") && tree()? == before, "{printed}");
    // Another component is not taken for the plugin's own.
    node.sh(&format!("cp /run/component {CATALOG}/theirs.wasm; printf '\\0\\3\\1xy' >> {CATALOG}/theirs.wasm"))?;
    let printed = refused(&node, "upgrade")?;
    ensure!(printed.contains("is not the component of the installed plugin"), "{printed}");
    // The way out of a node without a compiler.
    node.sh(hide)?;
    admin(&node, "add /run/bundle/theirs.json")?;
    admin(&node, "upgrade --without-missing")?;
    runs(&node, "c3")
}

#[test]
fn a_build_with_fewer_programs_takes_none_away() -> Result<()> {
    let node = node()?;
    install(&node)?;
    let first = current(&node)?;
    node.sh(&format!("rm {BUILD}/postern-wasi {BUILD}/postern-dhcpd"))?;
    for words in ["upgrade", "upgrade --dry-run", "install --bin-dir /run/bin --plugins ptp"] {
        let printed = refused(&node, words)?;
        for expected in
            ["has no postern-dhcpd, postern-wasi", "add postern-dhcp, postern-wasi of the same", "--without-missing"]
        {
            ensure!(printed.contains(expected), "{words}: {printed}");
        }
        ensure!(current(&node)? == first, "{words} replaced the version");
    }
    admin(&node, "upgrade --without-missing")?;
    ensure!(node.sh("ls /usr/local/lib/postern/current/ | grep -c -e wasi -e dhcpd || true")? == "0\n");
    // A rollback says what the earlier version lacks, even if it lacks all plugins.
    admin(&node, "rollback")?;
    let printed = admin(&node, "rollback --dry-run")?;
    ensure!(printed.contains("lacks these programs: postern-dhcpd, postern-wasi"), "{printed}");
    node.sh("rm /usr/local/lib/postern/previous/postern.d/*")?;
    let printed = admin(&node, "rollback --dry-run")?;
    ensure!(printed.contains("lacks these plugins, whose runs fail then: host-local, ptp, static"), "{printed}");
    // An installation was killed between its two links.
    node.sh("cd /usr/local/lib/postern; ln -sfn $(readlink current) previous")?;
    let printed = refused(&node, "rollback")?;
    ensure!(printed.contains("was interrupted before it replaced") && printed.contains("install again"), "{printed}");
    Ok(())
}

#[test]
fn the_builds_code_of_an_added_plugin_is_proven() -> Result<()> {
    let node = node()?;
    install(&node)?;
    node.sh("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --bin /run/bin")?;
    admin(&node, "compile /run/theirs.wasm --policy /run/theirs.toml -o /run/bundle")?;
    admin(&node, "add /run/bundle/theirs.json")?;
    node.sh(&format!("sed -i 's/wasmtime-48/wasmtime-47/' {CATALOG}/theirs.json"))?;
    let code = format!("{BUILD}/postern.d/theirs.cwasm");
    node.sh(&format!("cp {code} /run/code; echo >> {code}"))?;
    let printed = refused(&node, "upgrade --plugins ptp")?;
    ensure!(printed.contains("plugin \"theirs\" of the build /run/build is not in order"), "{printed}");
    node.sh(&format!("cp /run/code {code}"))?;
    admin(&node, "upgrade --plugins ptp")?;
    // The build has no component, and the component of the earlier code is not kept beside the new code.
    let files = node.sh(&format!("cd {CATALOG}/; echo theirs.*"))?;
    ensure!(files == "theirs.cwasm theirs.json theirs.toml\n", "{files}");
    runs(&node, "c1")
}

#[test]
fn an_added_plugin_stays_or_nothing_is_replaced() -> Result<()> {
    let node = node()?;
    install(&node)?;
    node.sh("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --bin /run/bin")?;
    let first = current(&node)?;
    node.sh(&format!("chmod 664 {CATALOG}/theirs.cwasm; echo '# second' >> {BUILD}/postern.d/ptp.toml"))?;
    let printed = refused(&node, "upgrade")?;
    let ways = ["theirs.cwasm can be written by others", "`chmod go-w ", "`postern remove theirs`"];
    ensure!(ways.iter().all(|words| printed.contains(words)) && current(&node)? == first, "{printed}");
    node.sh(&format!("chmod 644 {CATALOG}/theirs.cwasm"))?;
    // The directories above an image's root are not the directories on the node.
    let library = "/run/shared/root/usr/local/lib/postern";
    node.sh("mkdir -p /run/shared/root; chmod 777 /run/shared")?;
    admin(&node, "install --destdir /run/shared/root --plugins ptp")?;
    node.sh(&format!("cp -a {CATALOG}/theirs.* {library}/postern.d/; echo '# third' >> {BUILD}/postern.d/ptp.toml"))?;
    admin(&node, "install --destdir /run/shared/root --plugins ptp")?;
    ensure!(node.sh(&format!("ls {library}/versions | wc -l; ls {library}/postern.d/theirs.json"))?.starts_with("2\n"));
    // There too, nobody but root may change the files themselves.
    node.sh(&format!("chmod 664 {library}/postern.d/theirs.cwasm"))?;
    let printed = refused(&node, "install --destdir /run/shared/root --plugins ptp")?;
    ensure!(printed.contains("theirs.cwasm can be written by others"), "{printed}");
    Ok(())
}

#[test]
fn a_users_build_compiles_an_added_plugin_again() -> Result<()> {
    let node = node()?;
    install(&node)?;
    node.sh("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --bin /run/bin")?;
    node.sh(&format!("sed -i 's/wasmtime-48/wasmtime-47/' {CATALOG}/theirs.json; chmod 775 {BUILD}/postern-compiler"))?;
    let printed = refused(&node, "upgrade")?;
    ensure!(printed.contains("has code for another engine, and nothing was replaced"), "{printed}");
    // Whoever can replace the compiler could replace this program too.
    node.sh(&format!("chmod 755 {BUILD}/postern-compiler; chmod 777 {BUILD}"))?;
    let printed = admin(&node, "upgrade")?;
    ensure!(printed.contains("plugin \"theirs\" was compiled again"), "{printed}");
    ensure!(printed.contains("The present files of /run/build are installed"), "{printed}");
    runs(&node, "c1")
}

#[test]
fn an_error_says_if_the_version_is_in_use() -> Result<()> {
    let node = node()?;
    node.sh("mkdir -p /usr/local/lib/postern/placed-files")?;
    let printed = refused(&node, "install --bin-dir /run/bin --plugins ptp")?;
    let version = current(&node)?.trim().trim_start_matches("versions/").to_owned();
    let words = format!("new runs use {version}, but the installation is not complete");
    ensure!(printed.contains(&words) && printed.contains("placed-files"), "{printed}");
    node.sh("rmdir /usr/local/lib/postern/placed-files")?;
    install(&node)?;
    // The installed program has no other version to install.
    let (printed, is_done) = postern(&node, "upgrade")?;
    ensure!(
        is_done && printed.contains("is the installed version; a new version is installed by its own"),
        "{printed}"
    );
    Ok(())
}

/// Makes an installation that is read-only, as in an image. `theirs` is added to it.
fn fixed() -> Result<Node> {
    let node = node()?;
    install(&node)?;
    node.sh("mount -o remount,ro /usr/local")?;
    let printed = node
        .sh("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --bin /run/bin")
        .map(|text| flat(&text))?;
    ensure!(printed.contains("with its policy in /var/lib/postern/postern.d"), "{printed}");
    Ok(node)
}

/// Returns the words of a command of the installation, and whether it succeeds.
fn postern(node: &Node, words: &str) -> Result<(String, bool)> {
    let printed = node.sh(&format!("/usr/local/bin/postern {words} 2>&1 && echo done || true"))?;
    Ok((flat(&printed), printed.ends_with("done\n")))
}

#[test]
fn a_plugin_is_added_to_an_installation_that_is_read_only() -> Result<()> {
    let node = fixed()?;
    let catalog = node.sh("ls /var/lib/postern/postern.d; stat -c %a /var/lib/postern/postern.d")?;
    ensure!(catalog == "theirs.cwasm\ntheirs.json\ntheirs.toml\ntheirs.wasm\n755\n", "{catalog}");
    runs(&node, "c1")?;
    // Commands for people know the plugin.
    let (printed, _) = postern(&node, "inspect theirs")?;
    ensure!(printed.contains("/var/lib/postern/postern.d/theirs.toml"), "{printed}");
    let (printed, _) = postern(&node, "doctor --bin /run/bin")?;
    ensure!(printed.contains("plugins: host-local, ptp, static, theirs"), "{printed}");
    ensure!(printed.contains("/var/lib/postern/postern.d") && !printed.contains("ERROR"), "{printed}");
    // After a change of the engine, doctor has the command that compiles the plugin again.
    node.sh("sed -i 's/wasmtime-48/wasmtime-47/' /var/lib/postern/postern.d/theirs.json")?;
    let (printed, _) = postern(&node, "doctor --bin /run/bin")?;
    let again = "postern add /var/lib/postern/postern.d/theirs.wasm --policy /var/lib/postern/postern.d/theirs.toml";
    ensure!(printed.contains("for another engine") && printed.contains(again), "{printed}");
    node.sh(&format!("/usr/local/bin/{again}"))?;
    runs(&node, "c2")?;
    // A second directory for runtimes is noted outside of the installation.
    node.sh("mkdir /run/third; /usr/local/bin/postern add theirs --bin /run/third")?;
    ensure!(node.sh("cat /var/lib/postern/bin-directories")? == "/run/third\n");
    ensure!(node.sh("cat /var/lib/postern/placed-files")? == "/run/bin/theirs\n/run/third/theirs\n");
    // Lost files are placed one by one; files below /usr come with the image of a system extension.
    let lose = "rm /run/third/theirs; echo native > /run/bin/ptp";
    node.sh(lose)?;
    let (printed, _) = postern(&node, "doctor --bin /run/bin")?;
    let one_by_one = "postern add ptp --bin /run/bin && postern add theirs --bin /run/third";
    ensure!(printed.contains("gone from /run/third: theirs") && printed.contains(one_by_one), "{printed}");
    node.sh(&format!("PATH=/usr/local/bin:$PATH; {one_by_one}"))?;
    let (printed, _) = postern(&node, "doctor --bin /run/bin")?;
    ensure!(!printed.contains("of Postern were"), "{printed}");
    node.sh(&format!(
        "mount -o remount,rw /usr/local; cd /usr/local/lib/postern; echo sysext > installed-by
         echo /usr/local/cni >> bin-directories; echo /usr/local/cni/ptp >> placed-files; mount -o remount,ro /usr/local; {lose}"
    ))?;
    let (printed, _) = postern(&node, "doctor --bin /run/bin")?;
    ensure!(printed.contains(&format!("systemd-sysext refresh && {one_by_one}")), "{printed}");
    // A name of the installation is refused, and the message names both catalogs.
    let (printed, is_done) = postern(&node, "add /run/theirs.wasm --name ptp --policy /run/theirs.toml")?;
    let both = ["plugin \"ptp\" is in /usr/local/lib/postern/", "in /var/lib/postern/postern.d it would never run"];
    ensure!(!is_done && both.iter().all(|words| printed.contains(words)), "{printed}");
    // An image goes as a whole, and its plugins' files in other directories go before.
    let printed = refused(&node, "uninstall --yes")?;
    ensure!(printed.contains("`postern uninstall --prefix /usr/local --bin-dir DIR`"), "{printed}");
    let (printed, is_done) = postern(&node, "uninstall --yes --bin-dir /run/bin")?;
    ensure!(is_done && node.sh("ls /run/bin | grep theirs || true")?.is_empty(), "{printed}");
    Ok(())
}

#[test]
fn an_added_plugin_is_removed_when_no_attachment_needs_it() -> Result<()> {
    let node = fixed()?;
    node.add_container("c1")?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]});
    let config = json!({"cniVersion": "1.0.0", "type": "theirs", "ipam": ipam});
    let network = Network::new(&node, &config)?.by(Path::new("/run/bin"));
    let attachment = network.add("c1")?;
    let (printed, _) = postern(&node, "ls --json")?;
    let digest = node.sh("sha256sum < /run/theirs.wasm | cut -c 1-64")?;
    ensure!(printed.contains(&format!("\"installed\": \"{}\"", digest.trim())), "{printed}");
    for (plugin, words) in [
        ("theirs", "plugin \"theirs\" works for container c1"),
        ("ptp", "plugin \"ptp\" comes with Postern, and stays"),
        ("none", "there is no plugin \"none\" in /usr/local/lib/postern/"),
        ("../theirs", "is no name of a plugin"),
    ] {
        let (printed, is_done) = postern(&node, &format!("remove {plugin}"))?;
        ensure!(!is_done && printed.contains(words), "{plugin}: {printed}");
    }
    attachment.del()?;
    // Other plugins call an IPAM plugin or a delegate: its name is in configurations only.
    let called = json!({"type": "theirs"});
    let needing = [
        json!({"type": "bridge", "ipam": called}),
        json!({"type": "flannel", "delegate": called}),
        json!({"type": "flannel", "delegate": {"type": "bridge", "ipam": called}}),
    ];
    for needing in needing {
        let list =
            json!({"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "loopback"}, needing]}).to_string();
        let cached = json!({
            "kind": "cniCacheV1", "containerId": "c9", "ifName": "eth0", "networkName": "lan", "config": STANDARD.encode(&list)
        });
        for (file, content, words) in [
            ("/run/lists/lan.conflist", list, "/run/lists/lan.conflist needs plugin \"theirs\""),
            ("/var/lib/cni/results/lan-c9-eth0", cached.to_string(), "works for container c9 on network lan"),
        ] {
            node.sh(&format!("mkdir -p $(dirname {file}); echo '{content}' > {file}"))?;
            let printed = node.sh("! NETCONFPATH=/run/lists /usr/local/bin/postern remove theirs 2>&1")?;
            ensure!(flat(&printed).contains(words), "{file}: {printed}");
            node.sh(&format!("rm {file}"))?;
        }
    }
    let (printed, is_done) = postern(&node, "remove theirs")?;
    ensure!(
        is_done && printed.contains("theirs: removed from /run/bin/theirs and /var/lib/postern/postern.d"),
        "{printed}"
    );
    ensure!(node.sh("ls /var/lib/postern/postern.d; cat /var/lib/postern/placed-files")?.is_empty());
    ensure!(node.sh("ls /run/bin")? == "host-local\nptp\nstatic\n");
    Ok(())
}

/// Adds the plugin `theirs` and the container `c1`. Returns a network of this plugin.
fn add_theirs(node: &Node) -> Result<Network> {
    node.sh("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --bin /run/bin")?;
    node.add_container("c1")?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]});
    let config = json!({"cniVersion": "1.0.0", "type": "theirs", "ipam": ipam});
    Ok(Network::new(node, &config)?.by(Path::new("/run/bin")))
}

/// The plugin of a living attachment outlives the removal of the installation, which had the plugin's code.
#[test]
fn an_uninstallation_keeps_the_added_plugin_of_an_attachment() -> Result<()> {
    let node = node()?;
    install(&node)?;
    let network = add_theirs(&node)?;
    let attachment = network.add("c1")?;
    let shown = admin(&node, "uninstall --dry-run")?;
    ensure!(shown.contains("these plugins are moved to /var/lib/postern/postern.d: theirs"), "{shown}");
    let printed = admin(&node, "uninstall --yes")?;
    ensure!(printed.contains("`postern add theirs --bin DIR` places a plugin's file"), "{printed}");
    // The catalog can't be replaced as a whole, and has another plugin meanwhile.
    let added = "/var/lib/postern/postern.d";
    node.sh(&format!("cd {added}; mkdir held; for file in theirs.*; do cp $file other.${{file#*.}}; done"))?;
    install(&node)?;
    ensure!(node.sh(&format!("ls {added}"))? == "held\n", "the installation takes over");
    node.sh("/usr/local/bin/postern add theirs --bin /run/bin")?;
    let attachment = attachment.check()?;
    node.sh(&format!("for file in {CATALOG}/theirs.*; do cp $file {added}/more.${{file##*.}}; done"))?;
    admin(&node, "uninstall --yes")?;
    let kept = node.sh(&format!("ls {added} | grep -c json"))?;
    ensure!(kept == "3\n", "{kept}");
    install(&node)?;
    node.sh("/usr/local/bin/postern add theirs --bin /run/bin")?;
    attachment.del()?;
    // Without an attachment, nobody needs the plugin.
    node.sh(&format!("for file in {CATALOG}/theirs.*; do cp $file {added}/more.${{file##*.}}; done"))?;
    let shown = admin(&node, "uninstall --dry-run")?;
    ensure!(shown.contains("notes and leases /var/lib/postern/postern.d: more"), "{shown}");
    admin(&node, "uninstall --yes")?;
    ensure!(node.sh("ls -d /var/lib/postern /run/postern 2>/dev/null || true")?.is_empty());
    Ok(())
}

/// An installed program finds its plugins' files, although its prefix is behind a link.
#[test]
fn an_installation_behind_a_link_is_removed() -> Result<()> {
    let node = node()?;
    let [bin, _] = BINS;
    node.sh("mkdir /run/real; ln -s /run/real /usr/local/link")?;
    admin(&node, &format!("install --prefix /usr/local/link --bin-dir {bin} --plugins ptp"))?;
    node.sh(&format!("/usr/local/link/bin/postern install --bin-dir {bin} --plugins ptp"))?;
    ensure!(node.sh(&format!("head -n 1 {bin}/ptp"))?.starts_with("#!/usr/local/link/lib/postern/postern "));
    node.sh("/usr/local/link/bin/postern uninstall --yes")?;
    ensure!(node.sh(&format!("ls {bin}/ptp /run/real/* 2>/dev/null || true"))?.is_empty());
    Ok(())
}

/// Another user could change the plugin's code, so no run believes the plugin. A copy of root would be believed.
#[test]
fn an_uninstallation_keeps_no_plugin_that_runs_refuse() -> Result<()> {
    let node = node()?;
    install(&node)?;
    let network = add_theirs(&node)?;
    let _attachment = network.add("c1")?;
    node.sh(&format!("chmod 666 {CATALOG}/theirs.cwasm"))?;
    let printed = admin(&node, "uninstall --yes")?;
    ensure!(
        printed.contains("plugin \"theirs\" is not kept: ") && printed.contains("can be written by others"),
        "{printed}"
    );
    ensure!(node.sh("ls /var/lib/postern/postern.d 2>/dev/null || true")?.is_empty());
    Ok(())
}

/// A node that moved from one installation to another: the plugins' files start the other host executable.
#[test]
fn records_stay_with_the_installation_that_uses_them() -> Result<()> {
    let node = node()?;
    install(&node)?;
    node.sh("mount -t tmpfs -o mode=755 other /opt")?;
    // The first installation uses the operator's catalog, so the second takes nothing over.
    let added = "/var/lib/postern/postern.d";
    node.sh(&format!("/usr/local/bin/postern add /run/theirs.wasm --policy /run/theirs.toml --catalog {added}"))?;
    let [bin, _] = BINS;
    admin(&node, &format!("install --prefix /opt/postern --bin-dir {bin} --plugins host-local,ptp,static"))?;
    node.add_container("c1")?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]});
    let config = json!({"cniVersion": "1.0.0", "type": "ptp", "ipam": ipam});
    let attachment = Network::new(&node, &config)?.by(Path::new(bin)).add("c1")?;
    ensure!(
        node.sh(&format!("ls {added}/theirs.json; ls /opt/postern/lib/postern/postern.d/theirs.* || true"))?
            .lines()
            .count()
            == 1
    );
    let words = "records stay: plugins' files start /opt/postern/lib/postern/postern";
    let shown = admin(&node, "uninstall --dry-run")?;
    ensure!(shown.contains(words), "{shown}");
    let printed = admin(&node, "uninstall --yes")?;
    ensure!(printed.contains(words), "{printed}");
    attachment.check()?.del()?;
    // An installed program means its own installation.
    node.sh(&format!("echo '# second' >> {BUILD}/postern.d/ptp.toml"))?;
    admin(&node, "upgrade --prefix /opt/postern")?;
    node.sh(&format!("ls /opt/postern/lib/postern/postern.d/theirs.json; ! ls {added}/theirs.json"))?;
    let printed = flat(&node.sh("/opt/postern/bin/postern rollback 2>&1")?);
    ensure!(printed.contains("instead of"), "{printed}");
    node.sh(&format!("/opt/postern/bin/postern install --bin-dir {bin} --plugins ptp; ! ls /usr/local/lib/postern"))?;
    node.sh("/opt/postern/bin/postern uninstall --yes")?;
    ensure!(node.sh("ls -d /opt/* /run/postern /var/lib/postern 2>/dev/null || true")?.is_empty());
    Ok(())
}

/// An installation that is not read-only: a plugin of its own catalog is removed too, and a name stays in one catalog.
#[test]
fn a_name_is_in_one_catalog() -> Result<()> {
    let node = node()?;
    install(&node)?;
    let add = "add /run/theirs.wasm --policy /run/theirs.toml";
    let (printed, is_done) = postern(&node, &format!("{add} --bin /run/bin"))?;
    ensure!(is_done && printed.contains("with its policy in /usr/local/lib/postern/"), "{printed}");
    node.sh(&format!("mkdir -p /var/lib/postern/postern.d; cp {CATALOG}/theirs.* /var/lib/postern/postern.d"))?;
    let (printed, _) = postern(&node, "doctor --bin /run/bin")?;
    let twice = "plugin \"theirs\" is in /usr/local/lib/postern/";
    ensure!(
        printed.contains("ERROR") && printed.contains(twice) && printed.contains("`postern remove theirs`"),
        "{printed}"
    );
    runs(&node, "c1")?;
    let (printed, is_done) = postern(&node, add)?;
    ensure!(!is_done && printed.contains("is in /var/lib/postern/postern.d already"), "{printed}");
    // The first removal takes the operator's copy, and the second the plugin.
    let left = || node.sh(&format!("ls {CATALOG}/ /var/lib/postern/postern.d | grep -c theirs || true"));
    for count in ["4\n", "0\n"] {
        let (printed, is_done) = postern(&node, "remove theirs")?;
        ensure!(is_done && left()? == count, "{printed}");
    }
    ensure!(node.sh("ls /run/bin")? == "host-local\nptp\nstatic\n");
    // Doctor's command keeps the catalog, although the installation's own catalog can be written.
    let (printed, is_done) = postern(&node, &format!("{add} --catalog /var/lib/postern/postern.d"))?;
    ensure!(is_done, "{printed}");
    node.sh("sed -i 's/wasmtime-48/wasmtime-47/' /var/lib/postern/postern.d/theirs.json")?;
    let (printed, _) = postern(&node, "doctor --bin /run/bin")?;
    let again = "--policy /var/lib/postern/postern.d/theirs.toml --catalog /var/lib/postern/postern.d";
    ensure!(printed.contains(again), "{printed}");
    Ok(())
}
