//! One run of the host: one verb, for one attachment, shared by the plugin that was called and those it delegates to.

mod elsewhere;
mod journal;
mod kept;
mod link;
pub(crate) mod port;
mod previous;

pub use link::is_link_of_index;

use elsewhere::Elsewhere;

use crate::audit::Audit;
use crate::budget::Common;
use crate::clock::now;
use crate::effect::Effect;
use crate::errors::{firewall, kernel, state};
use crate::keeping::{Keeping, Look};
use crate::places::Places;
use ipnet::IpNet;
use postern_cni::{CniResult, Json, NetConf, Verb, Version, print};
use postern_confine::{Direct, Run};
use postern_firewall::iptables::ProgramRunner;
use postern_firewall::{AttachmentKey, FirewallError, Nft};
use postern_kernel::{Namespace, Netlink, Worker};
use postern_policy::{Granted, Policy, PolicyError};
use postern_state::{DataPath, LeaseStore, Leases, Owner, Record, RecordKey, Summary};
use postern_types::{ErrorCode, Mac, OpError};
use sha2::{Digest, Sha256};
use std::cell::{OnceCell, RefCell, RefMut};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What the protocol made of environment and standard input.
#[derive(Debug)]
pub struct Request {
    /// The plugin that the runtime called. What its delegates do is in its section of the record, so that its DEL removes
    /// that as well.
    pub plugin: String,
    /// The verb.
    pub verb: Verb,
    /// `CNI_CONTAINERID`; empty for GC and STATUS.
    pub container_id: String,
    /// `CNI_NETNS` as given.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_PATH`, for native delegates.
    pub path: String,
    /// What a guest sees of the environment: `CNI_*` alone, `CNI_COMMAND` left to each run.
    pub env: Vec<(String, String)>,
    /// Standard input, unchanged.
    pub stdin: String,
    /// The same, read.
    pub conf: NetConf,
    /// The version that results are printed in.
    pub version: Version,
}

impl Request {
    /// Whose leases these are.
    pub fn owner(&self) -> Owner {
        Owner { container_id: self.container_id.clone(), ifname: self.ifname.clone() }
    }

    /// What tells this plugin's configuration from another one of the same plugin in the list: a hash of it, without what the
    /// runtime puts in for each container.
    pub fn identity(&self) -> String {
        const OF_RUNTIME: [&str; 5] =
            ["prevResult", "runtimeConfig", "args", "cni.dev/valid-attachments", "cni.dev/attachments"];
        let Json::Object(entries) = &self.conf.raw else { return String::new() };
        let is_own = |key: &str| !OF_RUNTIME.iter().any(|of_runtime| key.eq_ignore_ascii_case(of_runtime));
        let own = entries.iter().filter(|(key, _)| is_own(key)).cloned().collect();
        let digest = Sha256::digest(print::compact(&Json::Object(own).sorted()));
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// `CNI_ARGS`; empty if there are none.
    pub fn args(&self) -> &str {
        self.env.iter().find(|(name, _)| name == "CNI_ARGS").map_or("", |(_, value)| value)
    }
}

/// An address that belongs to this attachment: IPAM gave it, or `prevResult` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// With prefix length.
    pub net: IpNet,
    /// Its gateway, where one was given.
    pub gateway: Option<IpAddr>,
}

impl OwnAddress {
    /// The gateway, or else the first address of the network (specification, "gateway"; native bridge and ptp).
    pub fn gateway_or_first(&self) -> Option<IpAddr> {
        self.gateway.or_else(|| first_address(&self.net))
    }

    /// Whether the gateway, where one was given, is of the address's IP version.
    pub fn is_one_family(&self) -> bool {
        self.gateway.is_none_or(|gateway| gateway.is_ipv4() == self.net.addr().is_ipv4())
    }

    /// The gateway as an address of a bridge, with the address's prefix length: the node gets a route to that network. So
    /// it is the network of the address, and no other.
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

    /// Whether a result may say this gateway with the address: its own, or none.
    pub fn agrees_with(&self, gateway: Option<IpAddr>) -> bool {
        gateway.is_none() || gateway == self.gateway_or_first()
    }
}

