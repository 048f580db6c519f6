//! Access to the container's network namespace: a netlink socket and sysctls.

use crate::conf_directories::ConfDirectories;
use crate::error::{Result, Subject, unless};
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::sysctl::{self, READ, Setting, SettingFile, Sysctl, SysctlFile, WRITE};
use crate::tap::{TapFile, TapSpec};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A request to the thread after the thread has opened its socket. A sysctl belongs to the namespace of the thread that
/// opens its file. So this thread opens the file.
type Job = Box<dyn FnOnce(&mut Tap) + Send>;

/// The tap that the thread makes.
struct Tap {
    /// The open file, until the tap is made.
    unused: Option<Result<TapFile>>,
    made: Option<TapFile>,
}

/// Access to a network namespace: a netlink socket in the namespace, and its sysctls. Dropping the `Worker` closes
/// everything.
///
/// * [`Worker::start`]: a thread that has entered the namespace, and never leaves it. This thread offers every
///   operation.
/// * [`Worker::enter`]: descriptors that the calling thread opened in the namespace, before it went back to its own
///   namespace. These descriptors offer only the sysctls of links.
#[derive(Debug)]
pub struct Worker {
    path: String,
    netlink: OnceCell<Result<Netlink>>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Thread {
        opened: Receiver<Result<Netlink>>,
        jobs: Sender<Job>,
    },
    /// The directories of the entered namespace and of the caller's namespace. `None` if the namespace could not be
    /// entered.
    Directories(Option<[ConfDirectories; 2]>),
}

impl Worker {
    /// Starts a thread in `namespace` and returns at once; the first use of the `Worker` waits until the thread is
    /// ready. In the namespace the thread calls `confine`, to give up all unneeded privileges: each thread has its own
    /// privileges.
    ///
    /// # Errors
    /// The errors of `clone(2)` and `dup(2)`. If the namespace can't be entered, or the thread can't be confined, the
    /// first use returns the error.
    pub fn start(
        namespace: &Namespace,
        confine: impl FnOnce() -> std::result::Result<(), String> + Send + 'static,
    ) -> Result<Self> {
        Self::start_for(namespace, None, confine)
    }

    /// Enters `namespace`, opens a socket and the directories of its links' sysctls, and goes back to `home`, the
    /// calling thread's own namespace. `None` if a thread is needed: the calling thread might not get back, or the
    /// directories don't lead to the namespace. The result can read and write only settings of links, and can look at
    /// the settings `looks`. If the namespace can't be entered, the first use returns the error, as with
    /// [`Worker::start`].
    ///
    /// # Errors
    /// The error of the return to `home`. The calling thread is in the wrong namespace then, and its process has to
    /// end.
    pub fn enter(namespace: &Namespace, home: &Namespace, looks: &[Setting]) -> Result<Option<Self>> {
        let to = |namespace: &Namespace| setns(namespace.fd(), CloneFlags::CLONE_NEWNET);
        let path = namespace.path().to_owned();
        // A thread that may enter `home` from here may also enter `home` from `namespace`.
        if to(home).is_err() {
            return Ok(None);
        }
        if let Err(errno) = to(namespace) {
            let refused = Subject { operation: "enter namespace", object: &path }.failed(errno);
            return Ok(Some(Self { path, netlink: OnceCell::from(Err(refused)), way: Way::Directories(None) }));
        }
        let (netlink, directories) = (Netlink::open_in_container(), ConfDirectories::open(looks));
        to(home).map_err(|errno| Subject { operation: "leave namespace", object: &path }.failed(errno))?;
        let (Ok(there), Ok(home)) = (directories, ConfDirectories::open(&[])) else { return Ok(None) };
        if !there.lead_elsewhere(&home) {
            return Ok(None);
        }
        Ok(Some(Self { path, netlink: OnceCell::from(netlink), way: Way::Directories(Some([there, home])) }))
    }

