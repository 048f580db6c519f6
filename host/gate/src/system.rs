//! The connections of a run to its surroundings: the host's kernel, the container, and the programs and services of the
//! node. Each connection is opened at its first use.

pub mod dhcp;

use crate::deadline::Deadline;
use crate::errors::{firewall_error, kernel_error};
use crate::known::{ContainerAccess, Known};
use crate::retention::LazyServed;
use dhcp::DhcpConnections;
use postern_cni::Error;
use postern_confine::{Direct, Run};
use postern_firewall::iptables::ProgramRunner;
use postern_firewall::{FirewallError, Nft};
use postern_kernel::sysctl::Setting;
use postern_kernel::tcx::Sight;
use postern_kernel::{Link, LinkFiles, Namespace, Netlink, NumberedNamespace, Worker};
use postern_types::{ErrorCode, OpError};
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::rc::Rc;

/// A socket for nftables, opened at its first use.
///
/// One socket serves all removals, because closing a socket after a deletion takes time: the kernel waits for readers
/// of the old rules.
pub type SharedNft = Rc<RefCell<Option<Nft>>>;

/// The purpose for which the container's namespace is entered.
#[derive(Clone, Debug)]
pub enum Inside {
    /// Netlink, and the settings of links. The listed settings are only read.
    Opened(Vec<Setting>),
    /// Like `Opened`, and other settings, which need a thread in the namespace.
    Thread,
    /// Like `Thread`, and one tap, in this SELinux context if there is one.
    Tap(Option<String>),
}

/// The error for a run whose container can't be entered. The plugin gets this error for each operation.
#[derive(Debug)]
pub struct NoContainerAsked {
    pub error: Error,
    /// True if the plugin has asked for an operation. Otherwise the plugin's own error is reported.
    pub is_asked: Cell<bool>,
}

impl NoContainerAsked {
    /// Refuses an operation. Always returns the error.
    pub fn refuse(&self, netns: &str) -> Result<(), OpError> {
        self.is_asked.set(true);
        Err(OpError::new(ErrorCode::NotFound, netns, self.error.to_string()))
    }
}

/// The connections of one run to its surroundings.
pub struct System {
    /// The runner of programs: this process until it is confined, then the helper, if this run has one.
    pub runner: Rc<dyn Run>,
    /// The connections to DHCP services.
    pub dhcp: Rc<DhcpConnections>,
    /// The addresses to which rules of the node lead traffic, read once for a whole collection.
    pub served: LazyServed,
    /// The reason why the container's namespace can't be entered, for a plugin that needs the namespace.
    pub no_container: Option<NoContainerAsked>,
    /// The facts that this run knows of other attachments.
    pub known: Known,
    deadline: Rc<Deadline>,
    /// `CNI_NETNS`.
    pub netns: String,
    /// The socket for nftables. Other runs of this process may use the socket too.
    pub nft: SharedNft,
    host: OnceCell<Netlink>,
    home: OnceCell<Rc<NumberedNamespace>>,
    sight: OnceCell<Sight>,
    link_files: OnceCell<Option<Rc<LinkFiles>>>,
    worker: Option<Rc<Worker>>,
    namespace: Option<Namespace>,
    /// The reason why it is unknown whether the container's namespace is alive. `None` if this is known, or if the
    /// runtime has named the namespace.
    pub hidden: Option<String>,
}

impl System {
    /// Makes the value for a run with the container at `netns`, and opens no connection.
    pub fn new(deadline: &Rc<Deadline>, netns: &str) -> Self {
        Self {
            runner: Rc::new(Direct),
            dhcp: Rc::default(),
            served: LazyServed::default(),
            no_container: None,
            known: Known::default(),
            deadline: Rc::clone(deadline),
            netns: netns.to_owned(),
            nft: SharedNft::default(),
            host: OnceCell::new(),
            home: OnceCell::new(),
            sight: OnceCell::new(),
            link_files: OnceCell::new(),
            worker: None,
            namespace: None,
            hidden: None,
        }
    }

    /// Shares the open connections of another run of this process, except the connections to that run's container.
    pub fn share_all(&mut self, other: &Self) {
        self.runner = Rc::clone(&other.runner);
        self.home = other.home.clone();
        self.sight = other.sight.clone();
        self.link_files = other.link_files.clone();
        self.dhcp = Rc::clone(&other.dhcp);
        self.nft = Rc::clone(&other.nft);
    }

    /// Makes `found` the container of this run.
    pub fn use_access(&mut self, found: ContainerAccess) {
        self.hidden = None;
        match found {
            ContainerAccess::Gone => {}
            ContainerAccess::Hidden(why) => self.hidden = Some(why),
            ContainerAccess::In(worker) => self.worker = Some(worker),
        }
    }

