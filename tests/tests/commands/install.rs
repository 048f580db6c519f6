//! Installation, and files that are not run: another user could have written them, or they are no plugins.
//!
//! These tests do not cover a file that belongs to another user. A node that maps only one user can't have such a file.
//! `tests/runtimes/owner` tests this case as root.

use anyhow::{Result, ensure};
use postern_tests::proof::{Refusal, Watched, each, test_bin};
use postern_tests::{Answer, Network, Node, copy_bin, flat, plugin_bin, skip};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// The copy of the directory under test, on the node.
const COPY: &str = "/run/copy";

/// A network of a plugin in the directory `bin`, with a fixed address.
fn fixed(node: &Node, bin: &str, plugin: &str) -> Result<Network> {
    let ipam = json!({"type": "static", "addresses": [{"address": "10.9.0.5/24"}]});
    Ok(Network::new(node, &json!({"cniVersion": "1.0.0", "type": plugin, "ipam": ipam}))?.by(Path::new(bin)))
}

fn add_static(node: &Node, bin: &str) -> Result<Answer> {
    fixed(node, bin, "static")?.call("ADD", "c1")
}

/// Makes a node with a copy of the test catalog, and changes the copy by `script`, which runs inside the copy.
fn copied(script: &str) -> Result<Node> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(&format!("{}; cd {COPY}; {script}", copy_bin(&test_bin()?, COPY)))?;
    Ok(node)
}

/// Runs `make WHAT` into `root`, without a build.
fn make(node: &Node, what: &str, root: &str) -> Result<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (source, bin) = (source.display(), plugin_bin()?);
    // A careless umask has no effect.
    node.sh(&format!("umask 000; make -C {source} -o build {what} DESTDIR={root} BIN={}", bin.display()))
}

/// A distribution's Rust may lack any part that musl needs.
#[test]
fn without_a_part_of_musl_the_machines_c_library_is_taken() -> Result<()> {
    let node = Node::new()?;
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = tree.display();
    let usual = node.sh(&format!("{tree}/tests/run-target; {tree}/tests/run-target --why"))?;
    if !usual.ends_with("-musl\n") {
        skip(&flat(&usual));
        return Ok(());
    }
    let host = usual.replace("-musl", "-gnu");
    let libraries = "$(rustc --print target-libdir --target ${TARGET})";
    for (hidden, words) in [
        ("$(rustc --print sysroot)/lib/rustlib/${HOST}/bin/rust-lld", "Rust's linker, rust-lld, is missing"),
        (&format!("{libraries}/self-contained/libc.a"), "has no libc.a"),
        (&format!("{libraries}/self-contained/rcrt1.o"), "has no rcrt1.o"),
        (libraries, "target is missing"),
    ] {
        let found = node.sh(&format!(
            "TARGET={}; HOST={}; hidden={hidden}; if [ -d $hidden ]; then mount -t tmpfs empty $hidden; else mount --bind /dev/null $hidden; fi
            {tree}/tests/run-target; {tree}/tests/run-target --why; umount $hidden",
            usual.trim(), host.trim()
        ))?;
        let (target, why) = found.split_once('\n').unwrap_or_default();
        ensure!(target == host.trim() && why.contains(words), "{hidden}: {found}");
    }
    Ok(())
}