    /// Works as [`Worker::start`]. For a `tap` the thread opens `/dev/net/tun` before it is confined. If the tap needs
    /// an SELinux context, the thread also starts this executable as [`crate::tap::NAME`]. The `main` of the executable
    /// has to call [`crate::tap::make_for_another`].
    ///
    /// # Errors
    /// The errors of [`Worker::start`]. If the file can't be opened, or the program can't be started,
    /// [`Worker::make_tap`] returns the error.
    pub fn start_for(
        namespace: &Namespace,
        tap: Option<Option<String>>,
        confine: impl FnOnce() -> std::result::Result<(), String> + Send + 'static,
    ) -> Result<Self> {
        let path = namespace.path().to_owned();
        let subject = Subject { operation: "start thread in", object: &path };
        let fd = namespace.fd().try_clone_to_owned().map_err(|error| subject.failed(error))?;
        let (ready, opened) = channel();
        let (jobs, assigned) = channel();
        let name = path.clone();
        thread::Builder::new()
            .name("namespace".to_owned())
            .spawn(move || live(fd, &name, tap, confine, &ready, &assigned))
            .map_err(|error| subject.failed(error))?;
        Ok(Self { path, netlink: OnceCell::new(), way: Way::Thread { opened, jobs } })
    }

    /// Returns the socket in the namespace.
    ///
    /// # Errors
    /// The errors of `setns(2)`: `EINVAL` if the namespace is no network namespace, `EPERM` without `CAP_SYS_ADMIN`
    /// over the namespace. Also the errors of [`Netlink::open`].
    pub fn netlink(&self) -> Result<&Netlink> {
        let opened = self.netlink.get_or_init(|| match &self.way {
            Way::Thread { opened, .. } => opened.recv().unwrap_or_else(|_| Err(self.lost())),
            Way::Directories(_) => Err(self.lost()),
        });
        opened.as_ref().map_err(Clone::clone)
    }

    /// Returns the namespace's number; see [`Netlink::cookie`].
    ///
    /// # Errors
    /// The errors of [`Worker::netlink`] and [`Netlink::cookie`].
    pub fn cookie(&self) -> Result<u64> {
        self.netlink()?.cookie()
    }

    /// Calls [`sysctl::get`] in the namespace. [`Sysctl::Ipv4Forward`] can be read only by a thread
    /// ([`Worker::start`]).
    ///
    /// # Errors
    /// The errors of [`Worker::netlink`] and [`sysctl::get`].
    pub fn sysctl_get(&self, key: &Sysctl) -> Result<Option<String>> {
        let read = self.at(READ, key.setting(READ)?, |file| file.get());
        Ok(unless(&[Errno::ENOENT], read)?.flatten())
    }

    /// Calls [`sysctl::set`] in the namespace.
    ///
    /// # Errors
    /// The errors of [`Worker::netlink`] and [`sysctl::set`].
    pub fn sysctl_set(&self, key: &Sysctl, value: &str) -> Result<bool> {
        let value = value.to_owned();
        self.at(WRITE, key.setting(WRITE)?, move |file| file.set(&value))
    }

    /// Calls [`sysctl::set`] in the calling thread's namespace, by the open directories. A look-up by path would be
    /// slow: for each container the kernel has entries with the names of these directories, and the look-up goes
    /// through all entries.
    ///
    /// # Errors
    /// The errors of [`sysctl::set`].
    pub fn sysctl_set_at_home(&self, key: &Sysctl, value: &str) -> Result<bool> {
        let Way::Directories(Some([_, home])) = &self.way else { return sysctl::set(key, value) };
        home.place(WRITE, &key.setting(WRITE)?)?.set(value)
    }

    /// Calls [`sysctl::look`] in the namespace.
    ///
    /// # Errors
    /// The errors of [`Worker::netlink`] and [`sysctl::look`].
    pub fn setting_look(&self, setting: &Setting) -> Result<Option<SettingFile>> {
        if let Some(found) = self.directories()?.and_then(|directories| directories.looked_at(setting)) {
            return found;
        }
        let found = self.at("look at sysctl", setting.clone(), |file| file.look());
        Ok(unless(&[Errno::ENOENT], found)?.flatten())
    }

    /// Returns the value of a setting in the namespace, without its final newline.
    ///
    /// # Errors
    /// The errors of [`Worker::netlink`], `open(2)` and `read(2)`; `E2BIG` for a value of more than 4096 bytes.
    pub fn setting_read(&self, setting: &Setting) -> Result<String> {
        self.at(READ, setting.clone(), |file| file.read())
    }

