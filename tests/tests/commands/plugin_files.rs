//! Plugins' files in a CNI bin directory: the files that start plugins, the copies with which installers overwrite
//! them, and the files that `postern add` keeps.

use anyhow::{Result, ensure};
use postern_tests::proof::{Refusal, each};
use postern_tests::{Answer, Call, Node, copy_bin, flat, native_bin, plugin_bin, shipped};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const COPY: &str = "/run/copy";

const STATIC: &str = r#"{"cniVersion": "1.0.0", "name": "net", "type": "static",
    "ipam": {"type": "static", "addresses": [{"address": "10.9.0.5/24"}]}}"#;

fn node() -> Result<Node> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(&copy_bin(&plugin_bin()?, COPY))?;
    Ok(node)
}

fn add(node: &Node, bin: &str, name: &str) -> Result<Answer> {
    node.call(&Call::new(Path::new(bin), name, "ADD", STATIC).attachment("c1", &node.netns("c1"), "eth0"))
}

/// Runs the host executable with these arguments, in a runtime's environment.
fn with_arguments(node: &Node, host: &str, arguments: &[&str]) -> Result<Answer> {
    let call = Call::new(Path::new(COPY), "ignored", "ADD", STATIC).attachment("c1", &node.netns("c1"), "eth0");
    let mut command = Command::new(host);
    command.args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(call.environment());
    node.answer(&mut command, Some(call.stdin()))
}

#[test]
fn a_plugins_file_is_one_line_that_starts_the_host() -> Result<()> {
    let bin = plugin_bin()?;
    for plugin in ["bridge", "host-local", "loopback", "ptp", "static"] {
        let text = std::fs::read_to_string(bin.join(plugin))?;
        ensure!(text == format!("#!{}/postern --plugin={plugin}\n", bin.display()), "{plugin}: {text:?}");
    }
    add(&node()?, COPY, "static")?.success().map(drop)
}

#[test]
fn the_option_alone_says_which_plugin() -> Result<()> {
    let node = node()?;
    // The file may have any name and any place.
    node.sh(&format!(
        "cd {COPY}; mkdir sub; cp static bridge2; cp static sub/postern; cp static ptp; ln -s static link"
    ))?;
    for (bin, name) in [(COPY, "bridge2"), (COPY, "ptp"), (COPY, "link"), ("/run/copy/sub", "postern")] {
        add(&node, bin, name)?.success().map_err(|error| error.context(name))?;
    }
    // With the option, the name of the host executable or of a copy does not count. Arguments after the option do not
    // count either.
    node.sh(&format!("cp {COPY}/postern {COPY}/loopback"))?;
    for host in ["/run/copy/postern", "/run/copy/loopback"] {
        for arguments in [
            &["--plugin=static", "/run/copy/static"][..],
            &["--plugin=static"],
            &["--plugin=static", "/run/copy/static", "--plugin=ptp", "inspect"],
        ] {
            with_arguments(&node, host, arguments)?
                .success()
                .map_err(|error| error.context(format!("{host} {arguments:?}")))?;
        }
    }
    // If `--plugin` is not the first argument, the program is the command for people, whatever the environment.
    let answer = with_arguments(&node, "/run/copy/postern", &["inspect", "--plugin=static"])?;
    ensure!(answer.status == 2 && answer.stderr.contains("--plugin"), "{answer:?}");
    Ok(())
}

#[test]
fn names_that_are_no_plugins_lead_nowhere() -> Result<()> {
    let node = node()?;
    // A name that contains a path would lead to this policy and code.
    node.sh(&format!("cd {COPY}; for end in json toml cwasm; do cp postern.d/static.$end x.$end; done"))?;
    each(
        [
            "",
            "../x",
            "/run/copy/x",
            ".",
            "..",
            "./static",
            "static --plugin=ptp",
            "static\n",
            "\u{1b}[2J",
            "-static",
            "stätic",
        ],
        |name| format!("{name:?}"),
        |name| {
            let answer =
                with_arguments(&node, "/run/copy/postern", &[&format!("--plugin={name}"), "/run/copy/static"])?;
            ensure!(!answer.stdout.contains('\u{1b}') && !answer.stderr.contains('\u{1b}'), "{answer:?}");
            Refusal::of(&answer)?.expect(999, "invalid plugin name: ")
        },
    )?;
    let unknown = with_arguments(&node, "/run/copy/postern", &["--plugin=unknown"])?;
    Refusal::of(&unknown)?.expect(999, "there is no plugin \"unknown\"")?;
    // argv[0] is empty, so there is no name.
    let script = format!("exec -a '' {COPY}/postern");
    let printed = node.command("bash").args(["-c", &script]).env("CNI_COMMAND", "VERSION").output()?;
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    ensure!(text.contains("invalid plugin name: "), "{text}");
    // A person who types this command gets its purpose, and the plugin's description.
    let typed = node.sh(&format!("{COPY}/postern --plugin=static inspect 2>&1"))?;
    ensure!(
        typed.contains("is for the first line of a plugin's file") && typed.contains("CNI static plugin"),
        "{typed}"
    );
    Ok(())
}

