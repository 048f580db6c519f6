//! The search for namespaces: from process to process, and from one namespace to the next.

use crate::descriptors::{Lead, NamespaceKind, OpenFiles, has_own_files, kind_of, lead};
use crate::mounts::{self, Mount, NamespaceId};
use crate::{LiveNamespace, Namespaces, UnreadablePlace};
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;
use postern_kernel::{KernelError, Netlink, cookie_of, describe, namespace_of};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The most passes over all processes. Several passes are needed, because new processes start during a pass. A new
/// process may be in a namespace whose other processes have ended since.
const ROUNDS: usize = 3;

/// The number of namespaces that are opened before their mounts are looked up again. The number limits open files.
const AT_ONCE: usize = 64;

/// The largest number of entries kept in [`Namespaces::unseen`]; a user without privileges can look at almost nothing.
const MOST_UNSEEN: usize = 64;

/// The clock is read after this number of descriptors.
const DESCRIPTORS: usize = 256;

/// `PID_NS_INIT_INO` of `linux/nsfs.h`: the PID namespace in which all processes of the node can be seen.
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

const UNINHABITED: &str = "a mount namespace without a process: its mounts can't be read";

const NETWORK: &str = "ns/net";
const OWN: &str = "/proc/thread-self";

/// A search in progress, in its own thread, which goes from one namespace to the next.
pub(crate) struct Search {
    deadline: Instant,
    /// The namespaces whose routes are read. Links and addresses are read in all namespaces. `None`: only cookies are
    /// read.
    routes_of: Option<BTreeSet<u64>>,
    late: bool,
    /// The path of this thread, which is in the last examined namespace.
    own: PathBuf,
    found: BTreeMap<NamespaceId, LiveNamespace>,
    /// The cookies of the entered namespaces.
    entered: BTreeSet<u64>,
    /// Namespaces that exist but could not be opened or entered.
    refused: BTreeMap<NamespaceId, UnreadablePlace>,
    unseen: Vec<UnreadablePlace>,
    more_unseen: usize,
    /// Mount namespaces, with the root directories of their processes and the processes (or threads) that have each
    /// root.
    mount_spaces: BTreeMap<NamespaceId, BTreeMap<OsString, Vec<PathBuf>>>,
    /// The mount namespaces that have a process, once all processes were looked at.
    inhabited: BTreeSet<NamespaceId>,
    /// The namespaces that only sockets keep alive, and that were not entered.
    held: BTreeMap<u64, PathBuf>,
    /// The device number of nsfs.
    nsfs: u64,
}

/// True if the error shows that the object is gone.
fn has_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EINVAL))
}

/// Returns success if the error shows that the object is gone.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if has_gone(&error) { Ok(()) } else { Err(error) })
}

pub(crate) fn reason(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), describe)
}

/// Returns the entries of a directory of procfs that are numbers: processes, threads, descriptors.
fn numbered(directory: impl AsRef<Path>) -> io::Result<impl Iterator<Item = io::Result<(u32, PathBuf)>>> {
    let number = |path: &Path| path.file_name()?.to_str()?.parse().ok();
    Ok(fs::read_dir(directory)?.filter_map(move |entry| {
        let path = entry.map(|entry| entry.path());
        path.map(|path| Some((number(&path)?, path))).transpose()
    }))
}