/// Takes the addresses of a result as the attachment's own.
pub fn adopt(addresses: &mut Vec<OwnAddress>, result: &CniResult) {
    for ip in &result.ips {
        let own = OwnAddress { net: ip.address, gateway: ip.gateway };
        // A result that leaves the gateway out takes none away.
        let known = |have: &OwnAddress| *have == own || own.gateway.is_none() && have.net == own.net;
        if !addresses.iter().any(known) {
            addresses.push(own);
        }
    }
}

/// The address after the network's own.
fn first_address(net: &IpNet) -> Option<IpAddr> {
    match net.network() {
        IpAddr::V4(network) => network.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(network) => network.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

/// A socket for nftables, opened at its first use. When it is closed after something was deleted, the kernel waits for readers of
/// the old rules: whoever removes many things has one for all.
pub type SharedNft = Rc<RefCell<Option<Nft>>>;

/// Something to undo if this ADD fails.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Its line in the record, where it has one.
    pub sequence: Option<u64>,
    /// What to remove.
    pub effect: Effect,
    /// The leases that this run took, for [`crate::effect::Lease`]: an earlier run's stay.
    pub leases: Vec<IpAddr>,
}

/// What an earlier run of the same ADD left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// All that the record lists: the container that it was made for is gone, or the ADD that made its link did not end.
    Attachment,
    /// These sections of this plugin.
    Sections(Vec<String>),
}

/// See the module.
pub struct Session {
    /// The request.
    pub request: Request,
    /// No operation starts after it, and none goes on. While this run cleans up it is `end`.
    pub deadline: Instant,
    /// When the whole run is over, cleaning up included.
    end: Instant,
    /// Where records are.
    pub state: PathBuf,
    /// Where the index of leases is.
    pub library: PathBuf,
    /// Who runs programs: this process until it is confined, then the helper if this run has one.
    pub runner: Rc<dyn Run>,
    /// Where the audit log is.
    pub logs: PathBuf,
    /// The attachment's addresses.
    pub own: Vec<OwnAddress>,
    /// The log.
    pub audit: Audit,
    /// What its guests have in common.
    pub common: Common,
    /// What this run did, in order.
    pub undo: Vec<Undo>,
    /// SHA-256 of the component of the plugin that the runtime called, hexadecimal.
    pub digest: String,
    /// When this run began, milliseconds since 1970.
    pub started: u64,
    /// The plugin that the runtime called makes the attachment's link.
    pub owns_link: bool,
    /// Policy lets that plugin make the attachment's link.
    pub makes_links: bool,
    section: String,
    /// The address of the container's end of the pair that this run made.
    pub container_mac: Option<Mac>,
    /// Index of the bridge that this run made the pair's host end a port of.
    pub joined: Option<u32>,
    /// What this run made for the attachment's packets to pass, for its record.
    pub path: DataPath,
    /// A plugin of this run could not be run or was stopped, or policy or a limit refused it something: what is left of its
    /// DEL is the host's to do.
    pub hindered: bool,
    /// The records of the network's attachments that are not valid, as the runtime says for GC.
    pub strangers: OnceCell<Vec<Summary>>,
    /// Which addresses rules of the node lead traffic to, looked at once for a whole collection.
    pub served: Look,
    nft: SharedNft,
    worker: Option<Worker>,
    namespace: Option<Namespace>,
    host: OnceCell<Netlink>,
    home: OnceCell<Rc<Namespace>>,
    record: Option<Record<Effect>>,
    /// The section of the plugin that the runtime called is this run's.
    begun: bool,
    /// Cookie of the container's namespace, where it was asked for before the namespace was entered.
    cookie: Option<u64>,
    /// What has to hold before an address is given back, where it is no DEL.
    pub keeping: Option<Keeping>,
    /// The record that was found lists all that was made.
    whole: bool,
    /// The links that it lists are gone.
    link_gone: bool,
    /// So it is about an attachment that is no more, and another one has its names now.
    replaced: bool,
    /// What was last said of the record.
    told: String,
    /// Containers of attachments that this collection removes.
    strangers_in: RefCell<HashMap<RecordKey, Elsewhere>>,
    /// Why it can't be told whether the container is alive.
    hidden: Option<String>,
}

