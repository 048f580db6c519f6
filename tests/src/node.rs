//! A node: a network namespace and a mount namespace for one host, and network namespaces for its containers.

use crate::inside::{Namespaces, on_thread};
use crate::{Answer, Call, netlink, plugin_bin};
use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

/// The directory of the containers' network namespaces.
const NETNS: &str = "/run/netns";

/// The variable that `tests/in-namespaces` sets.
const PRIVATE: &str = "POSTERN_PRIVATE";

/// The directories that each node has for itself. So two nodes can use the same paths (which appear in results)
/// without sharing state.
const OWN: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// A host in private namespaces. All copies are the same host. When the last copy is dropped, the host's namespaces
/// end.
#[derive(Debug, Clone)]
pub struct Node {
    holder: Arc<Holder>,
}

/// The process that holds a node's namespaces.
#[derive(Debug)]
struct Holder(Child);

impl Node {
    /// Makes a fresh node. Its only link is `lo`, which is up.
    ///
    /// # Errors
    /// The process is outside `tests/in-namespaces`, or the kernel refuses namespaces.
    pub fn new() -> Result<Self> {
        ensure!(
            std::env::var_os(PRIVATE).is_some(),
            "not in private namespaces: run this program through cargo or tests/in-namespaces"
        );
        on_thread(|| {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
                .context("a node's namespaces")?;
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            for directory in OWN {
                mount(Some("own"), directory, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).context(directory)?;
            }
            [NETNS, "/run/lock"].iter().try_for_each(std::fs::create_dir)?;
            // As `ip netns add` does: copies of this mount namespace see later mounts in this directory.
            mount(Some(NETNS), NETNS, none, MsFlags::MS_BIND, none)?;
            mount(none, NETNS, none, MsFlags::MS_SHARED, none)?;
            netlink::lo_up()?;
            // `cat` holds the namespaces until its input ends.
            let holder = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
            Ok(Self { holder: Arc::new(Holder(holder)) })
        })
    }