/// Returns the target of a magic link of procfs.
fn target(path: &Path) -> io::Result<NamespaceId> {
    fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Search {
    pub(crate) fn new(deadline: Instant, routes_of: Option<BTreeSet<u64>>) -> io::Result<Self> {
        Ok(Self {
            deadline,
            routes_of,
            late: false,
            own: Path::new("/proc").join(fs::read_link(OWN)?),
            found: BTreeMap::new(),
            entered: BTreeSet::new(),
            refused: BTreeMap::new(),
            unseen: Vec::new(),
            more_unseen: 0,
            mount_spaces: BTreeMap::new(),
            inhabited: BTreeSet::new(),
            held: BTreeMap::new(),
            nsfs: target(&Path::new(OWN).join(NETWORK))?.0,
        })
    }

    pub(crate) fn run(mut self) -> io::Result<Namespaces> {
        let enclosed = target(Path::new("/proc/self/ns/pid"))?.1 != FIRST_PID_NAMESPACE;
        self.all_processes()?;
        // Under `hidepid` the processes of other users are not even listed.
        if let Err(error) = fs::symlink_metadata("/proc/1") {
            self.note_unreadable(Path::new("/proc/1"), reason(&error));
        }
        self.inhabited = self.mount_spaces.keys().copied().collect();
        self.all_mounts();
        self.all_descriptors()?;
        self.held.retain(|cookie, _| !self.entered.contains(cookie));
        // The addresses in these namespaces are unknown.
        if self.routes_of.is_some() {
            for path in self.held.values().cloned().collect::<Vec<_>>() {
                self.note_unreadable(&path, "a socket keeps a namespace alive that can't be entered");
            }
        }
        let mut missed = std::mem::take(&mut self.unseen);
        // Namespaces that are known to exist come first.
        for (key, unseen) in std::mem::take(&mut self.refused) {
            if !self.found.contains_key(&key) {
                self.note_unreadable(&unseen.path, unseen.reason);
            }
        }
        missed.drain(..).for_each(|unseen| self.note_unreadable(&unseen.path, unseen.reason));
        Ok(Namespaces {
            found: self.found.into_values().collect(),
            held: self.held,
            unseen: self.unseen,
            more_unseen: self.more_unseen,
            enclosed,
        })
    }

    fn note_unreadable(&mut self, path: &Path, reason: impl Into<String>) {
        if self.unseen.len() < MOST_UNSEEN {
            self.unseen.push(UnreadablePlace { path: path.to_owned(), reason: reason.into() });
        } else {
            self.more_unseen = self.more_unseen.saturating_add(1);
        }
    }

    /// True if the deadline passed before `path` was examined. The deadline is reported once, for all later places.
    fn is_late(&mut self, path: &Path) -> bool {
        if !self.late && Instant::now() > self.deadline {
            self.late = true;
            self.note_unreadable(path, "the time is up: this place and all later places were not looked at");
        }
        self.late
    }

    fn all_processes(&mut self) -> io::Result<()> {
        let mut looked_at = BTreeSet::new();
        for _ in 0..ROUNDS {
            let before = looked_at.len();
            for process in numbered("/proc")? {
                let (pid, path) = process?;
                if looked_at.insert(pid) && !self.is_late(&path) {
                    self.process(pid, &path);
                }
            }
            if looked_at.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Looks at all threads of a process: each may be in its own namespace.
    fn process(&mut self, pid: u32, directory: &Path) {
        let mut inhabited = BTreeSet::new();
        let result = numbered(directory.join("task")).and_then(|threads| {
            for thread in threads {
                let (id, thread) = thread?;
                if thread == self.own {
                    continue;
                }
                if self.is_late(&thread) {
                    break;
                }
                // The first thread is the process, which has the shorter path.
                let thread = if id == pid { directory } else { &thread };
                // If the thread has ended meanwhile, the search continues with the next thread.
                unless_gone(self.task(pid, thread, &mut inhabited))?;
            }
            Ok(())
        });
        if let Err(error) = unless_gone(result) {
            self.note_unreadable(directory, reason(&error));
        }
    }

    /// Looks at one thread.
    fn task(&mut self, pid: u32, directory: &Path, inhabited: &mut BTreeSet<NamespaceId>) -> io::Result<()> {
        let path = directory.join(NETWORK);
        let mut key = target(&path)?;
        if !self.found.contains_key(&key) && !self.refused.contains_key(&key) {
            let file = File::open(&path)?;
            // The present namespace counts: a thread may change its namespace at any time.
            key = mounts::identity(&file)?;
            self.enter(key, &path, &file);
        }
        if inhabited.insert(key)
            && let Some(found) = self.found.get_mut(&key)
        {
            found.processes = found.processes.saturating_add(1);
            found.process.get_or_insert(pid);
        }
        let space = target(&directory.join("ns/mnt"))?;
        let root = fs::read_link(directory.join("root"))?.into_os_string();
        self.mount_spaces.entry(space).or_default().entry(root).or_default().push(directory.to_owned());
        Ok(())
    }

    /// Enters and examines a namespace, unless it was entered before.
    fn enter(&mut self, key: NamespaceId, path: &Path, namespace: &File) {
        if self.found.contains_key(&key) {
            return;
        }
        let looked = setns(namespace, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| format!("enter namespace: {}", describe(errno as i32)))
            .and_then(|()| look_around(key, path, self.routes_of.as_ref()));
        match looked {
            Ok(found) => {
                self.entered.insert(found.cookie);
                self.found.insert(key, found);
            }
            Err(reason) => self.refuse(key, path, reason),
        }
    }

    fn refuse(&mut self, key: NamespaceId, path: &Path, reason: String) {
        self.refused.insert(key, UnreadablePlace { path: path.to_owned(), reason });
    }

    fn all_mounts(&mut self) {
        let own = target(&Path::new(OWN).join("ns/mnt")).ok();
        let spaces = std::mem::take(&mut self.mount_spaces);
        for (space, mut roots) in spaces {
            if Some(space) == own {
                self.view(&[OWN.into()]);
                // In a chroot this process sees fewer mounts than the first process.
                let first = Path::new("/proc/1");
                if target(&first.join("ns/mnt")).ok() == own
                    && target(&first.join("root")).ok() != target(Path::new("/")).ok()
                {
                    self.view(&[first.to_owned()]);
                }
            } else if let Some(tasks) = roots.remove(&OsString::from("/")) {
                // A thread with the namespace's own root sees all mounts of the namespace.
                self.view(&tasks);
            } else {
                for tasks in roots.values() {
                    self.view(tasks);
                    if let Some(task) = tasks.first() {
                        self.note_unreadable(
                            task,
                            "the processes of its mount namespace see only a part of the mounts (chroot)",
                        );
                    }
                }
            }
        }
    }

    /// Examines the mounts that these threads see. All threads see the same mounts, so the first living thread is
    /// enough.
    fn view(&mut self, tasks: &[PathBuf]) {
        for task in tasks {
            if self.is_late(task) {
                return;
            }
            match self.mounts_of(task) {
                Ok(()) => return,
                Err(error) if has_gone(&error) => {}
                Err(error) => return self.note_unreadable(&task.join("mountinfo"), reason(&error)),
            }
        }
    }

    fn mounts_of(&mut self, task: &Path) -> io::Result<()> {
        let mounts = mounts::read(task, self.deadline)?;
        let root = match task == Path::new(OWN) {
            true => PathBuf::from("/"),
            false => task.join("root"),
        };
        let directory = open(&root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let place = |mount: &Mount| root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        let mut unknown = Vec::new();
        for mount in mounts.values() {
            let here = place(mount);
            match (mount.kind.as_str(), self.found.get_mut(&mount.key)) {
                ("mnt", _) if !self.inhabited.contains(&mount.key) => {
                    self.refuse(mount.key, &here, UNINHABITED.to_owned());
                }
                ("net", None) => unknown.push(mount),
                ("net", Some(found))
                    if task == Path::new(OWN)
                        && found.path.starts_with("/proc")
                        && mounts::walk(&directory, mount).is_ok() =>
                {
                    found.path = here;
                }
                _ => {}
            }
        }
        for some in unknown.chunks(AT_ONCE) {
            if self.is_late(&root) {
                break;
            }
            let walked: Vec<_> = some.iter().map(|mount| (mount, mounts::walk(&directory, mount))).collect();
            // While a file is open, the number of the file's mount can't pass to another mount. So this list is valid
            // for the file.
            let now = mounts::read(task, self.deadline)?;
            for (mount, walked) in walked {
                if now.get(&mount.id).is_none_or(|now| now.key != mount.key) {
                    continue;
                }
                match walked.and_then(|walked| mounts::open(&walked, mount.key)) {
                    Ok(file) => self.enter(mount.key, &place(mount), &file),
                    Err(error) => self.refuse(mount.key, &place(mount), why_not_reached(&error)),
                }
            }
        }
        Ok(())
    }

    /// Examines the open files of all processes. A process that can't be examined was reported before.
    fn all_descriptors(&mut self) -> io::Result<()> {
        for process in numbered("/proc")? {
            let (pid, process) = process?;
            if self.unseen.iter().any(|unseen| unseen.path == process) {
                continue;
            }
            if self.is_late(&process) {
                break;
            }
            if let Err(error) = unless_gone(self.descriptors(pid, &process)) {
                self.note_unreadable(&process.join("fd"), reason(&error));
            }
        }
        Ok(())
    }

    /// Examines the open files of a process, and of its threads that have their own table.
    fn descriptors(&mut self, pid: u32, process: &Path) -> io::Result<()> {
        let mut files = None;
        self.open_files(pid, process, &mut files)?;
        for thread in numbered(process.join("task"))? {
            let (id, path) = thread?;
            if id == pid || self.is_late(&path) {
                continue;
            }
            match has_own_files(pid, id) {
                Ok(false) => {}
                Err(error) if has_gone(&error) => {}
                // In a kernel without kcmp(2) each thread is examined.
                Ok(true) | Err(_) => unless_gone(self.open_files(pid, &path, &mut None))?,
            }
        }
        Ok(())
    }

    fn open_files(&mut self, pid: u32, task: &Path, files: &mut Option<OpenFiles>) -> io::Result<()> {
        for (count, entry) in numbered(task.join("fd"))?.enumerate() {
            let (number, path) = entry?;
            if count.is_multiple_of(DESCRIPTORS) && self.is_late(&path) {
                break;
            }
            if let Err(error) = unless_gone(self.open_file(pid, number, &path, files)) {
                self.note_unreadable(&path, reason(&error));
            }
        }
        Ok(())
    }

    fn open_file(&mut self, pid: u32, number: u32, path: &Path, files: &mut Option<OpenFiles>) -> io::Result<()> {
        let lead = lead(path, self.nsfs)?;
        match lead {
            Lead::Nothing => return Ok(()),
            Lead::Namespace(key) if self.found.contains_key(&key) || self.inhabited.contains(&key) => return Ok(()),
            Lead::Namespace(_) => {
                let file = File::open(path)?;
                let key = mounts::identity(&file)?;
                match kind_of(&file)? {
                    NamespaceKind::Network => self.enter(key, path, &file),
                    NamespaceKind::Mounts if !self.inhabited.contains(&key) => {
                        self.refuse(key, path, UNINHABITED.to_owned());
                    }
                    NamespaceKind::Mounts | NamespaceKind::Other => {}
                }
                return Ok(());
            }
            Lead::Socket | Lead::Tun => {}
        }
        // A thread with its own table of open files has other files under these numbers. These files can't be copied.
        let first = PathBuf::from(format!("/proc/{pid}/fd/{number}"));
        if path != first {
            if target(path)? != target(&first).unwrap_or_default() {
                self.note_unreadable(path, "a socket of a thread with its own table of open files");
            }
            return Ok(());
        }
        let files = match files {
            Some(files) => files,
            None => files.insert(OpenFiles::of(pid)?),
        };
        if matches!(lead, Lead::Tun) {
            return self.enter_kept(path, files.ask(number, namespace_of)?);
        }
        let cookie = files.ask(number, cookie_of)?;
        if self.entered.contains(&cookie) || self.held.contains_key(&cookie) {
            return Ok(());
        }
        self.held.insert(cookie, path.to_owned());
        if self.routes_of.is_some()
            && let Ok(namespace) = files.ask(number, namespace_of)
        {
            self.enter_kept(path, namespace)?;
        }
        Ok(())
    }

    fn enter_kept(&mut self, path: &Path, namespace: OwnedFd) -> io::Result<()> {
        let file = File::from(namespace);
        self.enter(mounts::identity(&file)?, path, &file);
        Ok(())
    }
}

fn why_not_reached(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EXDEV) => "another mount hides this path".to_owned(),
        Some(libc::EAGAIN) => "this path can't be walked without waiting for a file system".to_owned(),
        _ => reason(error),
    }
}

/// Returns the state of the calling thread's namespace. A namespace without a cookie can't be distinguished from
/// others.
fn look_around(key: NamespaceId, path: &Path, routes_of: Option<&BTreeSet<u64>>) -> Result<LiveNamespace, String> {
    let found = |cookie| LiveNamespace { identity: key, cookie, path: path.to_owned(), ..LiveNamespace::default() };
    let Some(routes_of) = routes_of else {
        // Every socket has the cookie. An unbound Unix datagram socket can do nothing else.
        return UnixDatagram::unbound().and_then(cookie_of).map(found).map_err(|error| reason(&error));
    };
    let text = |error: KernelError| error.to_string();
    // A list that changes while it is read is an error here: missing objects would count as gone, and would be removed.
    // Runs of ADD and DEL need only the cookies, and read no lists.
    let netlink = Netlink::open().map_err(text)?;
    let cookie = netlink.cookie().map_err(text)?;
    let (links, addresses) = (netlink.links(), netlink.all_addresses());
    let refused = [links.as_ref().err(), addresses.as_ref().err()].into_iter().flatten().next();
    Ok(LiveNamespace {
        unread: refused.map(KernelError::to_string),
        routes: if routes_of.contains(&cookie) { netlink.all_routes().ok() } else { None },
        links: links.unwrap_or_default(),
        addresses: addresses.unwrap_or_default(),
        ..found(cookie)
    })
}
