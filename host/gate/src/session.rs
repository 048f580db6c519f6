//! One run of the host: one verb for one attachment. The called plugin and its delegates share it.

mod another;
mod asked;
mod claims;
mod container_access;
pub(crate) mod dhcp;
mod holder;
mod journal;
mod kept;
mod link;
pub(crate) mod port;
mod previous;

pub use asked::{Lessee, looks_gone};
pub use holder::{Holder, HolderState, LedTo, OTHERWISE};
pub use link::{NativeEnd, is_link_of_index};

use container_access::ContainerAccess;
use dhcp::DhcpConnections;

use crate::audit::Audit;
use crate::budget::Common;
use crate::clock::now;
use crate::effect::Effect;
use crate::errors::{firewall_error, kernel_error, state_error};
use crate::places::Places;
use crate::request::Request;
use crate::retention::{LazyServed, Retention};
use ipnet::IpNet;
use postern_cni::{CniResult, Error, Json, NetConf, Verb, Version};
use postern_confine::{Direct, Run};
use postern_firewall::iptables::ProgramRunner;
use postern_firewall::{AttachmentKey, FirewallError, Nft};
use postern_kernel::sysctl::Setting;
use postern_kernel::tcx::Sight;
use postern_kernel::{Home, LinkFiles, Namespace, Netlink, Worker};
use postern_policy::NodeSettings;
use postern_state::{
    Claim, ClaimIndex, DataPath, HostPorts, LeaseStore, Leases, Record, RecordKey, StateError, Summary,
};
use postern_types::{ErrorCode, Mac, OpError};
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An address that belongs to this attachment: IPAM gave it, or `prevResult` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address with prefix length.
    pub net: IpNet,
    /// The address's gateway, if one was given.
    pub gateway: Option<IpAddr>,
}

impl OwnAddress {
    /// Returns the gateway, or else the first address of the network (specification, "gateway"; native bridge and ptp).
    pub fn gateway_or_first(&self) -> Option<IpAddr> {
        self.gateway.or_else(|| first_address(&self.net))
    }

    /// True if the gateway, if one was given, has the address's IP version.
    pub fn is_one_family(&self) -> bool {
        self.gateway.is_none_or(|gateway| gateway.is_ipv4() == self.net.addr().is_ipv4())
    }

    /// Returns the gateway as an address of a bridge, with the address's prefix length. The node gets a route to that
    /// network, so it must be the network of the address.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidArgument`]: the gateway does not lie in the address's network.
    pub fn gateway_on_bridge(&self) -> Result<IpNet, OpError> {
        let gateway = self.gateway_or_first().filter(|gateway| self.net.contains(gateway));
        let net = gateway.and_then(|gateway| IpNet::new(gateway, self.net.prefix_len()).ok());
        net.ok_or_else(|| {
            let gateway = self.gateway_or_first().map_or("none".to_owned(), |gateway| gateway.to_string());
            let message = format!(
                "failed to set bridge addr: the gateway of {} would be {gateway}, which does not lie in its network",
                self.net
            );
            OpError::new(ErrorCode::InvalidArgument, self.net.to_string(), message)
                .hint("have IPAM give a gateway that lies in the network of its address, or leave isGateway out")
        })
    }

    /// True if a result may give this gateway with the address: the address's own, or none.
    pub fn agrees_with(&self, gateway: Option<IpAddr>) -> bool {
        gateway.is_none() || gateway == self.gateway_or_first()
    }
}

/// Takes the addresses of a result as the attachment's own.
pub fn adopt(addresses: &mut Vec<OwnAddress>, result: &CniResult) {
    for ip in &result.ips {
        let own = OwnAddress { net: ip.address, gateway: ip.gateway };
        // A result without the gateway does not remove it.
        let known = |have: &OwnAddress| *have == own || own.gateway.is_none() && have.net == own.net;
        if !addresses.iter().any(known) {
            addresses.push(own);
        }
    }
}

