//! A place separate from this node: user, mount and network namespaces with a separate file system.
//!
//! The new root is an empty file system in memory. It contains these files of the node: the directories of programs
//! (for iptables), read-only, `/proc`, `/dev/net/tun`, and copies of the files that the configurations name. It
//! contains nothing of the node's network.

use anyhow::{Context, Result, anyhow};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{chdir, getegid, geteuid, pivot_root};
use postern_kernel::tap::TUN;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The directory in which the new root is built. Its earlier content is hidden until the new root is in place.
const WORKSHOP: &str = "/run";

/// The directories of programs. An absent directory is left out. A link is copied as a link.
const PROGRAMS: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "usr", "etc/alternatives"];

/// Directories that each node ([`on_node`]) has separately.
const STATE: [&str; 2] = ["/run", "/var"];

const NONE: Option<&str> = None;

/// The container's namespace on every node ([`on_node`]).
pub const NETNS: &str = "/run/netns/learn";

/// Moves this process into a new place, with copies of `files` (path and content).
///
/// # Errors
/// A text for people: this user or this kernel can't have namespaces. The process must have a single thread.
pub fn enter(files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).map_err(|errno| {
        anyhow!(
            "learn runs plugins in namespaces of its own, and the kernel refuses them here: {}; see the \
             sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone (Debian) and \
             kernel.apparmor_restrict_unprivileged_userns (Ubuntu)",
            errno.desc()
        )
    })?;
    fs::write("/proc/self/setgroups", "deny").context("/proc/self/setgroups")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).context("/proc/self/uid_map")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).context("/proc/self/gid_map")?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).context("making mounts private")?;
    memory(WORKSHOP)?;
    let root = Path::new(WORKSHOP);
    for directory in ["proc", "dev", "etc", "tmp", "run", "var"] {
        fs::create_dir(root.join(directory))?;
    }
    for program in PROGRAMS {
        show(program, root)?;
    }
    bind(Path::new("/proc"), &root.join("proc"))?;
    File::create(root.join("dev/null"))?;
    bind(Path::new("/dev/null"), &root.join("dev/null"))?;
    // A tap belongs to the namespace of the process that opens this file: here to a namespace of this place.
    if Path::new(TUN).exists() {
        fs::create_dir(root.join("dev/net"))?;
        File::create(root.join("dev/net/tun"))?;
        bind(Path::new(TUN), &root.join("dev/net/tun"))?;
    }
    chdir(WORKSHOP)?;
    pivot_root(".", ".").context("changing the root")?;
    umount2(".", MntFlags::MNT_DETACH).context("leaving the node's file system")?;
    chdir("/").context("/")?;
    // The files are written after the change of the root: no path leads out any more.
    for (path, contents) in files {
        // A file in a directory of programs exists already.
        if !path.exists() {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).with_context(|| path.display().to_string())?;
            fs::write(path, contents).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Mounts a directory of the node in the new root, read-only.
fn show(name: &str, root: &Path) -> Result<()> {
    let (source, target) = (Path::new("/").join(name), root.join(name));
    let Ok(metadata) = fs::symlink_metadata(&source) else { return Ok(()) };
    if metadata.is_symlink() {
        return symlink(fs::read_link(&source)?, target).with_context(|| format!("/{name}"));
    }
    fs::create_dir_all(&target)?;
    bind(&source, &target)?;
    // Flags that the kernel has locked in a user namespace have to be given again.
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    let present = statvfs(&target).with_context(|| format!("/{name}"))?.f_flag;
    for (has, keep) in [
        (StatVfsMountFlags::NOSUID, MsFlags::MS_NOSUID),
        (StatVfsMountFlags::NODEV, MsFlags::MS_NODEV),
        (StatVfsMountFlags::NOEXEC, MsFlags::MS_NOEXEC),
        (StatVfsMountFlags::NOATIME, MsFlags::MS_NOATIME),
        (StatVfsMountFlags::NODIRATIME, MsFlags::MS_NODIRATIME),
        (StatVfsMountFlags::RELATIME, MsFlags::MS_RELATIME),
    ] {
        if present.contains(has) {
            flags |= keep;
        }
    }
    mount(NONE, &target, NONE, flags, NONE).with_context(|| format!("cannot make /{name} read-only"))
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)
        .with_context(|| format!("cannot show {}", source.display()))
}

fn memory(path: &str) -> Result<()> {
    mount(Some("learn"), path, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .with_context(|| format!("a file system in memory at {path}"))
}

/// Calls `work` on a separate node: an empty network, empty state, and a container's namespace at [`NETNS`].
///
/// # Errors
/// The error of `work`, or of the kernel.
pub fn on_node<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    in_thread(|| {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).context("a node's namespaces")?;
        STATE.into_iter().try_for_each(memory)?;
        for directory in ["/run/netns", "/run/lock", "/var/lib", "/var/log"] {
            fs::create_dir_all(directory).context(directory)?;
        }
        File::create(NETNS).context(NETNS)?;
        // A mount keeps a thread's namespace alive.
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("a container's namespace")?;
            bind(Path::new("/proc/thread-self/ns/net"), Path::new(NETNS))
        })?;
        work()
    })
}

/// Calls `work` in a thread. A thread may have other namespaces than the rest of the process, and its children inherit
/// these namespaces.
fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| Err(anyhow!("a thread of learn failed")))
}
