//! `postern install --watch`, while another installer changes plugins' files.

use anyhow::{Result, ensure};
use postern_tests::{Node, copy_bin, flat, plugin_bin};

/// Two CNI bin directories.
const BINS: [&str; 2] = ["/run/bin", "/run/other"];

/// Functions of the scripts: `start` starts the watch, `said TEXT` waits until the watch has said the text, `ended` waits for its
/// end and prints the status. The interval is a minute, so the kernel's notices are the reason for each look.
const FUNCTIONS: &str = r#"
    start() { # start [OPTION...]
      rm -f /run/status; : > /run/metrics; : > /run/said
      stays install --bin-dir /run/bin --bin-dir /run/other --plugins ptp,static --watch "$@"
    }
    stays() { # stays COMMAND...: starts a command of people that stays
      (/run/build/postern-admin "$@" > /run/metrics 2> /run/said & echo $! > /run/process; status=0; wait $! || status=$?; echo $status > /run/status) > /dev/null 2>&1 &
    }
    stop() { kill $1 $(cat /run/process); }
    until_() { # until_ FILE TEXT
      for try in $(seq 200); do
        ! tr '\n' ' ' < $1 | sed 's/  */ /g' | grep -qF "$2" || return 0
        [ ! -e /run/status ] || break
        sleep .05
      done
      echo "not said: $2"; cat /run/metrics /run/said; exit 1
    }
    said() { until_ /run/said "$1"; }
    metric() { until_ /run/metrics "postern_plugin_file_changes_total{directory=\"$1\",plugin=\"$2\",change=\"$3\"} $4"; }
    ours() { [ "$(head -c 2 $1)" = '#!' ] || { echo "$1 is not Postern's"; exit 1; }; }
    ready() { until_ /run/metrics "is installed in"; }
    ended() { for try in $(seq 200); do [ ! -s /run/status ] || break; sleep .05; done; cat /run/status; }
    # Another installer writes into the present file, or puts a new file in its place.
    write() { echo "another $RANDOM$1" > $1; }
    replace() { echo "another $1" > $1.new; chmod 755 $1.new; mv $1.new $1; }
"#;

/// Makes a node with a separate `/usr/local` and a build.
fn node() -> Result<Node> {
    let node = Node::new()?;
    let build = copy_bin(&plugin_bin()?, "/run/build");
    node.sh(&format!("mount -t tmpfs -o mode=755 local /usr/local; mkdir /usr/local/lib /usr/local/bin; {build}"))?;
    Ok(node)
}

fn sh(node: &Node, script: &str) -> Result<String> {
    node.sh(&format!("{FUNCTIONS}\n{script}"))
}

#[test]
fn a_second_installation_has_nothing_to_do() -> Result<()> {
    let node = node()?;
    let [one, other] = BINS;
    let install =
        format!("/run/build/postern-admin install --bin-dir {one} --bin-dir {other} --plugins ptp,static 2>&1");
    let tree = || node.sh("find /usr/local /run/bin /run/other -printf '%p %i %m %C@\\n' | sort");
    ensure!(!node.sh(&install)?.contains("nothing had to be done"), "the first installation");
    let before = tree()?;
    let said = flat(&node.sh(&install)?);
    ensure!(said.contains("nothing had to be done"), "{said}");
    ensure!(tree()? == before, "an installation that had nothing to do has changed a file");
    for change in [
        "rm /run/bin/ptp",
        "echo native > /run/other/static",
        "chmod 644 /run/bin/ptp",
        "rm /usr/local/bin/postern",
        "rm /usr/local/lib/postern/schemas",
        "rm /usr/local/lib/postern/current/postern.d/ptp.toml",
        "rm /usr/local/lib/postern/bin-directories",
        "rm /usr/local/lib/systemd/system/postern-dhcp.socket",
        "echo deb > /usr/local/lib/postern/installed-by",
    ] {
        node.sh(change)?;
        let said = flat(&node.sh(&install)?);
        ensure!(!said.contains("nothing had to be done"), "{change}: {said}");
        let said = flat(&node.sh(&install)?);
        ensure!(said.contains("nothing had to be done"), "{change}, then twice: {said}");
    }
    Ok(())
}

