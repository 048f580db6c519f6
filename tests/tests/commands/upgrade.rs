//! Installation while runs continue, and complete uninstallation.

use anyhow::{Context, Result, ensure};
use postern_tests::{Network, Node, copy_bin, flat, native_bin, plugin_bin};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The CNI bin directory for installations.
const BIN: &str = "/run/bin";
/// The catalog of plugins that operators add.
const ADDED: &str = "/var/lib/postern/postern.d";

const PLUGINS: &str = "bridge host-local loopback ptp static";

/// Two builds with engines that refuse each other's code, and policies that refuse each other's components.
const BUILDS: &str = r#"
    export LC_ALL=C
    pin() { # pin BUILD PLUGIN DIGEST
      sed -i "s/\"digest\": \"[^\"]*\"/\"digest\": \"$3\"/" $1/postern.d/$2.json
      sed -i "1i digest = \"sha256:$3\"" $1/postern.d/$2.toml
    }
    for plugin in bridge host-local loopback ptp static; do
      json=/run/second/postern.d/$plugin.json code=/run/second/postern.d/$plugin.cwasm
      sed -i 's/wasmtime-48/wasmtimX-48/g' $code $json
      sed -i "s/\"code\": \"[^\"]*\"/\"code\": \"$(sha256sum < $code | cut -d' ' -f1)\"/" $json
      pin /run/first $plugin 1111111111111111111111111111111111111111111111111111111111111111
      pin /run/second $plugin 2222222222222222222222222222222222222222222222222222222222222222
    done
    sed -i 's/wasmtime-\([^4]\)/wasmtimX-\1/g' /run/second/postern /run/second/postern-admin
"#;

/// Makes a node with a separate `/usr/local`.
fn node() -> Result<Node> {
    let node = Node::new()?;
    node.sh("mount -t tmpfs -o mode=755 local /usr/local; mkdir /usr/local/lib /usr/local/bin")?;
    Ok(node)
}

fn installation(build: &str) -> String {
    format!("{build}/postern-admin install --from {build} --cni-bin {BIN} {PLUGINS}")
}

/// A network of a plugin that delegates. A run of this plugin opens code twice: the second time after it has read the
/// configuration.
fn network(node: &Node) -> Result<Network> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/16"}]]});
    Ok(Network::new(node, &json!({"cniVersion": "1.0.0", "type": "ptp", "ipam": ipam}))?.by(Path::new(BIN)))
}

/// Makes one call for an attachment with this ID.
fn call(node: &Node, verb: &str, container: &str, id: &str) -> Result<()> {
    let call = network(node)?.request(0, verb, container, &json!({}))?.env("CNI_CONTAINERID", id);
    node.call(&call)?.success().with_context(|| format!("{verb} of {id}")).map(drop)
}

/// Attaches a container and detaches it. Returns the first failure.
fn attach(node: &Node, container: &str, id: &str) -> Result<()> {
    ["ADD", "DEL"].iter().try_for_each(|verb| call(node, verb, container, id))
}

/// Makes at least 480 runs in four containers, while `change` is repeated. The runs go on until `least` changes were made
/// or one change failed. Returns the number of changes, and the failures.
fn under_load(node: &Node, least: usize, change: impl Fn(usize) -> Result<()> + Sync) -> Result<(usize, Vec<String>)> {
    let containers = ["c1", "c2", "c3", "c4"];
    containers.iter().try_for_each(|container| node.add_container(container))?;
    let (over, made, enough) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicBool::new(false));
    let next = || {
        let number = made.fetch_add(1, Ordering::Relaxed);
        (number < 240 || !enough.load(Ordering::Relaxed)).then_some(number)
    };
    let work = |container: &str| {
        std::iter::from_fn(next)
            .filter_map(|number| attach(node, container, &format!("{container}-{number}")).err())
            .map(|error| format!("{error:#}"))
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                change(count).inspect_err(|_| enough.store(true, Ordering::Relaxed))?;
                count += 1;
                enough.fetch_or(count >= least, Ordering::Relaxed);
            }
            Ok::<_, anyhow::Error>(count)
        });
        let workers: Vec<_> = containers.map(|container| scope.spawn(move || work(container))).into_iter().collect();
        let failures: Vec<String> = workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect();
        over.store(true, Ordering::Relaxed);
        let count = changer.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the installer panicked")))?;
        Ok((count, failures))
    })
}