#[test]
fn install_and_uninstall() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh("mkdir -p /run/root/opt/cni/bin; cd /run/root/opt/cni/bin; echo native > bridge; echo other > other; chmod 755 *")?;
    let before = node.sh("cd /run/root; find . ! -type d -exec ls -l {} +; find . -type d | sort")?;
    // Installs twice: an update must not mistake Postern's own file for a native plugin.
    make(&node, "install", "/run/root")?;
    let printed = make(&node, "install", "/run/root")?;
    ensure!(!printed.contains("is kept as"), "{printed}");
    ensure!(flat(&printed).contains("systemctl enable --now postern-dhcp.service"), "{printed}");

    let kept = node.sh("cd /run/root/opt/cni/bin; cat bridge.native other")?;
    ensure!(kept == "native\nother\n", "the native plugins: {kept}");
    for plugin in ["bridge", "host-local", "loopback", "ptp", "static"] {
        let file = node.sh(&format!("cd /run/root/opt/cni/bin; cat {plugin}; stat -c '%A %U' {plugin}"))?;
        let expected = format!("#!/usr/local/lib/postern/postern --plugin={plugin}\n-rwxr-xr-x root\n");
        ensure!(file == expected, "{plugin}: {file}");
        node.sh(&format!("cd /run/root/usr/local/lib/postern/postern.d; test -s {plugin}.cwasm -a -s {plugin}.toml -a -s {plugin}.json"))?;
    }
    let link = node.sh("readlink /run/root/usr/local/bin/postern; find /run/root -name '*new*'; ls /run/root/usr/local/lib/postern/versions | wc -l")?;
    ensure!(link == "/usr/local/lib/postern/postern\n1\n", "{link}");
    let modes = node.sh("cd /run/root; find usr opt ! -name 'bridge.native' ! -name other -printf '%M %u %p\n'")?;
    for line in modes.lines() {
        let (mode, expected) = match line {
            line if [
                "-directories",
                "/installed-by",
                "/placed-files",
                "/postern.d/",
                "/schemas/",
                "/postern-dhcp.",
            ]
            .iter()
            .any(|part| line.contains(part)) =>
            {
                (line, "-rw-r--r-- root ")
            }
            line if line.starts_with('l') => (line, "lrwxrwxrwx root "),
            line if line.ends_with("/postern") && line.contains("-x") && !line.starts_with('d') => {
                (line, "-rwxr-xr-x root ")
            }
            line if ["/postern-admin", "/postern-compiler", "/postern-dhcpd", "/postern-wasi", "opt/cni/bin/"]
                .iter()
                .any(|part| line.contains(part)) =>
            {
                (line, "-rwxr-xr-x root ")
            }
            line => (line, "drwxr-xr-x root "),
        };
        ensure!(mode.starts_with(expected), "not {expected}: {line}");
    }

    // Editors find the schemas at a path that an upgrade does not change.
    let library = "/run/root/usr/local/lib/postern";
    let command = format!("{}/postern net schema", plugin_bin()?.display());
    node.sh(&format!("cd {library}/schemas; {command} | cmp - conflist.json"))?;
    let plugins = node.sh(&format!("cd {library}/postern.d; ls *.toml"))?.replace(".toml", "");
    let schemas = node.sh(&format!("cd {library}/schemas; ls *.json | grep -v conflist"))?.replace(".json", "");
    ensure!(plugins == schemas, "plugins:\n{plugins}\nschemas:\n{schemas}");
    for plugin in schemas.lines() {
        node.sh(&format!("{command} {plugin} | cmp - {library}/schemas/{plugin}.json"))?;
    }

    let units = "/run/root/usr/local/lib/systemd/system/postern-dhcp";
    let unit = node.sh(&format!("cat {units}.service; test -s {units}.socket"))?;
    ensure!(unit.contains("ExecStart=/usr/local/lib/postern/postern dhcp serve\n"), "{unit}");

    let printed = flat(&make(&node, "uninstall", "/run/root")?);
    let said = "postern is removed from /run/root/usr/local/lib/postern, and its plugins from /run/root/opt/cni/bin";
    ensure!(printed.contains(said), "{printed}");
    let after = node.sh("cd /run/root; find . ! -type d -exec ls -l {} +; find . -type d | sort")?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");

    // Directories that existed before stay, even empty ones. New directories are removed unless another user put a file
    // into them.
    node.sh("mkdir -p /run/other/usr/local/bin")?;
    make(&node, "install", "/run/other")?;
    node.sh("touch /run/other/opt/mine")?;
    make(&node, "uninstall", "/run/other")?;
    let left = node.sh("cd /run/other; find . | sort")?;
    ensure!(left == ".\n./opt\n./opt/mine\n./usr\n./usr/local\n./usr/local/bin\n", "{left}");
    Ok(())
}