/// Returns what doctor finds: severity, place, defect and remedy.
fn doctor(node: &Node, arguments: &str) -> Result<Vec<[String; 4]>> {
    let report = node.postern_of(COPY, &format!("doctor --json {arguments}"))?.json()?;
    let findings = report.get("findings").and_then(Value::as_array).cloned().unwrap_or_default();
    let texts = |finding: &Value| {
        ["severity", "place", "what", "remedy"].map(|key| finding[key].as_str().unwrap_or_default().to_owned())
    };
    Ok(findings.iter().map(texts).collect())
}

fn findings(node: &Node, arguments: &str) -> Result<Vec<String>> {
    let line = |[severity, place, what, remedy]: [String; 4]| format!("{severity} {place}: {what}; {remedy}");
    Ok(doctor(node, arguments)?.into_iter().map(line).filter(|line| line.contains(" /run/bin")).collect())
}

#[test]
fn an_installers_copy_leaves_the_host_alone() -> Result<()> {
    let node = node()?;
    node.sh(&format!("mkdir /run/bin; for policy in {COPY}/postern.d/*.toml; do {COPY}/postern add $(basename $policy .toml) --bin /run/bin; done"))?;
    ensure!(findings(&node, "--bin /run/bin")?.is_empty(), "{:?}", findings(&node, "--bin /run/bin")?);
    let sum = || node.sh(&format!("sha256sum {COPY}/postern {COPY}/postern-admin"));
    let before = sum()?;
    // Copies the plugins in the way of an installer's image.
    let native = native_bin()?;
    node.sh(&format!("cp {native}/bridge {native}/ptp /run/bin/", native = native.display()))?;
    ensure!(sum()? == before, "the host was overwritten");
    add(&node, "/run/bin", "static")?.success()?;
    let found = findings(&node, "--bin /run/bin")?;
    let words = "error /run/bin: 2 files of Postern were replaced or removed: replaced in /run/bin: bridge, ptp; \
                 postern add bridge --bin /run/bin && postern add ptp --bin /run/bin";
    ensure!(found == [words], "{found:?}");
    // `postern add` has used this directory, so doctor finds it without an argument.
    ensure!(findings(&node, "")? == found, "{:?}", findings(&node, "")?);
    // The remedy keeps the replaced file.
    node.sh(&format!("for plugin in bridge ptp; do {COPY}/postern add $plugin --bin /run/bin; done"))?;
    ensure!(findings(&node, "")?.is_empty());
    node.sh(&format!(
        "cmp {native}/bridge /run/bin/bridge.native; cmp {native}/ptp /run/bin/ptp.native",
        native = native.display()
    ))?;
    // A write through the link would have overwritten the host executable.
    node.sh("ln -sfn /run/copy/postern /run/bin/ptp")?;
    let found = findings(&node, "")?;
    ensure!(found.len() == 1 && found.iter().all(|line| line.starts_with("note /run/bin/ptp: is a link")), "{found:?}");
    Ok(())
}