    /// Enters the container's namespace, for the purpose `needed`. If a thread is started in the namespace, `confine`
    /// confines the thread.
    pub fn enter(
        &mut self,
        namespace: Namespace,
        needed: Inside,
        confine: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<(), OpError> {
        let entered = match &needed {
            Inside::Opened(looks) => Worker::enter(&namespace, self.home()?, looks).map_err(kernel_error)?,
            Inside::Thread | Inside::Tap(_) => None,
        };
        let worker = match (entered, needed) {
            (Some(worker), _) => Ok(worker),
            (None, Inside::Tap(context)) => Worker::start_for(&namespace, Some(context), confine),
            (None, Inside::Opened(_) | Inside::Thread) => Worker::start(&namespace, confine),
        };
        self.worker = Some(Rc::new(worker.map_err(kernel_error)?));
        self.namespace = Some(namespace);
        Ok(())
    }

    /// Leaves the container's namespace. A thread in it ends, and the process that makes taps ends too.
    pub fn leave(&mut self) {
        self.worker = None;
    }

    /// Returns the container's namespace itself, for requests to the kernel.
    pub fn namespace(&self) -> Result<&Namespace, OpError> {
        self.namespace.as_ref().ok_or_else(|| self.container_gone())
    }

    /// Returns the access to the container's namespace; `None` without a container, or if its namespace is gone.
    pub fn container(&self) -> Option<&Worker> {
        self.worker.as_deref()
    }

    /// Returns the container's namespace, for an operation that needs it.
    pub fn container_required(&self) -> Result<&Worker, OpError> {
        self.worker.as_deref().ok_or_else(|| self.container_gone())
    }

    /// Returns the socket in the container's namespace, for an operation that needs it.
    pub fn container_netlink(&self) -> Result<&Netlink, OpError> {
        self.container_required()?.netlink().map_err(kernel_error)
    }

    /// Like `container_netlink`, but `None` without a container.
    pub fn netlink_inside(&self) -> Result<Option<&Netlink>, OpError> {
        self.container().map(|container| container.netlink().map_err(kernel_error)).transpose()
    }

    /// Returns the container's link of this name; `None` without such a link, or without a container.
    pub fn link_inside(&self, name: &str) -> Result<Option<Link>, OpError> {
        let Some(netlink) = self.netlink_inside()? else { return Ok(None) };
        netlink.link_by_name(name).map_err(kernel_error)
    }

    fn container_gone(&self) -> OpError {
        OpError::new(ErrorCode::NotFound, &self.netns, "the container's network namespace is gone")
    }

    /// Returns the socket in the host's namespace, where the process was started.
    pub fn host(&self) -> Result<&Netlink, OpError> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let host = Netlink::open().map_err(kernel_error)?;
        Ok(self.host.get_or_init(|| host))
    }

    /// Returns the host's namespace, in which links are made. The first call must come before this process is confined.
    /// Without `CAP_NET_ADMIN` over the namespace, `/proc` must be mounted.
    pub fn home(&self) -> Result<&Namespace, OpError> {
        self.look_home().map(|home| &home.namespace)
    }

    /// Returns the cookie of the host's namespace, unique until the node reboots. The first call must come before this
    /// process is confined.
    pub fn home_cookie(&self) -> Result<u64, OpError> {
        self.look_home().map(|home| home.cookie)
    }

    fn look_home(&self) -> Result<&NumberedNamespace, OpError> {
        if let Some(home) = self.home.get() {
            return Ok(home);
        }
        let home = NumberedNamespace::open().map_err(kernel_error)?;
        Ok(self.home.get_or_init(|| Rc::new(home)))
    }

    /// Returns the kinds of BPF programs that a search on links can see. The first call determines these kinds, and
    /// must come before this process is confined.
    pub fn sight(&self) -> Sight {
        *self.sight.get_or_init(Sight::find)
    }

    /// Returns the files of the node's links, if this process may mount a sysfs. The mount is tried twice: a failure
    /// can be temporary (ENOMEM), and would keep a device down. The first call must come before this process is
    /// confined.
    pub fn link_files(&self) -> Option<&LinkFiles> {
        self.link_files.get_or_init(|| LinkFiles::mount().or_else(|_| LinkFiles::mount()).ok().map(Rc::new)).as_deref()
    }

    /// Returns the socket for nftables in the host's namespace.
    pub fn nft(&self) -> Result<RefMut<'_, Nft>, OpError> {
        let mut nft = self.nft.borrow_mut();
        match &mut *nft {
            Some(nft) => nft.set_deadline(self.deadline.answer_by()),
            None => *nft = Some(Nft::open(self.deadline.answer_by()).map_err(firewall_error)?),
        }
        RefMut::filter_map(nft, Option::as_mut)
            .map_err(|_| OpError::new(ErrorCode::Kernel, "nftables", "the nftables socket is not open"))
    }

    /// Makes a request to nftables for a removal. In a kernel without nftables there is nothing to remove.
    pub fn unless_absent<T: Default>(
        &self,
        ask: impl FnOnce(&mut Nft) -> Result<T, FirewallError>,
    ) -> Result<T, OpError> {
        let mut nft = match self.nft() {
            Ok(nft) => nft,
            Err(error) if error.errno.is_some_and(postern_firewall::is_absence) => return Ok(T::default()),
            Err(error) => return Err(error),
        };
        match ask(&mut nft) {
            Err(_) if nft.is_absent() => Ok(T::default()),
            outcome => outcome.map_err(firewall_error),
        }
    }

    /// Returns the runner of iptables programs, with its deadline.
    pub fn program_runner(&self) -> ProgramRunner<'_> {
        ProgramRunner { runner: &*self.runner, deadline: self.deadline.answer_by(), nft: Some(&self.nft) }
    }
}