/// Runs of the previous version made records without an entry in the index of claims. So the installation resets the
/// index, and the next search reads all records.
#[test]
fn after_an_installation_the_index_of_claims_is_filled_again() -> Result<()> {
    let node = Node::new()?;
    node.sh("mkdir -p -m 700 /run/postern/addresses; printf '\\2' > /run/postern/addresses/0000000000000007")?;
    let bin = plugin_bin()?;
    let install =
        format!("{0}/postern-admin install --from {0} --prefix /run/prefix --cni-bin /run/bin", bin.display());
    let head = || node.sh("od -An -tu1 /run/postern/addresses/*");
    // An image's root contains no state of its node.
    node.sh(&format!("{install} --destdir /run/root"))?;
    ensure!(head()?.trim() == "2", "{}", head()?);
    node.sh(&install)?;
    ensure!(head()?.trim() == "0", "{}", head()?);
    Ok(())
}

/// A link in an image's root is meant for the node. Here it leads to the builder's own directories.
#[test]
fn an_installation_stays_below_destdir() -> Result<()> {
    let node = Node::new()?;
    let bin = plugin_bin()?;
    let bin = bin.display();
    let call = |words: &str| format!("{bin}/postern-admin {words} --destdir /run/root 2>&1");
    let library = "usr/local/lib/postern";
    each(
        ["opt/cni".to_owned(), "usr".to_owned(), library.to_owned(), format!("{library}/versions")],
        Clone::clone,
        |link| {
            node.sh(&format!(
                "rm -rf /run/root /run/mine; mkdir -p /run/mine/bin /run/root/$(dirname {link}); ln -s /run/mine /run/root/{link}"
            ))?;
            let mine = || node.sh("find /run/mine");
            let before = mine()?;
            for words in ["install --plugins ptp", "uninstall --yes"] {
                let printed = flat(&node.sh(&format!("! {}", call(words)))?);
                ensure!(printed.contains("leads out of DESTDIR, to /run/mine"), "{words}: {printed}");
                ensure!(mine()? == before, "{words}: {}", mine()?);
            }
            Ok(())
        },
    )?;
    // A relative link stays below the root.
    node.sh("rm -rf /run/root; mkdir -p /run/root/var/opt; ln -s var/opt /run/root/opt")?;
    node.sh(&call("install --plugins ptp"))?;
    ensure!(node.sh("ls /run/root/var/opt/cni/bin")? == "ptp\n");
    // The root of this node is no image: all checks of an installation on the node are made.
    node.sh("mount -t tmpfs -o mode=755 local /usr/local; mkdir -m 777 /usr/local/lib")?;
    for root in ["/", "//", "/run/.."] {
        let printed = node.sh(&format!("! {bin}/postern-admin install --destdir {root} --bin-dir /run/bin 2>&1"))?;
        ensure!(flat(&printed).contains("`chmod go-w /usr/local/lib`"), "{root}: {printed}");
    }
    Ok(())
}

#[test]
fn uninstalling_what_is_not_installed_is_no_error() -> Result<()> {
    let node = Node::new()?;
    node.sh("mkdir -p /run/root/opt/cni/bin; echo native > /run/root/opt/cni/bin/bridge")?;
    let printed = flat(&make(&node, "uninstall", "/run/root")?);
    ensure!(printed.contains("there was no postern in /run/root/usr/local/lib/postern"), "{printed}");
    ensure!(node.sh("cat /run/root/opt/cni/bin/bridge")? == "native\n");
    Ok(())
}