#[test]
fn no_run_fails_while_versions_are_installed() -> Result<()> {
    let node = node()?;
    let bin = plugin_bin()?;
    node.sh(&format!("{}; {}; {BUILDS}", copy_bin(&bin, "/run/first"), copy_bin(&bin, "/run/second")))?;
    node.sh(&installation("/run/first"))?;
    let (count, failures) = under_load(&node, 10, |at| {
        let build = if at % 2 == 0 { "/run/second" } else { "/run/first" };
        node.sh(&installation(build)).map(drop)
    })?;
    ensure!(count >= 10, "installed only {count} times during the runs");
    ensure!(
        failures.is_empty(),
        "{} attachments failed, {count} installations: {}",
        failures.len(),
        failures.join("\n")
    );
    // Exactly two versions exist, and each has its own content.
    let versions = node.sh("ls -A /usr/local/lib/postern/versions")?;
    ensure!(versions.lines().count() == 2, "{versions}");
    ensure!(node.sh("find /usr/local /run/bin -name '.*postern-new' -o -name .new")?.is_empty());
    Ok(())
}

#[test]
fn no_run_fails_while_a_plugin_is_added() -> Result<()> {
    let node = node()?;
    let bin = plugin_bin()?;
    // Two components of the same name. Each component's policy fits only this component.
    let wasm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wasm32-wasip2/guest/postern-ptp.wasm");
    node.sh(&format!(
        "{}; cp {} /run/1.wasm; cp /run/1.wasm /run/2.wasm; printf '\\0\\3\\1xy' >> /run/2.wasm
         for n in 1 2; do (echo \"digest = \\\"sha256:$(sha256sum < /run/$n.wasm | cut -d' ' -f1)\\\"\"; cat /run/first/postern.d/ptp.toml) > /run/$n.toml; done",
        copy_bin(&bin, "/run/first"),
        wasm.display()
    ))?;
    node.sh(&installation("/run/first"))?;
    let (count, failures) = under_load(&node, 2, |at| {
        let number = at % 2 + 1;
        let add = format!("postern add /run/{number}.wasm --policy /run/{number}.toml --name ptp --bin {BIN}");
        node.sh(&format!("PATH=/usr/local/bin:$PATH; {add}")).map(drop)
    })?;
    ensure!(count >= 2, "added only {count} times during the runs");
    ensure!(failures.is_empty(), "{} attachments failed, added {count} times: {}", failures.len(), failures.join("\n"));
    // The replaced version is gone, and the other plugins are still there.
    let left = node.sh("cd /usr/local/lib/postern; ls -A versions/*; ls postern.d/*.json | wc -l")?;
    ensure!(!left.contains("postern-new") && left.ends_with("\n5\n"), "{left}");
    Ok(())
}

#[test]
fn an_installation_of_before_is_read_and_replaced() -> Result<()> {
    let node = node()?;
    node.add_container("c1")?;
    // An installation from before versions existed: one directory, links to its host executable, and a foreign plugin.
    let bin = plugin_bin()?;
    node.sh(&format!(
        "{}; mkdir {BIN}; cd /usr/local/lib; mkdir postern; cp -a /run/first/postern /run/first/postern-admin /run/first/postern.d postern/
         for plugin in {PLUGINS}; do ln -s /usr/local/lib/postern/postern {BIN}/$plugin; done
         cd postern/postern.d; for end in toml cwasm; do cp ptp.$end theirs.$end; done; sed 's/\"plugin\": \"ptp\"/\"plugin\": \"theirs\"/' ptp.json > theirs.json",
        copy_bin(&bin, "/run/first")
    ))?;
    attach(&node, "c1", "before")?;
    let (count, failures) = under_load_once(&node, &installation("/run/first"))?;
    ensure!(failures.is_empty(), "{count} {failures:?}");
    attach(&node, "c1", "after")?;
    let theirs =
        node.sh("cd /usr/local/lib/postern; test -L postern -a -L postern.d; ls postern.d/theirs.*; ls -A . versions")?;
    ensure!(theirs.lines().filter(|line| line.contains("theirs")).count() == 3, "{theirs}");
    ensure!(!theirs.contains("old") && !theirs.contains("new"), "{theirs}");
    ensure!(node.sh(&format!("ls {BIN}"))? == PLUGINS.replace(' ', "\n") + "\n", "links were kept as native plugins");
    ensure!(node.sh(&format!("head -c 2 {BIN}/ptp"))? == "#!");
    Ok(())
}

/// Makes runs during one command.
fn under_load_once(node: &Node, command: &str) -> Result<(usize, Vec<String>)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (mut count, mut failures) = (0, Vec::new());
            while !over.load(Ordering::Relaxed) {
                count += 1;
                failures.extend(attach(node, "c1", &format!("c{count}")).err().map(|error| format!("{error:#}")));
            }
            (count, failures)
        });
        let done = node.sh(command);
        over.store(true, Ordering::Relaxed);
        let result = worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
        done.map(|_| result)
    })
}