    /// Returns a path of the node's own file system, as seen from this process.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        Path::new("/proc")
            .join(self.holder.0.id().to_string())
            .join("root")
            .join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Returns a command that runs on the node.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter(format!("/proc/{}/ns/net", self.holder.0.id()).as_ref(), program.as_ref())
    }

    /// Returns a command that runs in a container's network namespace (and the node's mount namespace).
    pub fn command_in(&self, container: &str, program: impl AsRef<OsStr>) -> Command {
        self.enter(self.path(netns(container)).as_ref(), program.as_ref())
    }

    fn enter(&self, net: &OsStr, program: &OsStr) -> Command {
        let mut option = std::ffi::OsString::from("--net=");
        option.push(net);
        // A plugin that doesn't answer is killed, with status 124, so that it does not outlive the test.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", "120", "nsenter"]);
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.0.id())).arg(option).arg("--").arg(program);
        command
    }

    fn mount_namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/mnt", self.holder.0.id()).into()
    }

    /// Returns the path of a container's network namespace, or of the node's own.
    fn net_namespace(&self, container: Option<&str>) -> PathBuf {
        match container {
            Some(container) => self.path(netns(container)),
            None => format!("/proc/{}/ns/net", self.holder.0.id()).into(),
        }
    }

    /// Runs a program in a container's network namespace, or in the node's own, and returns its output. A program that
    /// does not end is killed, with status 124.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn run(&self, container: Option<&str>, command: &mut Command, input: Option<&[u8]>) -> Result<Output> {
        let (mount, net) = (self.mount_namespace(), self.net_namespace(container));
        Namespaces { mount: &mount, net: &net }.run(command, input)
    }

    /// Runs `work` on a thread in a container's network namespace, or in the node's own. The thread sees the node's
    /// file system.
    ///
    /// # Errors
    /// The namespaces can't be entered, or `work` fails.
    pub fn within<T: Send>(&self, container: Option<&str>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let (mount, net) = (self.mount_namespace(), self.net_namespace(container));
        Namespaces { mount: &mount, net: &net }.within(work)
    }

    /// Runs a shell script on the node and returns its output.
    ///
    /// # Errors
    /// The script fails.
    pub fn sh(&self, script: &str) -> Result<String> {
        self.script(None, script)
    }

    /// Runs a shell script in a container's network namespace and returns its output.
    ///
    /// # Errors
    /// The script fails.
    pub fn sh_in(&self, container: &str, script: &str) -> Result<String> {
        self.script(Some(container), script)
    }

    fn script(&self, container: Option<&str>, script: &str) -> Result<String> {
        let Output { status, stdout, stderr } =
            self.run(container, Command::new("sh").args(["-ec", script]), None).with_context(|| script.to_owned())?;
        if !status.success() {
            bail!("{script}: {status}\n{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    /// Adds a container: a network namespace at [`netns`](Self::netns), whose only link `lo` is down, as runtimes make
    /// it.
    ///
    /// # Errors
    /// The container exists.
    pub fn add_container(&self, container: &str) -> Result<()> {
        let path = netns(container);
        self.within(None, || {
            File::create_new(&path)?;
            unshare(CloneFlags::CLONE_NEWNET)?;
            let none = None::<&str>;
            Ok(mount(Some("/proc/thread-self/ns/net"), path.as_str(), none, MsFlags::MS_BIND, none)?)
        })
        .with_context(|| format!("a namespace for container {container}"))
    }

    /// Removes a container's network namespace. Waits until the kernel has removed the links in it, which happens some
    /// time after the removal.
    ///
    /// # Errors
    /// The container does not exist, or its links stay for more than 10 s.
    pub fn remove_container(&self, container: &str) -> Result<()> {
        // The script waits for the host ends of veth pairs. A macvlan has no host end, so its namespace gets a veth pair, which
        // the kernel removes together with the macvlan.
        self.sh(&format!(
            "nsenter --net={path} ip -o link show type macvlan | grep -q . && ip link add veth-leaving type veth peer name veth-leaving netns {container}; \
             ends=$(nsenter --net={path} ip -o link show type veth | sed -n 's/^\\([0-9]*\\): [^@]*@if\\([0-9]*\\):.*/\\2: [^@]*@if\\1:/p'); ip netns del {container}; \
             echo \"$ends\" | while read -r end && [ -n \"$end\" ]; do tries=0; \
               while ip -o link show type veth | grep -q \"^$end\"; do sleep .02; tries=$((tries+1)); [ $tries -lt 500 ]; done; done",
            path = netns(container),
        ))
        .map(drop)
    }

    /// Returns the path of a container's network namespace, valid on the node.
    pub fn netns(&self, container: &str) -> String {
        netns(container)
    }

    /// Calls a plugin on the node.
    ///
    /// # Errors
    /// The plugin can't be started. Its failure is an answer, not an error.
    pub fn call(&self, call: &Call) -> Result<Answer> {
        self.call_under(&[], call)
    }

    /// As [`Node::call`], through another program. `wrapper` is that program's name and first arguments; the plugin's
    /// path follows.
    ///
    /// # Errors
    /// As [`Node::call`].
    pub fn call_under(&self, wrapper: &[String], call: &Call) -> Result<Answer> {
        let mut command = match wrapper.split_first() {
            None => Command::new(call.program()),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(call.program());
                command
            }
        };
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(call.environment());
        self.answer(&mut command, Some(call.stdin()))
    }

    /// Runs `postern` of the plugins under test: `node.postern("ls --json")`. White space separates the arguments.
    ///
    /// # Errors
    /// `postern` can't be started. Its failure is an answer, not an error.
    pub fn postern(&self, arguments: &str) -> Result<Answer> {
        self.postern_of(plugin_bin()?, arguments)
    }

    /// As [`Node::postern`], with the executable of another plugin directory.
    ///
    /// # Errors
    /// As [`Node::postern`].
    pub fn postern_of(&self, bin: impl AsRef<Path>, arguments: &str) -> Result<Answer> {
        self.answer(Command::new(bin.as_ref().join("postern")).args(arguments.split_whitespace()), None)
    }

    /// Runs a program on the node and returns its answer, whatever its status.
    ///
    /// # Errors
    /// As [`Node::run`].
    pub fn answer(&self, command: &mut Command, input: Option<&[u8]>) -> Result<Answer> {
        let output = self.run(None, command, input)?;
        Ok(Answer {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Starts a plugin directly, without a wrapper, so that a test can kill the plugin. Returns as soon as the input is
    /// in the pipe.
    ///
    /// # Errors
    /// The plugin can't be started.
    pub fn start(&self, call: &Call) -> Result<Child> {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--mount=/proc/{}/ns/mnt", self.holder.0.id()))
            .arg(format!("--net=/proc/{}/ns/net", self.holder.0.id()))
            .arg("--")
            .arg(call.program())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(call.environment());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(call.stdin());
        }
        Ok(child)
    }

    /// Calls DEL. Only native plugins are called again, at most five times. Their first DEL with `ipMasq` fails here,
    /// because iptables 1.8.9 reports a missing chain with a status that the plugins don't know. The second DEL finds
    /// no addresses and succeeds.
    ///
    /// # Errors
    /// DEL fails.
    pub fn delete(&self, call: &Call) -> Result<()> {
        let native = crate::native_bin().is_ok_and(|bin| call.program().starts_with(bin));
        let mut answer = self.call(call)?;
        for _ in 0..if native { 5 } else { 0 } {
            if answer.status != 0 {
                answer = self.call(call)?;
            }
        }
        answer.success().map(drop)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn netns(container: &str) -> String {
    format!("{NETNS}/{container}")
}
