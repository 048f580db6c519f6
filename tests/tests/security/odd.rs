//! Unusual process states that a runtime may pass on: ignored or blocked signals, low limits, closed streams, a removed
//! working directory. Each run succeeds, or fails with an error object and has changed nothing. No run is silent, and
//! no run hangs.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{Refusal, Watched, each};
use postern_tests::{Answer, Network, plugin_bin};
use serde_json::json;

/// The expected end of a run.
enum End {
    /// The run succeeds.
    Works,
    /// The run fails with these words.
    Fails(&'static str),
    /// The run succeeds, or fails with these words. The outcome depends on whether the kernel applies the limit to this
    /// user, or on whether the run starts a program.
    Either(&'static str),
    /// The answer has no reader, but the run ends correctly.
    Unheard,
}

use End::{Either, Fails, Unheard, Works};

/// A condition: its name, the shell code that makes it and continues with `"$@"`, and the ends of VERSION, ADD and DEL.
type Condition = (&'static str, &'static str, [End; 3]);

const LIMIT_OF_STACK: &str = "the runtime limits the stack to 64, and a run needs 128";

const LIMIT_OF_DATA: &str = "the runtime limits the data to 8192, and a run needs 16384";
const NO_DATA: &str = "(`ulimit -d";

const ODD: [Condition; 32] = [
    ("SIGCHLD is ignored", "exec env --ignore-signal=CHLD \"$@\"", [Works, Works, Works]),
    ("all signals are ignored", "exec env --ignore-signal \"$@\"", [Works, Works, Works]),
    ("all signals are blocked", "exec env --block-signal \"$@\"", [Works, Works, Works]),
    ("SIGPIPE kills", "exec env --default-signal=PIPE \"$@\"", [Works, Works, Works]),
    ("no file may grow", "ulimit -f 0; exec \"$@\"", [Works, Fails("File too large"), Either("File too large")]),
    (
        "no file may grow, which kills",
        "ulimit -f 0; exec env --default-signal=XFSZ \"$@\"",
        [Works, Fails("File too large"), Either("File too large")],
    ),
    ("a stack of 64 KiB", "ulimit -s 64; exec \"$@\"", [Works, Fails(LIMIT_OF_STACK), Fails(LIMIT_OF_STACK)]),
    ("a stack of 128 KiB", "ulimit -s 128; exec \"$@\"", [Works, Works, Works]),
    ("a stack of 256 KiB", "ulimit -s 256; exec \"$@\"", [Works, Works, Works]),
    ("a stack of 64 KiB, which may be raised", "ulimit -S -s 64; exec \"$@\"", [Works, Works, Works]),
    ("a stack without end", "ulimit -s unlimited 2>/dev/null || true; exec \"$@\"", [Works, Works, Works]),
    (
        "16 open files",
        "ulimit -n 16; exec \"$@\"",
        [
            Works,
            Fails("the runtime limits the number of open files to 16, and a run needs"),
            Fails("the runtime limits the number of open files to 16, and a run needs"),
        ],
    ),
    ("16 open files, which may be raised", "ulimit -S -n 16; exec \"$@\"", [Works, Works, Works]),
    ("as many open files as are asked for", "ulimit -n 22; exec \"$@\"", [Works, Works, Works]),
    ("24 open files", "ulimit -n 24; exec \"$@\"", [Works, Works, Works]),
    (
        "4 GiB of addresses",
        "ulimit -v 4194304; exec \"$@\"",
        // DEL uses the record, and needs no engine.
        [Works, Fails("the runtime limits the address space to 4194304, and a run needs 6291456"), Works],
    ),
    ("4 GiB of addresses, which may be raised", "ulimit -S -v 4194304; exec \"$@\"", [Works, Works, Works]),
    ("6 GiB of addresses", "ulimit -v 6291456; exec \"$@\"", [Works, Works, Works]),
    (
        "64 MiB of addresses",
        "ulimit -v 65536; exec \"$@\"",
        [Works, Fails("the runtime limits the address space to 65536, and a run needs 6291456"), Works],
    ),
    ("16 MiB of addresses, which may be raised", "ulimit -S -v 16384; exec \"$@\"", [Works, Works, Works]),
    // The heap has almost no memory, so the run prints a constant error object.
    ("512 KiB of data", "ulimit -d 512; exec \"$@\"", [Either(NO_DATA), Fails(NO_DATA), Fails(NO_DATA)]),
    ("8 MiB of data", "ulimit -d 8192; exec \"$@\"", [Works, Fails(LIMIT_OF_DATA), Fails(LIMIT_OF_DATA)]),
    ("8 MiB of data, which may be raised", "ulimit -S -d 8192; exec \"$@\"", [Works, Works, Works]),
    ("16 MiB of data", "ulimit -d 16384; exec \"$@\"", [Works, Works, Works]),
    ("no data, which may be raised", "ulimit -S -d 0; exec \"$@\"", [Works, Works, Works]),
    ("one process", "exec prlimit --nproc=1 \"$@\"", [Works, Either("cannot start"), Either("Try again")]),
    ("nothing on standard input", "exec \"$@\" <&-", [Works, Fails("unexpected end"), Fails("unexpected end")]),
    ("no standard output", "exec \"$@\" >&-", [Unheard, Unheard, Unheard]),
    ("no standard error", "exec \"$@\" 2>&-", [Works, Works, Works]),
    ("everybody may write", "umask 0; exec \"$@\"", [Works, Works, Works]),
    ("nobody may do anything", "umask 777; exec nice -n 19 \"$@\"", [Works, Works, Works]),
    ("no working directory", "cd /run; mkdir gone; cd gone; rmdir ../gone; exec \"$@\"", [Works, Works, Works]),
];

fn ended(answer: &Answer, end: &End) -> Result<()> {
    match end {
        Unheard => ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}"),
        Works => drop(answer.success()?),
        Either(_) if answer.status == 0 => drop(answer.success()?),
        Fails(words) | Either(words) => {
            let refusal = Refusal::of(answer)?;
            ensure!(refusal.text.contains(words), "not \"{words}\": {}", refusal.text);
        }
    }
    Ok(())
}

/// Returns a node that has the node objects, mainly the bridge, and the network for attachments.
fn prepared(backend: &str) -> Result<(Watched, Network)> {
    let mut watched = Watched::new(&["c1"])?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let bridge = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
        "ipMasqBackend": backend, "ipam": ipam});
    let network = Network::new(&watched.node, &bridge)?;
    for verb in ["ADD", "DEL"] {
        network.call(verb, "c1")?.success()?;
    }
    watched.look()?;
    Ok((watched, network))
}