#[test]
fn a_copy_finds_the_installed_catalog() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    // A single copy reports the missing parts of an installation.
    node.sh(&format!("mkdir -p /run/bin; cp {}/postern /run/bin/static", plugin_bin()?.display()))?;
    node.sh("mount -t tmpfs -o mode=755 local /usr/local/lib")?;
    let text = "there is no catalog of plugins at /run/bin/postern.d or /usr/local/lib/postern/postern.d …install Postern again";
    Refusal::of(&add_static(&node, "/run/bin")?)?.expect(999, text)?;
    make(&node, "install", "/run/root")?;
    node.sh("cp -a /run/root/usr/local/lib/postern /usr/local/lib/")?;
    add_static(&node, "/run/bin")?.success()?;
    // A link to the host executable finds the catalog too.
    node.sh("ln -s /usr/local/lib/postern/postern /run/bin/loopback")?;
    let loopback = json!({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"});
    Network::new(&node, &loopback)?.by(Path::new("/run/bin")).interface("lo").add("c1").map(drop)
}

#[test]
fn links_and_copies_are_the_plugin_whose_name_they_have() -> Result<()> {
    let node = copied(
        "test ! -L static; ln -s postern fresh; cp postern bridge.copy; mkdir sub; ln -s ../postern sub/static",
    )?;
    add_static(&node, COPY)?.success()?;
    // The name counts, not the directory of the link.
    add_static(&node, &format!("{COPY}/sub"))?.success()?;
    for (name, text) in
        [("fresh", "there is no plugin \"fresh\""), ("bridge.copy", "there is no plugin \"bridge.copy\"")]
    {
        Refusal::of(&fixed(&node, COPY, name)?.call("ADD", "c1")?)?.expect(999, text)?;
    }
    Ok(())
}

/// The changes to an installation, and the outcome of a call. An operator must understand each message.
const SPOILT: [(&str, &str); 19] = [
    ("chmod 777 .", "/run/copy can be written by others than its owner (mode 777); …by `chmod go-w /run/copy`"),
    ("chmod 775 postern.d", "postern.d can be written by others than its owner (mode 775)…chmod go-w"),
    ("chmod 666 postern.d/static.cwasm", "static.cwasm can be written by others…chmod go-w"),
    ("chmod 664 postern.d/static.toml", "static.toml can be written by others…chmod go-w"),
    (
        "rm postern.d/static.cwasm",
        "there is no plugin \"static\" in /run/copy/postern.d; `postern add FILE.wasm --policy FILE`",
    ),
    ("rm postern.d/static.toml", "plugin \"static\" has no policy at /run/copy/postern.d/static.toml…`postern add"),
    ("rm -r postern.d", "there is no catalog of plugins at /run/copy/postern.d or …install Postern again"),
    ("cd postern.d; : > static.cwasm", "the code of plugin \"static\" is not whole: …`postern add"),
    ("cd postern.d; truncate -s 1000 static.cwasm", "the code of plugin \"static\" is not whole: …`postern add"),
    ("cd postern.d; truncate -s 200000 static.cwasm", "the code of plugin \"static\" is not whole: …`postern add"),
    (
        "cd postern.d; head -c 400000 /dev/urandom > static.cwasm",
        "the code of plugin \"static\" is not whole: …`postern add",
    ),
    ("cd postern.d; echo hello > static.cwasm", "the code of plugin \"static\" is not whole: …`postern add"),
    ("cd postern.d; cp ../postern static.cwasm", "the code of plugin \"static\" is not whole: …`postern add"),
    (
        "cd postern.d; sed -i 's/wasmtime-48/wasmtime-47/g' static.cwasm",
        "the code of plugin \"static\" was changed or swapped: …`postern add",
    ),
    ("cd postern.d; rm static.cwasm; mkdir static.cwasm", "static.cwasm is no regular file; …install the plugin again"),
    (
        "cd postern.d; echo '[grant.netlink]' > static.toml",
        "policy /run/copy/postern.d/static.toml: …unknown field `netlink`",
    ),
    ("cd postern.d; echo 'grant =' > static.toml", "policy /run/copy/postern.d/static.toml: TOML parse error"),
    ("cd postern.d; echo 'versions = [\"3.0\"]' > static.toml", "\"3.0\" is no version of CNI"),
    ("cd postern.d; rm static.toml; mkdir static.toml", "/run/copy/postern.d/static.toml"),
];

#[test]
fn spoilt_installations_are_not_run() -> Result<()> {
    each(
        SPOILT,
        |case| case.0.to_owned(),
        |(script, text)| {
            let node = copied(&format!("test -w .; {script}"))?;
            Refusal::of(&add_static(&node, COPY)?)?.expect(999, text)
        },
    )
}

/// A command that does nothing.
const COMMAND: &str = r#"
    (core module $code (func (export "main") (result i32) i32.const 0))
    (core instance $program (instantiate $code))
    (func $main (result (result)) (canon lift (core func $program "main")))
    (instance $run (export "run" (func $main)))
    (export "wasi:cli/run@0.2.0" (instance $run))"#;

/// Files that `postern add` must refuse: the name, the text, the policy, and the words of the refusal. A text that
/// begins with `(` describes a component.
const NO_PLUGINS: [(&str, &str, &str, &str); 15] = [
    ("text", "hello", "", "not a WebAssembly component"),
    ("empty", "", "", "not a WebAssembly component"),
    ("core", "(module)", "", "not a WebAssembly component: it is a core module, build it for wasm32-wasip2"),
    ("library", "(component)", "", "does not export wasi:cli/run"),
    (
        "newer",
        r#"(component (import "postern:cni/link@0.2.0" (instance)) COMMAND)"#,
        "",
        "postern:cni/link@0.2.0, but this host has postern:cni@0.1.",
    ),
    (
        "files",
        r#"(component (import "wasi:keyvalue/store@0.2.0" (instance)) COMMAND)"#,
        "",
        "imports interfaces that a plugin cannot have: wasi:keyvalue/store@0.2.0",
    ),
    (
        "sockets",
        r#"(component (import "example:node/files@0.2.0" (instance)) COMMAND)"#,
        "",
        "imports interfaces that a plugin cannot have: example:node/files@0.2.0",
    ),
    (
        "shape",
        r#"(component (import "postern:cni/forwarding@0.1.0" (instance (export "enable" (func (param "path" string))))) COMMAND)"#,
        "",
        "does not fit this host's interfaces",
    ),
    (
        "granted",
        "(component COMMAND)",
        "[grant.veth]",
        "the policy grants \"veth\", which the component does not import: take [grant.veth] out",
    ),
    ("unknown", "(component COMMAND)", "[grant.netlink]", "unknown field `netlink`"),
    ("broken", "(component COMMAND)", "[grant", "TOML parse error"),
    ("mute", "(component COMMAND)", "", "does not tell its CNI versions (VERSION): it printed nothing"),
    ("../up", "(component COMMAND)", "", "is no name for a plugin"),
    ("postern", "(component COMMAND)", "", "is no name for a plugin"),
    ("a b", "(component COMMAND)", "", "is no name for a plugin"),
];

#[test]
fn what_is_no_plugin_is_not_added() -> Result<()> {
    let watched = Watched::new(&[])?;
    let node = &watched.node;
    node.sh(&format!(
        "mkdir {COPY}; cp {}/postern* {COPY} 2>/dev/null || test -x {COPY}/postern-admin; mkdir {COPY}/postern.d",
        test_bin()?.display()
    ))?;
    let add = |name: &str, text: &str, policy: &str| -> Result<Answer> {
        let bytes = match text.starts_with('(') {
            true => wat::parse_str(text.replace("COMMAND", COMMAND))?,
            false => text.as_bytes().to_vec(),
        };
        std::fs::write(node.path("/run/file.wasm"), bytes)?;
        std::fs::write(node.path("/run/policy.toml"), policy)?;
        let mut command = Command::new(format!("{COPY}/postern"));
        command.args(["add", "/run/file.wasm", "--policy", "/run/policy.toml", "--name", name, "--bin", COPY]);
        node.answer(command.args(["--catalog", &format!("{COPY}/postern.d")]), None)
    };
    let listing = || node.sh(&format!("find {COPY} -printf '%p %s %m %T@\\n'"));
    let before = listing()?;
    each(
        NO_PLUGINS,
        |case| case.0.to_owned(),
        |(name, text, policy, words)| {
            let answer = add(name, text, policy)?;
            ensure!(answer.status != 0, "the file was added");
            ensure!(flat(&answer.stderr).contains(words), "not \"{words}\": {}", answer.stderr);
            let after = listing()?;
            ensure!(before == after, "a refused file was placed:\n{before}{after}");
            Ok(())
        },
    )?;
    // A plugin in a file of the same form is added.
    add("nothing", "(component COMMAND)", "versions = [\"1.0.0\"]")?.printed()?;
    node.add_container("c1")?;
    Refusal::of(&fixed(node, COPY, "nothing")?.call("ADD", "c1")?)?
        .expect(999, "plugin \"nothing\" ended without printing a result")
}