#[test]
fn nothing_that_had_the_name_is_lost() -> Result<()> {
    let node = node()?;
    let add = |plugin: &str| node.sh(&format!("{COPY}/postern add {plugin} --bin /run/bin 2>&1"));
    node.sh("mkdir /run/bin; cd /run/bin; echo one > bridge; ln -s /usr/libexec/cni/ptp ptp; cp /run/copy/postern loopback; ln -s /elsewhere/postern static")?;
    ["bridge", "ptp", "loopback", "static"].into_iter().try_for_each(|plugin| add(plugin).map(drop))?;
    let seen = || {
        node.sh("cd /run/bin; for file in *; do if [ -L $file ]; then echo $file $(readlink $file); else echo $file $(head -c 100 $file); fi; done")
    };
    let lines = |plugins: &[&str]| {
        let line = |plugin: &&str| format!("{plugin} #!/run/copy/postern --plugin={plugin}\n");
        plugins.iter().map(line).collect::<Vec<_>>()
    };
    let [bridge, loopback, ptp, fixed] = lines(&["bridge", "loopback", "ptp", "static"]).try_into().unwrap_or_default();
    let expected = format!("{bridge}bridge.native one\n{loopback}{ptp}ptp.native /usr/libexec/cni/ptp\n{fixed}");
    ensure!(seen()? == expected, "{}", seen()?);
    // Repeated adds change nothing. A different file is kept beside the first. Equal files are kept once.
    add("bridge")?;
    ensure!(seen()? == expected, "{}", seen()?);
    node.sh("echo two > /run/bin/bridge")?;
    let printed = flat(&add("bridge")?);
    ensure!(
        printed.contains("an earlier kept file is now /run/bin/bridge.native-1")
            && flat(&printed).contains("kept as /run/bin/bridge.native"),
        "{printed}"
    );
    node.sh("echo two > /run/bin/bridge")?;
    add("bridge")?;
    node.sh("echo three > /run/bin/bridge")?;
    add("bridge")?;
    // The JSON output names the kept file too.
    let printed = node.sh(&format!(
        "mkdir /run/json; echo one > /run/json/bridge; {COPY}/postern add bridge --bin /run/json --json"
    ))?;
    let object: Value = serde_json::from_str(&printed)?;
    for (key, value) in [("plugin", "bridge"), ("file", "/run/json/bridge"), ("kept", "/run/json/bridge.native")] {
        ensure!(object.get(key).and_then(Value::as_str) == Some(value), "{printed}");
    }
    let kept = "bridge.native three\nbridge.native-1 one\nbridge.native-2 two\n";
    ensure!(seen()? == expected.replace("bridge.native one\n", kept), "{}", seen()?);
    Ok(())
}

#[test]
fn what_cannot_be_placed_is_refused_before_anything_is() -> Result<()> {
    let node = node()?;
    let wasm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wasm32-wasip2/guest/postern-static.wasm");
    node.sh(&format!(
        "cp {} /run/x.wasm; : > /run/x.toml; mkdir -p /run/bin/taken '/run/a place'; cp -a {COPY} '/run/a place/copy'
        mkdir -p /run/$(printf 'd%.0s' $(seq 240)); cp -a {COPY} $(echo /run/ddd*)/copy",
        wasm.display()
    ))?;
    let listing = || node.sh("find /run/bin /run/copy '/run/a place' /run/ddd* -printf '%p %s %m %T@ %C@\\n'");
    let before = listing()?;
    each(
        [
            (
                "/run/copy/postern add /run/x.wasm --policy /run/x.toml --bin /run/nowhere",
                "there is no CNI bin directory /run/nowhere",
            ),
            (
                "/run/copy/postern add /run/x.wasm --policy /run/x.toml --name taken --bin /run/bin",
                "/run/bin/taken is a directory",
            ),
            (
                "/run/copy/postern add /run/x.wasm --policy /run/x.toml --name postern-admin --bin /run/bin",
                "is no name for a plugin",
            ),
            (
                "/run/copy/postern add /run/x.wasm --policy /run/x.toml --name postern --bin /run/bin",
                "is no name for a plugin",
            ),
            (
                "/run/copy/postern add /run/x.wasm --policy /run/x.toml --name postern.d --bin /run/bin",
                "is no name for a plugin",
            ),
            (
                "/run/copy/postern add /run/x.wasm --policy /run/x.toml --name bridge.native --bin /run/bin",
                "is no name for a plugin",
            ),
            ("/run/copy/postern add /run/x.wasm --bin /run/bin", "give one with --policy"),
            ("/run/copy/postern add unknown --bin /run/bin", "no plugin \"unknown\" is installed"),
            ("/run/copy/postern add static", "needs --bin DIR"),
            (
                "'/run/a place/copy/postern' add /run/x.wasm --policy /run/x.toml --bin /run/bin",
                "only by an absolute path without white space",
            ),
            ("/run/ddd*/copy/postern add /run/x.wasm --policy /run/x.toml --bin /run/bin", "and the kernel reads 254"),
            // The file would start a host that does not find the plugin.
            (
                "/run/copy/postern add /run/x.wasm --policy /run/x.toml --catalog /run/other/postern.d --bin /run/bin",
                "looks for plugins in /run/copy/postern.d, and not in /run/other/postern.d: leave out --catalog, or --bin",
            ),
        ],
        |case| case.0.to_owned(),
        |(command, words)| {
            let printed = node.sh(&format!("! {command} 2>&1"))?;
            ensure!(flat(&printed).contains(words), "{printed}");
            ensure!(listing()? == before, "a refused command placed a file");
            Ok(())
        },
    )
}