/// Makes a call through a program and its arguments.
fn call_under<const N: usize>(wrapper: [&str; N], network: &Network, verb: &str) -> Result<Answer> {
    network.node.call_under(&wrapper.map(str::to_owned), &network.request(0, verb, "c1", &json!({}))?)
}

fn endure(backend: &str) -> Result<()> {
    let (mut watched, network) = prepared(backend)?;
    each(
        ODD,
        |odd| odd.0.to_owned(),
        |(_, script, [version, add, del])| {
            let oddly = |verb: &str| call_under(["bash", "-c", script, "bash"], &network, verb);
            let answer = oddly("VERSION")?;
            ended(&answer, version).context("VERSION")?;
            let answer = oddly("ADD")?;
            ended(&answer, add).context("ADD")?;
            let attached = answer.status == 0;
            if !attached {
                watched.unchanged().context("after an ADD that failed")?;
                network.add("c1").context("an ADD after the failed ADD")?;
            }
            let lease = watched.node.sh("stat -c %a /var/lib/cni/networks/net /var/lib/cni/networks/net/10.9.0.*")?;
            ensure!(lease.lines().all(|mode| matches!(mode, "755" | "700" | "600")), "modes of leases: {lease}");
            let answer = oddly("DEL")?;
            ended(&answer, del).context("DEL")?;
            if answer.status != 0 {
                network.call("DEL", "c1")?.success().context("a DEL after the condition")?;
            }
            watched.unchanged().context("after DEL")
        },
    )
}