#[test]
fn files_are_put_back_three_times_and_then_left_to_the_other_installer() -> Result<()> {
    let node = node()?;
    sh(
        &node,
        "start; ready; ours /run/bin/ptp
         write /run/bin/ptp; said '/run/bin/ptp was overwritten, and is put back (1 of 3); the other file is kept as /run/bin/ptp.native'
         metric /run/bin ptp overwritten 1; ours /run/bin/ptp
         rm /run/bin/ptp; said 'ptp was removed, and is put back (2 of 3)'; metric /run/bin ptp removed 1; ours /run/bin/ptp
         replace /run/other/static; said '/run/other/static was overwritten, and is put back (1 of 3)'; metric /run/other static overwritten 1
         replace /run/bin/ptp; said '(3 of 3)'; metric /run/bin ptp overwritten 2; ours /run/bin/ptp
         [ ! -e /run/status ]
         replace /run/bin/ptp; rm /run/other/static
         [ $(ended) = 3 ]
         metric() { grep -qF \"change=\\\"$3\\\"} $4\" /run/metrics; }; metric /run/bin ptp overwritten 3; metric /run/other static removed 1
         tr '\\n' ' ' < /run/said | sed 's/  */ /g' | grep -F 'put back 3 times, and they stay as they are: /run/bin/ptp (another program, 21 bytes)'
         # Files of which the other installer has taken less are Postern's.
         ours /run/other/static; ! grep -q '^#!' /run/bin/ptp
         grep -qx /run/bin/ptp /usr/local/lib/postern/given-up",
    )?;
    // A runtime that starts the watch again does not go on with the exchange of files.
    sh(
        &node,
        "start; [ $(ended) = 3 ]; grep -q '^postern: another installer' /run/said; [ ! -s /run/metrics ]; ! grep -q '^#!' /run/bin/ptp",
    )?;
    // A person decides for Postern's files.
    sh(
        &node,
        "/run/build/postern-admin install --bin-dir /run/bin --bin-dir /run/other --plugins ptp,static > /dev/null
         ours /run/bin/ptp; [ ! -e /usr/local/lib/postern/given-up ]
         start; ready; replace /run/bin/ptp; said '(1 of 3)'; stop -TERM; [ $(ended) = 0 ]",
    )?;
    Ok(())
}

#[test]
fn a_signal_or_a_removal_ends_the_watch() -> Result<()> {
    let node = node()?;
    for signal in ["TERM", "INT"] {
        sh(
            &node,
            &format!("start; ready; stop -{signal}; [ $(ended) = 0 ]; [ ! -s /run/said ] || ! grep -v dhcp /run/said"),
        )?;
    }
    let removed = sh(
        &node,
        "start; ready; /usr/local/bin/postern uninstall --yes --bin-dir /run/other > /dev/null; [ $(ended) = 1 ]
         [ ! -e /run/other/ptp ]; ours /run/bin/ptp; cat /run/said",
    )?;
    ensure!(flat(&removed).contains("another command removed the plugins from /run/other"), "{removed}");
    let removed = sh(
        &node,
        "start; ready; /run/build/postern-admin uninstall --yes > /dev/null; [ $(ended) = 1 ]; [ ! -e /run/bin/ptp ]; cat /run/said",
    )?;
    ensure!(flat(&removed).contains("another command removed the installation in /usr/local/lib/postern"), "{removed}");
    Ok(())
}

/// A user may have as many inotify instances as `fs.inotify.max_user_instances` says, and a file system may report no changes.
#[test]
fn without_notices_of_the_kernel_the_files_are_looked_at() -> Result<()> {
    let node = node()?;
    sh(
        &node,
        "start --interval 1; ready; mount -t tmpfs -o mode=755 over /run/bin; said '/run/bin/ptp was removed, and is put back (1 of 3)'
         ours /run/bin/ptp; stop -TERM; [ $(ended) = 0 ]",
    )?;
    Ok(())
}

#[test]
fn a_removal_stays_until_a_signal() -> Result<()> {
    let node = node()?;
    sh(
        &node,
        "/run/build/postern-admin install --bin-dir /run/bin --plugins ptp > /dev/null
         rm -f /run/status; stays uninstall --yes --stay; sleep .1
         until_ /run/metrics 'is removed from'; sleep .2; [ ! -e /run/status ]; [ ! -e /run/bin/ptp ]; stop -TERM; [ $(ended) = 0 ]",
    )?;
    let refused = node.sh("! /run/build/postern-admin uninstall --stay 2>&1")?;
    ensure!(refused.contains("--yes"), "{refused}");
    Ok(())
}