/// Returns the address after the network's own.
fn first_address(net: &IpNet) -> Option<IpAddr> {
    match net.network() {
        IpAddr::V4(network) => network.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(network) => network.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

/// A socket for nftables, opened at its first use.
///
/// When it is closed after a deletion, the kernel waits for readers of the old rules. So one socket serves all
/// removals.
pub type SharedNft = Rc<RefCell<Option<Nft>>>;

/// An effect to undo if this ADD fails.
#[derive(Clone, Debug)]
pub struct Undo {
    /// The number of its line in the record, if it has one.
    pub sequence: Option<u64>,
    /// The effect to remove.
    pub effect: Effect,
    /// The leases that this run took, for [`crate::effect::Lease`]: those of an earlier run stay.
    pub leases: Vec<IpAddr>,
}

/// The effects that an earlier run of the same ADD left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// All effects of the record: its container is gone, or the ADD that made its link did not end.
    Attachment,
    /// The effects in these sections of this plugin.
    Sections(Vec<String>),
}

/// The time that a guest has to end after an operation gave up a wait.
const MARGIN: Duration = Duration::from_secs(1);

/// What the container's namespace is entered for.
#[derive(Clone, Debug)]
pub enum Inside {
    /// Netlink, and the settings of links. These others are only looked at.
    Opened(Vec<Setting>),
    /// That, and other settings: they take a thread in there.
    Thread,
    /// That, and one tap, in this SELinux context if there is one.
    Tap(Option<String>),
}

/// The part of one plugin in the run: its own request, and what the plugins of the run share. A delegate has its own.
pub struct Session<'a> {
    /// The request: verb and configuration of this plugin.
    pub request: &'a Request,
    /// True if this plugin could not be run or was stopped, or if policy or a limit refused one of its operations. The host
    /// must then complete its DEL.
    pub hindered: bool,
    shared: &'a mut RunState,
}

impl Deref for Session<'_> {
    type Target = RunState;

    fn deref(&self) -> &RunState {
        self.shared
    }
}

impl DerefMut for Session<'_> {
    fn deref_mut(&mut self) -> &mut RunState {
        self.shared
    }
}

/// A request, and what the plugins share that carry it out.
pub struct OwnedSession {
    /// The runtime's request, or that of a collection.
    pub request: Request,
    /// What its plugins share.
    pub shared: RunState,
}

impl OwnedSession {
    /// See [`RunState::new`].
    pub fn new(request: Request, deadline: Instant, places: Places) -> Self {
        Self { shared: RunState::new(&request, deadline, places), request }
    }

    /// Makes a session to remove the effects of a record, with nothing but that record. It knows no native programs.
    pub fn of_record(record: Record<Effect>, deadline: Instant, places: Places) -> Self {
        let header = record.header();
        let mut conf = NetConf::unread(Json::Null);
        conf.name.clone_from(&header.network);
        let request = Request {
            plugin: String::new(),
            verb: Verb::Del,
            container_id: header.container_id.clone(),
            netns: header.netns_path.clone(),
            ifname: header.ifname.clone(),
            path: String::new(),
            env: Vec::new(),
            stdin: Arc::default(),
            conf: Rc::new(conf),
            is_made_by_host: false,
            version: Version::LATEST,
        };
        let mut owned = Self::new(request, deadline, places);
        owned.shared.record = Some(record);
        owned.shared.hidden = Some("it was not looked for".to_owned());
        owned
    }

    /// Returns the part of the plugin that the runtime called.
    pub fn session(&mut self) -> Session<'_> {
        Session::of(&self.request, &mut self.shared)
    }
}