#[test]
fn a_run_works_or_says_why_not() -> Result<()> {
    endure("nftables")
}

#[test]
fn so_does_one_that_starts_programs() -> Result<()> {
    endure("iptables")
}

/// DEL has no answer, so it succeeds with an unwritable standard output.
#[test]
fn a_del_writes_nothing() -> Result<()> {
    let (mut watched, network) = prepared("nftables")?;
    for output in ["/dev/null", "/dev/full"] {
        network.add("c1")?;
        let answer = call_under(["bash", "-c", "exec \"$@\" 1<$0", output], &network, "DEL")?;
        ensure!(answer.status == 0 && answer.stdout.is_empty(), "{output}: {answer:?}");
        watched.unchanged().context("after DEL")?;
    }
    Ok(())
}

/// A message about the missing Landlock appears once after a boot, and not in the runtime's log for each container.
#[test]
fn a_missing_landlock_is_said_once() -> Result<()> {
    let (_, network) = prepared("nftables")?;
    let inject = "inject=landlock_create_ruleset:error=ENOSYS";
    let strace = ["strace", "-f", "-qq", "-o", "/var/log/trace", "-e", "signal=none", "-e", inject];
    let mut said = 0;
    for verb in ["ADD", "DEL", "ADD", "DEL"] {
        let answer = call_under(strace, &network, verb)?;
        ensure!(answer.status == 0, "{verb}: {answer:?}");
        said += answer.stderr.matches("this kernel has no Landlock").count();
    }
    ensure!(said == 1, "said {said} times");
    Ok(())
}

/// The sandbox keeps a positive `oom_score_adj` of the runtime. A negative value protects the runtime's own processes.
/// The sandbox gives it up, because it runs another vendor's guest. `tests/runtimes/owner` tests this: only root of the
/// node can lower the value.
#[test]
fn the_sandbox_is_no_harder_to_kill_than_its_runtime_wants() -> Result<()> {
    let (watched, _) = prepared("nftables")?;
    let path = format!("{}/bridge", plugin_bin()?.display());
    // The sandbox exists before the request arrives. Its seccomp filter is the last part of its setup.
    let script = format!(
        "echo 321 > /proc/self/oom_score_adj; export CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS={} CNI_IFNAME=eth0 CNI_PATH=/run
         mkfifo /run/in; exec 7<>/run/in; {path} < /run/in & gate=$!
         for try in $(seq 100); do read -r sandbox rest < /proc/$gate/task/$gate/children || true; [ -z \"$sandbox\" ] || break; sleep .05; done
         for try in $(seq 100); do grep -q '^Seccomp:.2' /proc/$sandbox/status && break; sleep .05; done
         cat /proc/$sandbox/oom_score_adj; kill $gate",
        watched.node.netns("c1")
    );
    let found = watched.node.sh(&script)?;
    ensure!(found.trim() == "321", "{found}");
    Ok(())
}

/// cap-std opens files. It walks the path itself if the kernel lacks `openat2(2)`, or if a runtime's filter forbids it.
#[test]
fn a_run_needs_no_openat2() -> Result<()> {
    const TRACE: &str = "/var/log/trace";
    let (mut watched, network) = prepared("nftables")?;
    each(
        ["ENOSYS", "EPERM"],
        |errno| (*errno).to_owned(),
        |errno| {
            let inject = format!("inject=openat2:error={errno}");
            let strace = ["strace", "-qq", "-o", TRACE, "-e", "signal=none", "-e", &inject];
            for verb in ["ADD", "DEL"] {
                call_under(strace, &network, verb)?.success().context(verb)?;
                let trace = std::fs::read_to_string(watched.node.path(TRACE))?;
                ensure!(trace.contains("(INJECTED)"), "{verb} did not call openat2");
            }
            watched.unchanged().context("after DEL")
        },
    )
}