impl Session {
    /// A session that knows of no namespace but its own, and has no record open. No time is kept for cleaning up.
    pub fn new(request: Request, deadline: Instant, places: Places) -> Self {
        let attachment = format!("{}/{}/{}", request.conf.name, request.container_id, request.ifname);
        let section = request.plugin.clone();
        let Places { state, library, logs } = places;
        let audit = Audit::new(&logs, attachment);
        Self {
            request,
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
            joined: None,
            path: DataPath::default(),
            hindered: false,
            strangers: OnceCell::new(),
            served: Look::default(),
            nft: SharedNft::default(),
            worker: None,
            namespace: None,
            host: OnceCell::new(),
            home: OnceCell::new(),
            record: None,
            begun: false,
            cookie: None,
            whole: false,
            link_gone: false,
            keeping: None,
            replaced: false,
            told: String::new(),
            strangers_in: RefCell::default(),
            hidden: None,
        }
    }

    /// A session for another attachment, of which there is only its record: garbage collection by a runtime.
    pub fn for_record(&self, record: Record<Effect>, key: &RecordKey) -> Self {
        let places = Places { state: self.state.clone(), library: self.library.clone(), logs: self.logs.clone() };
        let mut session = Self::of_record(record, self.deadline, places);
        let request = &mut session.request;
        request.plugin.clone_from(&self.request.plugin);
        request.path.clone_from(&self.request.path);
        request.stdin.clone_from(&self.request.stdin);
        session.runner = Rc::clone(&self.runner);
        session.home = self.home.clone();
        session.share(&self.nft);
        session.keep_by(Keeping::of_runtime(Rc::clone(&self.served), &self.request.plugin));
        if let Some(found) = self.found_of(key) {
            session.go_by(found);
        }
        session
    }

    /// A session to remove what a record lists, with nothing but that record: it knows of no native programs.
    pub fn of_record(record: Record<Effect>, deadline: Instant, places: Places) -> Self {
        let header = record.header();
        let request = Request {
            plugin: String::new(),
            verb: Verb::Del,
            container_id: header.container_id.clone(),
            netns: header.netns_path.clone(),
            ifname: header.ifname.clone(),
            path: String::new(),
            env: Vec::new(),
            stdin: String::new(),
            conf: NetConf { name: header.network.clone(), ..NetConf::unread(Json::Null) },
            version: Version::LATEST,
        };
        let mut session = Self::new(request, deadline, places);
        session.record = Some(record);
        session.hidden = Some("it was not looked for".to_owned());
        session
    }

    /// Uses a socket for nftables that other sessions use too.
    pub fn share(&mut self, nft: &SharedNft) {
        self.nft = Rc::clone(nft);
    }

    /// Whether there is time left: asked before each operation, and before each of the many things that one does.
    ///
    /// # Errors
    /// [`ErrorCode::Deadline`].
    pub fn in_time(&self) -> Result<(), OpError> {
        if Instant::now() >= self.deadline {
            return Err(OpError::new(ErrorCode::Deadline, "", "the deadline of this run has passed"));
        }
        Ok(())
    }

    /// Keeps the last part of the run's time for cleaning up: a run that went past its deadline must not leave its rules.
    pub fn keep_for_cleanup(&mut self, share: Duration) {
        self.set_deadline(self.end.checked_sub(share).unwrap_or(self.end));
    }

    /// Gives what is to be cleaned up the time that was kept for it. Returns the deadline until now, for
    /// [`Session::set_deadline`]: who goes on afterwards must not use that time up.
    pub fn allow_cleanup(&mut self) -> Instant {
        let before = self.deadline;
        self.set_deadline(self.end);
        before
    }

    /// No operation starts after it, and none goes on.
    pub fn set_deadline(&mut self, deadline: Instant) {
        // The packet filter's socket gets it at its next use.
        self.deadline = deadline;
    }

    /// Starts the thread that lives in the container's namespace, confined by `confine`.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn enter(
        &mut self,
        namespace: Namespace,
        confine: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<(), OpError> {
        self.worker = Some(Worker::start(&namespace, confine).map_err(kernel)?);
        self.namespace = Some(namespace);
        Ok(())
    }

    /// The container's namespace itself, to ask the kernel about it.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`].
    pub fn namespace(&self) -> Result<&Namespace, OpError> {
        self.namespace.as_ref().ok_or_else(|| self.container_gone())
    }