/// Reads a version as Go programs do: an optional `v`, numbers, and parts behind `-` and `+`. Returns the numbers.
fn version(text: &str) -> Option<Vec<u64>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, metadata) = text.split_once('+').map_or((text, None), |(text, metadata)| (text, Some(metadata)));
    let (numbers, before) = text.split_once('-').map_or((text, None), |(numbers, before)| (numbers, Some(before)));
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let has_parts = |parts: Option<&str>| parts.is_none_or(|parts| parts.split('.').all(is_part));
    let numbers: Option<Vec<u64>> = numbers.split('.').map(|number| number.parse().ok()).collect();
    numbers.filter(|_| has_parts(before) && has_parts(metadata))
}

/// The version that Nomad's fingerprint finds, if the exit status is 0: the first printed word that is a version.
fn nomads(printed: &Output) -> Option<Vec<u64>> {
    let all = [printed.stdout.as_slice(), &printed.stderr].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    all.split_whitespace().find_map(version).filter(|_| printed.status.success())
}

/// The version that nerdctl finds: the rest of the first line of standard error with this prefix.
fn nerdctls(printed: &Output) -> Option<Vec<u64>> {
    let errors = String::from_utf8_lossy(&printed.stderr).into_owned();
    let line = errors.lines().find_map(|line| line.strip_prefix("CNI firewall plugin "))?.to_owned();
    version(&line).filter(|_| printed.status.success())
}

/// Programs look for a plugin's version outside of the protocol. Nomad places jobs by the version, and nerdctl chooses
/// the isolation of networks by the version.
#[test]
fn programs_find_the_version_of_the_native_plugins() -> Result<()> {
    let node = node()?;
    let start = |path: &str, arguments: &[&str]| -> Result<Output> {
        let mut command = node.command(path);
        Ok(command.args(arguments).env_remove("CNI_COMMAND").stdin(Stdio::null()).output()?)
    };
    let own = format!("v1.9.1+postern.{}", env!("CARGO_PKG_VERSION"));
    for plugin in shipped()? {
        let path = format!("{COPY}/{plugin}");
        for arguments in [&[][..], &["--version"], &["-h"], &["version"]] {
            let printed = start(&path, arguments)?;
            let errors = String::from_utf8_lossy(&printed.stderr).into_owned();
            let lines: Vec<&str> = errors.lines().collect();
            ensure!(printed.status.success() && printed.stdout.is_empty(), "{plugin} {arguments:?}: {printed:?}");
            ensure!(lines.len() == 2 && lines.first() == Some(&&*format!("CNI {plugin} plugin {own}")), "{errors}");
            ensure!(nomads(&printed) == Some(vec![1, 9, 1]), "{plugin}: {printed:?}");
        }
        // The second line has the native version.
        let native = native_bin()?.join(&plugin);
        if native.exists() && plugin != "flannel" {
            let second = |printed: Output| {
                String::from_utf8_lossy(&printed.stderr).lines().nth(1).unwrap_or_default().to_owned()
            };
            let (ours, theirs) = (second(start(&path, &[])?), second(start(&native.display().to_string(), &[])?));
            ensure!(ours == theirs, "{plugin}: {ours} instead of {theirs}");
        }
    }
    ensure!(nerdctls(&start(&format!("{COPY}/firewall"), &[])?) == Some(vec![1, 9, 1]));
    // `version` must not accept words that are no versions, such as words of earlier outputs.
    ensure!(version("0.1.0") == Some(vec![0, 1, 0]) && version("postern").is_none() && version("1.1.0,").is_none());
    Ok(())
}