#[test]
fn what_is_in_the_way_is_said_before_anything_is_placed() -> Result<()> {
    let node = node()?;
    let bin = plugin_bin()?;
    node.sh(&format!("{}; mkdir {BIN}", copy_bin(&bin, "/run/first")))?;
    let listing = || node.sh(&format!("find /usr/local {BIN} -printf '%p %s %m %T@\\n'"));
    let long = "d".repeat(240);
    let cases: [(&str, &str, String, &str); 8] = [
        ("mkdir /run/bin/ptp", "rmdir /run/bin/ptp", String::new(), "/run/bin/ptp is a directory"),
        (
            "echo x > /usr/local/bin/postern",
            "rm /usr/local/bin/postern",
            String::new(),
            "no link of Postern's; take it away",
        ),
        ("ln -s /bin/true /usr/local/bin/postern", "rm /usr/local/bin/postern", String::new(), "no link of Postern's"),
        ("chmod 777 /usr/local/lib", "chmod 755 /usr/local/lib", String::new(), "`chmod go-w /usr/local/lib`"),
        (
            "rm /run/first/postern.d/ptp.json",
            "cp $from/postern.d/ptp.json /run/first/postern.d",
            String::new(),
            "unpack the archive again, or run `make build` first",
        ),
        (
            "echo >> /run/first/postern.d/ptp.cwasm",
            "cp $from/postern.d/ptp.cwasm /run/first/postern.d",
            String::new(),
            "is not in order; unpack the archive again, or run `make build` again",
        ),
        ("true", "true", "--prefix '/a place'".to_owned(), "only by an absolute path without white space"),
        ("true", "true", format!("--prefix /{long}"), "and the kernel reads 254"),
    ];
    postern_tests::proof::each(
        cases,
        |case| format!("{} {}", case.0, case.2),
        |(break_it, mend, arguments, words)| {
            node.sh(break_it)?;
            let before = listing()?;
            let printed = node.sh(&format!("! {} {arguments} 2>&1", installation("/run/first")))?;
            ensure!(flat(&printed).contains(words), "{printed}");
            ensure!(listing()? == before, "a refused installation placed a file");
            node.sh(&format!("from={}; {mend}", bin.display())).map(drop)
        },
    )?;
    node.sh(&installation("/run/first")).map(drop)
}

#[test]
fn root_needs_no_compiler() -> Result<()> {
    let node = node()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (source, bin) = (source.display(), plugin_bin()?);
    // The environment has only sudo's own search path.
    let make = |arguments: &str| {
        node.sh(&format!(
            "env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
             sh -c '! command -v rustc && make -C {source} BIN={} CNI_BIN={BIN} {arguments} 2>&1'",
            bin.display()
        ))
    };
    make("install")?;
    let printed = node.sh(&format!("find /usr/local/lib/postern {BIN} ! -user 0; {BIN}/ptp 2>&1"))?;
    ensure!(printed.starts_with("CNI ptp plugin"), "{printed}");
    make("uninstall").map(drop)
}