    /// Writes a value of a setting in the namespace, unchanged.
    ///
    /// # Errors
    /// The errors of [`Worker::netlink`], `open(2)` and `write(2)`: `EINVAL` for a value that the kernel refuses.
    pub fn setting_write(&self, setting: &Setting, value: &str) -> Result<()> {
        let value = value.to_owned();
        self.at(WRITE, setting.clone(), move |file| file.write(&value))
    }

    /// Makes a tap in the namespace. The tap is down. The kernel removes the tap when the thread ends, unless
    /// [`Worker::keep_tap`] made it persistent.
    ///
    /// # Errors
    /// The operation of the error is `open` for `/dev/net/tun`, and `set context` or `start in context` for an SELinux
    /// context. `EBUSY` or `EEXIST` if the name is taken. `EINVAL` for a bad name, and for a user or group that the
    /// thread's user namespace lacks. `EADDRNOTAVAIL` for an address that is not unicast. `EBADFD` for a second tap.
    pub fn make_tap(&self, spec: &TapSpec) -> Result<()> {
        let spec = spec.clone();
        self.ask(move |tap| {
            let mut file = tap.unused.take().unwrap_or_else(|| Err(no_tap("create")))?;
            // After an error the file is closed, which removes its tap.
            file.make(&spec).map(|()| tap.made = Some(file))
        })
    }

    /// Makes the tap of [`Worker::make_tap`] persistent, and closes its descriptor.
    ///
    /// # Errors
    /// `EBADFD` if no tap was made.
    pub fn keep_tap(&self) -> Result<()> {
        self.ask(|tap| tap.made.take().ok_or_else(|| no_tap("keep"))?.keep())
    }

    /// Calls `act` with the file of a setting of the namespace: from the open directories, or in the thread.
    fn at<T: Send + 'static>(
        &self,
        operation: &'static str,
        setting: Setting,
        act: impl FnOnce(&SysctlFile<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self.directories()? {
            Some(directories) => act(&directories.place(operation, &setting)?),
            None => self.ask(move |_| act(&SysctlFile::of(&setting))),
        }
    }

    fn directories(&self) -> Result<Option<&ConfDirectories>> {
        self.netlink()?;
        match &self.way {
            Way::Directories(Some([there, _])) => Ok(Some(there)),
            Way::Thread { .. } | Way::Directories(None) => Ok(None),
        }
    }

    /// Lets the thread do `work`, and waits for its result.
    fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Tap) -> Result<T> + Send + 'static) -> Result<T> {
        self.netlink()?;
        let Way::Thread { jobs, .. } = &self.way else { return Err(self.lost()) };
        let (answer, answered) = channel();
        jobs.send(Box::new(move |tap| drop(answer.send(work(tap))))).map_err(|_| self.lost())?;
        answered.recv().unwrap_or_else(|_| Err(self.lost()))
    }

    fn lost(&self) -> crate::KernelError {
        Subject { operation: "work in", object: &self.path }.broken("there is no thread in the namespace")
    }
}

/// Runs the thread. If the channel has no receiver any more, the `Worker` is gone, and the last request needs no
/// answer.
fn live(
    namespace: OwnedFd,
    path: &str,
    tap: Option<Option<String>>,
    confine: impl FnOnce() -> std::result::Result<(), String>,
    ready: &Sender<Result<Netlink>>,
    assigned: &Receiver<Job>,
) {
    let entered = setns(&namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| Subject { operation: "enter namespace", object: &path }.failed(errno));
    drop(namespace);
    let unused = tap.filter(|_| entered.is_ok()).map(|context| TapFile::open(context.as_deref()));
    let mut tap = Tap { unused, made: None };
    let confined = entered.and_then(|()| {
        confine().map_err(|reason| Subject { operation: "confine thread in", object: &path }.broken(reason))
    });
    let stayed = confined.is_ok();
    let _ = ready.send(confined.and_then(|()| Netlink::open_in_container()));
    if !stayed {
        return;
    }
    for job in assigned {
        job(&mut tap);
    }
}

fn no_tap(operation: &'static str) -> crate::KernelError {
    Subject { operation, object: &"tap" }.failed(Errno::EBADFD)
}