/// Nomad starts every executable file in a CNI bin directory without arguments.
#[test]
fn whatever_lies_in_a_cni_bin_directory_ends_at_once_without_arguments() -> Result<()> {
    let node = node()?;
    let files = node.sh(&format!("cd {COPY}; find . -maxdepth 1 -type f -perm /111 -printf '%f\n' | sort"))?;
    let plugins = shipped()?;
    ensure!(files.lines().count() > plugins.len(), "{files}");
    for file in files.lines() {
        let status = if plugins.iter().any(|plugin| plugin == file) { 0 } else { 2 };
        let printed = node.command("timeout").args(["3", &format!("{COPY}/{file}")]).stdin(Stdio::null()).output()?;
        let errors = String::from_utf8_lossy(&printed.stderr).into_owned();
        ensure!(printed.status.code() == Some(status), "{file}: {printed:?}");
        ensure!(status == 0 || errors.to_lowercase().contains("usage: "), "{file}: {errors}");
    }
    // A run without arguments does not even make a socket's directory.
    node.sh("test ! -e /run/cni").map(drop)
}

/// `postern add` warns about a directory or file that others could change. The command still uses the directory or
/// file, because its owner may be the person who types the command.
#[test]
fn what_others_could_change_is_not_taken_without_a_word() -> Result<()> {
    let node = node()?;
    let wasm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wasm32-wasip2/guest/postern-static.wasm");
    node.sh(&format!(
        "cp {} /run/x.wasm; cp {COPY}/postern.d/static.toml /run/x.toml; mkdir /run/bin",
        wasm.display()
    ))?;
    let add = |what: &str| -> Result<String> {
        let answer = node.postern_of(COPY, &format!("add {what}"))?;
        answer.printed()?;
        Ok(answer.words())
    };
    let (component, installed) =
        ("/run/x.wasm --name static --policy /run/x.toml --bin /run/bin", "static --bin /run/bin");
    for what in [component, installed] {
        let printed = add(what)?;
        ensure!(!printed.contains("can be written"), "{what}: {printed}");
    }
    node.sh("chmod 777 /run/bin")?;
    for what in [component, installed] {
        let printed = add(what)?;
        let words = "/run/bin can be written by others than its owner (mode 777)";
        ensure!(
            printed.contains(words) && printed.contains("the runtime starts the programs in /run/bin"),
            "{what}: {printed}"
        );
    }
    node.sh("chmod 755 /run/bin; chmod 777 /run/x.toml")?;
    let printed = add(component)?;
    let words = "policy /run/x.toml can be written by others than its owner (mode 777): its present text is installed";
    ensure!(printed.contains(words) && printed.contains("`postern inspect static` shows it"), "{printed}");
    Ok(())
}

/// A user who can write a program that runtimes or services start has the host's privileges. `doctor` reports such a
/// program, with a remedy.
#[test]
fn programs_that_others_could_change_are_errors() -> Result<()> {
    let node = node()?;
    node.sh(&format!(
        "mkdir /run/bin; for plugin in ptp static; do {COPY}/postern add $plugin --bin /run/bin; done
         for name in postern-dhcpd postern-wasi; do [ -e {COPY}/$name ] || cp /bin/true {COPY}/$name; done"
    ))?;
    let errors = || -> Result<Vec<String>> {
        let errors = doctor(&node, "--bin /run/bin")?.into_iter().filter(|[severity, ..]| severity == "error");
        Ok(errors.map(|[_, place, what, remedy]| format!("{place}: {what}; {remedy}")).collect())
    };
    let before = errors()?;
    ensure!(before.is_empty(), "{before:?}");
    let beside = ["postern", "postern-admin", "postern-dhcpd", "postern-wasi"].map(|name| format!("{COPY}/{name}"));
    for file in beside.into_iter().chain(["/run/bin/ptp".to_owned()]) {
        node.sh(&format!("chmod 777 {file}"))?;
        let found = errors()?;
        let (words, remedy) = (
            format!("{file}: {file} can be written by others than its owner (mode 777)"),
            format!("chmod go-w {file}"),
        );
        ensure!(found.len() == 1 && found[0].starts_with(&words) && found[0].ends_with(&remedy), "{file}: {found:?}");
        node.sh(&remedy)?;
    }
    // If others can write the whole directory, doctor reports one defect.
    node.sh("chmod 777 /run/bin")?;
    let found = errors()?;
    ensure!(found.len() == 1 && found[0].starts_with("/run/bin: /run/bin can be written by others"), "{found:?}");
    node.sh("chmod 755 /run/bin")?;
    ensure!(errors()?.is_empty(), "{:?}", errors()?);
    Ok(())
}