    /// A policy for this run's configuration.
    ///
    /// # Errors
    /// The configuration makes a value of the policy ambiguous.
    pub fn grants(&self, policy: &Policy) -> Result<Granted, PolicyError> {
        policy.resolve(&self.request.conf.raw, self.request.args())
    }

    /// The container's namespace; `None` if there is none (any more).
    pub fn container(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }

    /// The container's namespace, where the operation makes no sense without.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`].
    pub fn container_required(&self) -> Result<&Worker, OpError> {
        self.worker.as_ref().ok_or_else(|| self.container_gone())
    }

    fn container_gone(&self) -> OpError {
        OpError::new(ErrorCode::NotFound, &self.request.netns, "the container's network namespace is gone")
    }

    /// The socket in the host's namespace, the one that the process was started in.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn host(&self) -> Result<&Netlink, OpError> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let host = Netlink::open().map_err(kernel)?;
        Ok(self.host.get_or_init(|| host))
    }

    /// The host's namespace, for links to be born in.
    ///
    /// # Errors
    /// `/proc` isn't mounted.
    pub fn home(&self) -> Result<&Namespace, OpError> {
        if let Some(home) = self.home.get() {
            return Ok(home);
        }
        let home =
            Namespace::current().map_err(|e| OpError::new(ErrorCode::Kernel, "/proc/self/ns/net", e.to_string()))?;
        Ok(self.home.get_or_init(|| Rc::new(home)))
    }

    /// Key of the attachment's record: attachments of different host namespaces have nothing in common.
    ///
    /// # Errors
    /// The kernel gives no socket to ask.
    pub fn key(&self) -> Result<RecordKey, OpError> {
        let request = &self.request;
        let cookie = self.host()?.cookie().map_err(kernel)?;
        Ok(RecordKey::new(cookie, &request.conf.name, &request.container_id, &request.ifname))
    }

    /// What the attachment's masquerading rules are known by.
    pub fn masquerade_key(&self) -> AttachmentKey {
        let request = &self.request;
        AttachmentKey {
            network: request.conf.name.clone(),
            container_id: request.container_id.clone(),
            ifname: request.ifname.clone(),
        }
    }

    /// The socket for nftables in the host's namespace.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn nft(&self) -> Result<RefMut<'_, Nft>, OpError> {
        let mut nft = self.nft.borrow_mut();
        match &mut *nft {
            Some(nft) => nft.set_deadline(self.deadline),
            None => *nft = Some(Nft::open(self.deadline).map_err(firewall)?),
        }
        RefMut::filter_map(nft, Option::as_mut)
            .map_err(|_| OpError::new(ErrorCode::Kernel, "nftables", "the nftables socket is not open"))
    }

    /// What nftables are asked for a removal: in a kernel that has none there is nothing.
    ///
    /// # Errors
    /// The kernel refuses something else.
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
            outcome => outcome.map_err(firewall),
        }
    }

    /// Who runs the programs of iptables, and until when.
    pub fn means(&self) -> ProgramRunner<'_> {
        ProgramRunner { runner: &*self.runner, deadline: self.deadline }
    }

    /// The leases of the network in a data directory; `create` makes it if it is missing.
    ///
    /// # Errors
    /// The directory can be written by others, or not be read.
    pub fn leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, OpError> {
        // A record, or a configuration, can have any text: in what can't be there are no leases.
        if !create && !can_be_path(directory) {
            return Ok(None);
        }
        let store = LeaseStore {
            data_dir: PathBuf::from(directory),
            network: self.request.conf.name.clone(),
            index_root: self.library.join("leases"),
            boot_id: postern_state::boot_id().map_err(state)?,
        };
        if create { Leases::open(&store).map(Some) } else { Leases::open_existing(&store) }.map_err(state)
    }

    /// Whether an address with this prefix is the attachment's.
    pub fn owns(&self, net: &IpNet) -> bool {
        self.own.iter().any(|own| own.net == *net)
    }
}

/// Whether there can be a file of this path: `PATH_MAX` and `NAME_MAX` of limits.h, and no NUL.
pub fn can_be_path(path: &str) -> bool {
    path.len() < 4096 && !path.contains('\0') && path.split('/').all(|name| name.len() <= 255)
}