/// What the called plugin and its delegates share.
pub struct RunState {
    /// The time after which no operation starts or continues. While this run cleans up, it is `end`.
    pub deadline: Instant,
    /// The end of the whole run, with cleaning up.
    end: Instant,
    /// The directory of records.
    pub state: PathBuf,
    /// The directory of the index of leases.
    pub library: PathBuf,
    /// The runner of programs: this process until it is confined, then the helper, if this run has one.
    pub runner: Rc<dyn Run>,
    /// The directory of the audit log.
    pub logs: PathBuf,
    /// The attachment's addresses.
    pub own: Vec<OwnAddress>,
    /// The audit log.
    pub audit: Audit,
    /// The shared state of its guests.
    pub common: Common,
    /// The effects of this run, in order.
    pub undo: Vec<Undo>,
    /// SHA-256 of the component of the plugin that the runtime called, hexadecimal.
    pub digest: String,
    /// The start of this run, in milliseconds since 1970.
    pub started: u64,
    /// True if the called plugin makes the attachment's link.
    pub owns_link: bool,
    /// True if policy lets that plugin make the attachment's link.
    pub makes_links: bool,
    section: String,
    /// The address of the container's end of the pair that this run made.
    pub container_mac: Option<Mac>,
    /// The links of the container that a guest of this run deleted, by their indices.
    pub deleted: Vec<u32>,
    /// Index of the bridge that this run made the pair's host end a port of.
    pub joined: Option<u32>,
    /// The settings that this run made for the attachment's packets, for its record.
    pub path: DataPath,
    /// The records of the network's attachments that are not valid, by the runtime's list for GC.
    collectable_records: OnceCell<Vec<Summary>>,
    /// The addresses to which rules of the node lead traffic, read once for a whole collection.
    pub served: LazyServed,
    /// The operator's settings for the node, or the reason why they can't be read.
    pub settings: OnceCell<Result<NodeSettings, String>>,
    sight: OnceCell<Sight>,
    link_files: OnceCell<Option<Rc<LinkFiles>>>,
    nft: SharedNft,
    worker: Option<Rc<Worker>>,
    namespace: Option<Namespace>,
    host: OnceCell<Netlink>,
    home: OnceCell<Rc<Home>>,
    record: Option<Record<Effect>>,
    /// True if this run has begun the section of the called plugin.
    begun: bool,
    /// What this run has noted in the index of claims.
    indexed: HashSet<Claim>,
    /// The cookie of the container's namespace, if it was read before the namespace was entered.
    cookie: Option<u64>,
    /// The conditions under which an address is given back, if this is not a DEL.
    pub retention: Option<Retention>,
    /// True if the record that was found lists all effects.
    whole: bool,
    /// True if the links that it lists are gone.
    link_gone: bool,
    /// True if the record's attachment is gone, and another one has its names now.
    replaced: bool,
    /// The last message about the record.
    reported_error: String,
    /// Containers of attachments that this collection removes.
    container_access_by_record: HashMap<RecordKey, ContainerAccess>,
    /// The reason why it can't be told if the container is alive.
    hidden: Option<String>,
    /// The reason why the container's namespace can't be entered, if the plugin needs it.
    pub no_container: Option<NoContainerAsked>,
    /// The connections to DHCP services.
    pub dhcp: Rc<DhcpConnections>,
    /// What is known of attachments that have what this ADD wants.
    pub known_holders: HashMap<RecordKey, HolderState>,
    /// The index of ports, not locked, if this run has looked into it.
    pub ports: Cell<Option<HostPorts>>,
    /// The index of claims, not locked, if this run has looked into it.
    pub claims: Cell<Option<ClaimIndex>>,
}

/// The error for a run whose container can't be entered. Its plugin gets it for each operation.
#[derive(Debug)]
pub struct NoContainerAsked {
    /// The error.
    pub error: Error,
    /// True if the plugin has asked for an operation: until then its own error comes first.
    pub is_asked: bool,
}

impl NoContainerAsked {
    /// Refuses an operation.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`], always.
    pub fn refuse(&mut self, netns: &str) -> Result<(), OpError> {
        self.is_asked = true;
        Err(OpError::new(ErrorCode::NotFound, netns, self.error.to_string()))
    }
}

impl RunState {
    /// Makes what the plugins of a run share. It knows only its own namespace and has no open record. No time is reserved
    /// for cleaning up.
    pub fn new(request: &Request, deadline: Instant, places: Places) -> Self {
        let attachment = format!("{}/{}/{}", request.conf.name, request.container_id, request.ifname);
        let section = request.plugin.clone();
        let Places { state, library, logs } = places;
        let audit = Audit::new(&logs, attachment);
        Self {
            deadline,
            end: deadline,
            state,
            library,
            runner: Rc::new(Direct),
            logs,
            own: Vec::new(),
            audit,
            common: Common::default(),
            undo: Vec::new(),
            digest: String::new(),
            started: now(),
            owns_link: false,
            makes_links: false,
            section,
            container_mac: None,
            deleted: Vec::new(),
            joined: None,
            path: DataPath::default(),
            collectable_records: OnceCell::new(),
            served: LazyServed::default(),
            settings: OnceCell::new(),
            sight: OnceCell::new(),
            link_files: OnceCell::new(),
            nft: SharedNft::default(),
            worker: None,
            namespace: None,
            host: OnceCell::new(),
            home: OnceCell::new(),
            record: None,
            begun: false,
            indexed: HashSet::new(),
            cookie: None,
            whole: false,
            link_gone: false,
            retention: None,
            replaced: false,
            reported_error: String::new(),
            container_access_by_record: HashMap::new(),
            hidden: None,
            no_container: None,
            dhcp: Rc::default(),
            known_holders: HashMap::new(),
            ports: Cell::default(),
            claims: Cell::default(),
        }
    }
}

impl<'a> Session<'a> {
    /// Returns the part of the plugin with this request.
    pub fn of(request: &'a Request, shared: &'a mut RunState) -> Self {
        Self { request, hindered: false, shared }
    }