#[test]
fn uninstalling_takes_back_everything() -> Result<()> {
    let node = node()?;
    node.add_container("c1")?;
    let native = native_bin()?;
    node.sh(&format!("mkdir {BIN} /run/other; cp {}/ptp {BIN}/ptp; cp {BIN}/ptp /run/other/ptp; echo x > /run/other/x; mkdir -p /usr/local/share /var/lib/cni", native.display()))?;
    let tree = || {
        node.sh(&format!("find {BIN} /run/other /usr/local -printf '%p %y %m %U %s %l\\n' | sort; ls /run /var/lib"))
    };
    let before = tree()?;
    let bin = plugin_bin()?;
    let bin = bin.display();
    node.sh(&format!("{bin}/postern-admin install --from {bin} --cni-bin {BIN} {PLUGINS}"))?;
    // Places plugins in another directory: by `postern add`, as a link, and as a copy.
    node.sh("PATH=/usr/local/bin:$PATH; cd /usr/local/lib/postern/postern.d; for plugin in ptp static; do postern add $plugin --bin /run/other; done
        ln -s /usr/local/lib/postern/postern /run/other/bridge; cp /usr/local/lib/postern/postern /run/other/loopback")?;
    attach(&node, "c1", "x")?;
    ensure!(node.sh("ls /run/postern")?.contains("verified") || node.sh("ls /run/postern")?.contains("attachments"));
    let uninstall = format!("{bin}/postern-admin uninstall --yes");
    let printed = node.sh(&format!("{uninstall} 2>&1"))?;
    ensure!(flat(&printed).contains("the audit log stays in /var/log/postern"), "{printed}");
    ensure!(tree()? == before, "before:\n{before}\nafter:\n{}", tree()?);
    // A second uninstallation is no error.
    node.sh(&uninstall)?;
    // The remains of a killed installation, and a file of Postern that an older installation kept as native.
    node.sh(&format!("{bin}/postern-admin install --from {bin} --cni-bin {BIN} {PLUGINS}"))?;
    node.sh(&format!("cd {BIN}; cp bridge bridge.native; echo x > .ptp.postern-new; mkdir /usr/local/lib/postern/versions/.new; {uninstall}"))?;
    ensure!(tree()? == before, "after a killed installation:\n{}", tree()?);

    // Uninstalling with a living attachment sets the attachment's record aside. A plugin file that another installer
    // replaced meanwhile stays.
    node.sh(&format!("{bin}/postern-admin install --from {bin} --cni-bin {BIN} {PLUGINS}"))?;
    call(&node, "ADD", "c1", "alive")?;
    node.sh(&format!(
        "echo newer > {BIN}/ptp; mkdir -p /var/lib/postern/dhcp; touch /var/lib/postern/dhcp/lease.json"
    ))?;
    let listed = flat(&node.sh(&format!("{uninstall} --dry-run"))?);
    ensure!(
        listed.contains("the records of 1 attachment are moved to /run; leases and added plugins stay"),
        "{listed}"
    );
    let printed = node.sh(&format!("{uninstall} 2>&1"))?;
    ensure!(
        flat(&printed).contains("1 attachment had records") && flat(&printed).contains("/run/postern.uninstalled-1"),
        "{printed}"
    );
    ensure!(flat(&printed).contains(&format!("{BIN}/ptp is not Postern's, and stays")), "{printed}");
    ensure!(node.sh(&format!("cat {BIN}/ptp; ls {BIN}"))? == "newer\nptp\nptp.native\n");
    // The service of DHCP renews the leases of living attachments.
    ensure!(node.sh("ls -d /run/postern /var/lib/postern/* 2>/dev/null || true")? == "/var/lib/postern/dhcp\n");

    // The next installation knows the attachment again. It keeps both native files, and the later one comes back.
    let printed = node.sh(&format!("{bin}/postern-admin install --from {bin} --cni-bin {BIN} {PLUGINS} 2>&1"))?;
    ensure!(
        flat(&printed).contains("the records of 1 attachment are back from /run/postern.uninstalled-1"),
        "{printed}"
    );
    let listed = node.postern_of("/usr/local/bin", "ls --no-trunc")?.words();
    ensure!(listed.contains("alive") && listed.contains(" ok"), "{listed}");
    call(&node, "DEL", "c1", "alive")?;
    ensure!(node.sh(&format!("cd {BIN}; cmp ptp.native-1 {}/ptp; cat ptp.native", native.display()))? == "newer\n");
    ensure!(node.sh("find /run/postern/attachments -type f ! -name '.*' 2>/dev/null || true")?.is_empty());
    // A later installation puts nothing back: a run may be making its record.
    node.sh(&format!(
        "mkdir /run/postern.uninstalled-1; touch /run/postern/mark; rm {BIN}/bridge
         {bin}/postern-admin install --from {bin} --cni-bin {BIN} {PLUGINS}; rm /run/postern/mark; rmdir /run/postern.uninstalled-1"
    ))?;
    // An earlier file without a later one may be the only copy of a native plugin.
    node.sh(&format!("echo only > {BIN}/bridge.native-1; mkdir -p {ADDED}; touch {ADDED}/theirs.json"))?;
    let listed = flat(&node.sh(&format!("{uninstall} --dry-run"))?);
    ensure!(listed.contains("1 native plugin is put back; 1 earlier file is removed"), "{listed}");
    ensure!(listed.contains(&format!("{ADDED}: theirs")), "{listed}");
    let printed = flat(&node.sh(&format!("{uninstall} 2>&1"))?);
    ensure!(printed.contains(&format!("{BIN}/bridge.native-1 stays: it is an earlier file")), "{printed}");
    let left =
        node.sh(&format!("cat {BIN}/ptp {BIN}/bridge.native-1; ls {BIN}; ls -d /run/postern* 2>/dev/null || true"))?;
    ensure!(left == "newer\nonly\nbridge.native-1\nptp\n", "{left}");
    Ok(())
}

/// A command that names one plugin, or that only shows a list, never removes an installation.
#[test]
fn uninstall_removes_nothing_unasked() -> Result<()> {
    let node = node()?;
    node.add_container("c1")?;
    let bin = plugin_bin()?;
    let (bin, native) = (bin.display(), native_bin()?);
    // Without names, `install` installs all plugins of the build.
    node.sh(&format!(
        "mkdir {BIN}; cp {}/ptp {BIN}/ptp; {bin}/postern-admin install --from {bin} --cni-bin {BIN}
         test $(ls {BIN} | grep -vc native) = $(ls {bin}/postern.d/*.json | wc -l)",
        native.display()
    ))?;
    attach(&node, "c1", "x")?;
    call(&node, "ADD", "c1", "alive")?;
    let tree = || {
        node.sh(&format!("find {BIN} /usr/local /run/postern /var/lib/postern -printf '%p %y %m %s %l %T@\\n' | sort"))
    };
    let before = tree()?;
    for (words, status, expected) in [
        ("uninstall ptp", 2, "removes all of Postern, and takes no plugin's name"),
        ("uninstall ptp --yes", 2, "If there is a file ptp.native, rename it to ptp"),
        ("uninstall bridge loopback --yes", 2, "unexpected argument"),
        ("uninstall --help", 0, "shown first"),
        ("uninstall", 1, "nothing was changed; `postern uninstall --yes` removes the listed objects"),
        ("uninstall --prefix /usr/local", 1, "1 native plugin is put back"),
        ("uninstall --prefix /usr/local", 1, "1 attachment"),
        ("uninstall --prefix /usr --yes", 0, "there was no postern in /usr/lib/postern"),
        ("install --dry-run", 0, "nothing was changed"),
    ] {
        let answer = node.postern_of("/usr/local/bin", words)?;
        ensure!(answer.status == status && answer.words().contains(expected), "{words}: {answer:?}");
        ensure!(tree()? == before, "{words}: before:\n{before}\nafter:\n{}", tree()?);
    }
    // A build without plugins can't be installed.
    node.sh(&format!("mkdir -p /run/empty/postern.d; cp {bin}/postern* /run/empty 2>/dev/null || true"))?;
    let answer = node.postern_of("/usr/local/bin", "install --from /run/empty")?;
    let words = "/run/empty/postern.d has no plugin: unpack the archive again, or run `make build` first";
    ensure!(answer.status != 0 && answer.words().contains(words), "{answer:?}");
    let answer = node.postern_of("/usr/local/bin", "install --plugins=")?;
    ensure!(answer.status != 0 && answer.words().contains("--plugins has an empty name"), "{answer:?}");
    ensure!(tree()? == before, "an empty build was installed");
    node.postern_of("/usr/local/bin", "uninstall --yes")?.printed()?;
    ensure!(node.sh(&format!("find /usr/local {BIN} -type f"))? == format!("{BIN}/ptp\n"), "files are left");
    Ok(())
}

/// Plugins can be uninstalled from one of several directories. The files that the other directories need stay.
#[test]
fn uninstalling_from_one_directory_leaves_the_others_alone() -> Result<()> {
    let node = node()?;
    node.add_container("c1")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (source, bin) = (source.display(), plugin_bin()?);
    let make = |arguments: &str| {
        node.sh(&format!("make -C {source} -o build BIN={} {arguments} 2>&1", bin.display()))
            .map(|printed| flat(&printed))
    };
    let native = native_bin()?;
    node.sh(&format!("mkdir -p {BIN} /run/second; cp {}/ptp /run/second/ptp", native.display()))?;
    make(&format!("install CNI_BIN={BIN}"))?;
    make("install CNI_BIN=/run/second")?;
    attach(&node, "c1", "x")?;
    let first = node.sh(&format!("ls {BIN}"))?;
    let library = || {
        node.sh("find /usr/local/lib/postern /usr/local/bin /run/postern | grep -v -e bin-directories -e placed-files | sort")
    };
    let before = library()?;
    // A misspelt directory, the second directory, and the second directory again without its files.
    for (directory, count) in [("/run/none", 2), ("/run/second", 1), ("/run/second", 1)] {
        let printed = make(&format!("uninstall CNI_BIN={directory}"))?;
        let stays = format!("postern itself stays in /usr/local/lib/postern, for the plugins in {BIN}");
        ensure!(printed.contains(&stays), "{directory}: {printed}");
        ensure!(library()? == before && node.sh(&format!("ls {BIN}"))? == first, "{directory}: {printed}");
        let noted = node.sh("wc -l < /usr/local/lib/postern/bin-directories")?;
        ensure!(noted.trim() == count.to_string(), "{directory}: {noted}");
    }
    ensure!(node.sh(&format!("cmp {}/ptp /run/second/ptp; ls /run/second", native.display()))? == "ptp\n");
    attach(&node, "c1", "y")?;
    // A copy that finds another installation's catalog belongs to that installation.
    node.sh(&format!("cp /usr/local/lib/postern/postern {BIN}/loopback; mkdir {BIN}/postern.d"))?;
    // Uninstalling from the last directory touches that directory alone. So does an uninstallation without plugins' files.
    let before = library()?;
    for _ in 0..2 {
        let printed = make(&format!("uninstall CNI_BIN={BIN}"))?;
        ensure!(
            printed.contains("postern itself stays in /usr/local/lib/postern; `postern uninstall` removes it"),
            "{printed}"
        );
        ensure!(library()? == before && node.sh(&format!("ls {BIN}"))? == "loopback\npostern.d\n", "{printed}");
    }
    let printed = make("uninstall")?;
    ensure!(printed.contains("postern is removed from /usr/local/lib/postern"), "{printed}");
    ensure!(node.sh(&format!("ls {BIN}; ls /usr/local/lib"))? == "loopback\npostern.d\n", "{printed}");
    Ok(())
}