    /// Returns the part of another plugin of this run, or this one's once more.
    pub fn part<'s>(&'s mut self, request: &'s Request) -> Session<'s> {
        Session::of(request, self.shared)
    }

    /// Makes a session for another attachment, known only by its record: garbage collection by a runtime.
    pub fn for_record(&self, record: Record<Effect>, key: &RecordKey) -> OwnedSession {
        let mut owned = OwnedSession::of_record(record, self.deadline, self.places());
        let request = &mut owned.request;
        request.plugin.clone_from(&self.request.plugin);
        request.path.clone_from(&self.request.path);
        request.stdin = Arc::clone(&self.request.stdin);
        let mut session = owned.session();
        session.runner = Rc::clone(&self.runner);
        session.home = self.home.clone();
        session.sight = self.sight.clone();
        session.link_files = self.link_files.clone();
        session.dhcp = Rc::clone(&self.dhcp);
        session.share(&self.nft);
        session.set_retention(Retention::of_runtime(Rc::clone(&self.served), &self.request.plugin));
        if let Some(found) = self.access_of(key) {
            session.use_access(found);
        }
        owned
    }

    /// Returns the directories that this run writes to.
    pub fn places(&self) -> Places {
        Places { state: self.state.clone(), library: self.library.clone(), logs: self.logs.clone() }
    }

    /// Returns the socket for nftables, for other sessions to use too.
    pub fn shared_nft(&self) -> SharedNft {
        Rc::clone(&self.nft)
    }

    /// Uses a socket for nftables that other sessions use too.
    pub fn share(&mut self, nft: &SharedNft) {
        self.nft = Rc::clone(nft);
    }

    /// Checks that there is time left. It is called before each operation, and before each step of a long one.
    ///
    /// # Errors
    /// [`ErrorCode::Deadline`].
    pub fn in_time(&self) -> Result<(), OpError> {
        if Instant::now() >= self.deadline {
            return Err(OpError::new(ErrorCode::Deadline, "", "the deadline of this run has passed"));
        }
        Ok(())
    }

    /// Returns the time at which an operation gives up a wait. The guest gets the error, which names what was waited for, and
    /// ends before the deadline of the run.
    pub fn answer_by(&self) -> Instant {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.deadline.checked_sub(MARGIN.min(left / 4)).unwrap_or(self.deadline)
    }

    /// Reserves the last part of the run's time for cleaning up: a run that went past its deadline must not leave its
    /// rules.
    pub fn keep_for_cleanup(&mut self, share: Duration) {
        self.set_deadline(self.end.checked_sub(share).unwrap_or(self.end));
    }

    /// Gives the reserved time to cleaning up. Returns the previous deadline for [`Session::set_deadline`]: work that
    /// follows must not use up that time.
    pub fn allow_cleanup(&mut self) -> Instant {
        let before = self.deadline;
        self.set_deadline(self.end);
        before
    }

    /// Sets the time after which no operation starts or continues.
    pub fn set_deadline(&mut self, deadline: Instant) {
        // The packet filter's socket gets it at its next use.
        self.deadline = deadline;
    }

    /// Makes the way into the container's namespace, as it is needed. A thread that lives there is confined by `confine`.
    ///
    /// # Errors
    /// The kernel refuses a thread, or the way back.
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
            (None, Inside::Tap(context)) => Worker::start_with_tap(&namespace, context, confine),
            (None, Inside::Opened(_) | Inside::Thread) => Worker::start(&namespace, confine),
        };
        self.worker = Some(Rc::new(worker.map_err(kernel_error)?));
        self.namespace = Some(namespace);
        Ok(())
    }

    /// Gives that way up. A thread ends, and with it the process that would have made a tap.
    pub fn leave(&mut self) {
        self.worker = None;
    }

    /// Returns the container's namespace itself, for questions to the kernel.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`].
    pub fn namespace(&self) -> Result<&Namespace, OpError> {
        self.namespace.as_ref().ok_or_else(|| self.container_gone())
    }

    /// Returns the container's namespace; `None` if there is none, or none any more.
    pub fn container(&self) -> Option<&Worker> {
        self.worker.as_deref()
    }

    /// Returns the container's namespace, for an operation that needs it.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`].
    pub fn container_required(&self) -> Result<&Worker, OpError> {
        self.worker.as_deref().ok_or_else(|| self.container_gone())
    }

    fn container_gone(&self) -> OpError {
        OpError::new(ErrorCode::NotFound, &self.request.netns, "the container's network namespace is gone")
    }

    /// Returns the socket in the host's namespace, where the process was started.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn host(&self) -> Result<&Netlink, OpError> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let host = Netlink::open().map_err(kernel_error)?;
        Ok(self.host.get_or_init(|| host))
    }

    /// Returns the host's namespace, in which links are made. The first call has to come before this process is confined.
    ///
    /// # Errors
    /// The kernel refuses a socket or its namespace. Without `CAP_NET_ADMIN` over it, `/proc` is not mounted.
    pub fn home(&self) -> Result<&Namespace, OpError> {
        self.look_home().map(|home| &home.namespace)
    }

    /// Returns the number of the host's namespace, unique until the node reboots. The first call has to come before this
    /// process is confined.
    ///
    /// # Errors
    /// As [`Session::home`].
    pub fn home_cookie(&self) -> Result<u64, OpError> {
        self.look_home().map(|home| home.cookie)
    }

    fn look_home(&self) -> Result<&Home, OpError> {
        if let Some(home) = self.home.get() {
            return Ok(home);
        }
        let home = Home::open().map_err(kernel_error)?;
        Ok(self.home.get_or_init(|| Rc::new(home)))
    }

    /// Returns what a look for programs on links can tell here. It is found out by the first call, which has to come before
    /// this process is confined.
    pub fn sight(&self) -> Sight {
        *self.sight.get_or_init(Sight::find)
    }

    /// Returns the files of the node's links, if this process may mount a sysfs. A failure can be a passing one (ENOMEM), and
    /// would keep a device down. The first call has to come before this process
    /// is confined.
    pub fn link_files(&self) -> Option<&LinkFiles> {
        self.link_files.get_or_init(|| LinkFiles::mount().or_else(|_| LinkFiles::mount()).ok().map(Rc::new)).as_deref()
    }

    /// Returns the key of the attachment's record. Attachments of different host namespaces have different records.
    ///
    /// # Errors
    /// As [`Session::home`].
    pub fn key(&self) -> Result<RecordKey, OpError> {
        let request = self.request;
        Ok(RecordKey::new(self.home_cookie()?, &request.conf.name, &request.container_id, &request.ifname))
    }

    /// Returns the key that identifies the attachment's masquerading rules.
    pub fn masquerade_key(&self) -> AttachmentKey {
        let request = self.request;
        AttachmentKey {
            network: request.conf.name.clone(),
            container_id: request.container_id.clone(),
            ifname: request.ifname.clone(),
        }
    }

    /// Returns the socket for nftables in the host's namespace.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn nft(&self) -> Result<RefMut<'_, Nft>, OpError> {
        let mut nft = self.nft.borrow_mut();
        match &mut *nft {
            Some(nft) => nft.set_deadline(self.answer_by()),
            None => *nft = Some(Nft::open(self.answer_by()).map_err(firewall_error)?),
        }
        RefMut::filter_map(nft, Option::as_mut)
            .map_err(|_| OpError::new(ErrorCode::Kernel, "nftables", "the nftables socket is not open"))
    }

    /// Makes a request to nftables for a removal. In a kernel without nftables there is nothing to remove.
    ///
    /// # Errors
    /// The kernel refuses for another reason.
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
        ProgramRunner { runner: &*self.runner, deadline: self.answer_by(), nft: Some(&self.nft) }
    }

    /// Returns the leases of the network in a data directory; `create` makes it if it is missing.
    ///
    /// # Errors
    /// Other users can write to the directory, or it can't be read.
    pub fn leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, OpError> {
        self.open_leases(directory, create).map_err(state_error)
    }

    /// As [`Session::leases`], with the error of the directory.
    ///
    /// # Errors
    /// [`StateError::Untrusted`] if another user could change the leases.
    pub fn open_leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, StateError> {
        // The text of a record or a configuration can be anything. A path that is not possible has no leases.
        if !create && !can_be_path(directory) {
            return Ok(None);
        }
        let store = LeaseStore {
            data_dir: PathBuf::from(directory),
            network: self.request.conf.name.clone(),
            index_root: self.library.join("leases"),
            boot_id: postern_state::boot_id()?,
        };
        if create { Leases::open(&store).map(Some) } else { Leases::open_existing(&store) }
    }

    /// True if an address with this prefix length is the attachment's.
    pub fn owns(&self, net: &IpNet) -> bool {
        self.own.iter().any(|own| own.net == *net)
    }
}

/// True if a file can have this path: `PATH_MAX` and `NAME_MAX` of limits.h, and no NUL.
pub fn can_be_path(path: &str) -> bool {
    path.len() < 4096 && !path.contains('\0') && path.split('/').all(|name| name.len() <= 255)
}
