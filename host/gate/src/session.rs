//! One run of the host: one verb, for one attachment, shared by the plugin that was called and those it delegates to.

use crate::audit::Audit;
use crate::budget::Budget;
use crate::effect::Effect;
use crate::places::Places;
use crate::policy::{Granted, Policy};
use ipnet::IpNet;
use postern_cni::{CniResult, Json, NetConf, Verb, Version};
use postern_confine::{Direct, Run};
use postern_firewall::Nft;
use postern_kernel::{Namespace, Netlink, Worker};
use postern_state::{Header, LeaseStore, Leases, Record, RecordKey, Section, Stage, StateError};
use postern_types::{ErrorCode, Mac, OpError};
use std::cell::{OnceCell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long cleaning up may take once the time of the run itself is over.
const CLEANUP_WITHIN: Duration = Duration::from_secs(15);

/// Routes in one run: each takes the kernel's time and memory, which a container has for nothing.
pub const MOST_ROUTES: usize = 1024;

/// Addresses in one run.
pub const MOST_ADDRESSES: usize = 256;

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

/// Something to undo if this ADD fails.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Its line in the record, where it has one.
    pub sequence: Option<u64>,
    /// What to remove.
    pub effect: Effect,
    /// The leases that this run took, for [`Effect::Lease`]: an earlier run's stay.
    pub leases: Vec<IpAddr>,
}

/// What an earlier run of the same ADD left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// All that the record lists: the container that it was made for is gone.
    Attachment,
    /// What this plugin did.
    Section,
}

/// See the module.
pub struct Session {
    /// The request.
    pub request: Request,
    /// No operation starts after it.
    pub deadline: Instant,
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
    /// Operations that all guests of this run have asked for, and how many they may.
    pub asked: Budget,
    /// Routes that this run has asked for on the container's link.
    pub routes: Budget,
    /// Addresses that it has asked for there.
    pub addresses: Budget,
    /// What this run did, in order.
    pub undo: Vec<Undo>,
    /// SHA-256 of the component of the plugin that the runtime called, hexadecimal.
    pub digest: String,
    /// When this run began, milliseconds since 1970.
    pub started: u64,
    /// The address of the container's end of the pair that this run made.
    pub container_mac: Option<Mac>,
    /// Host links that this run has shown to a guest: what a result may name.
    pub shown: BTreeSet<String>,
    nft: RefCell<Option<Nft>>,
    worker: Option<Worker>,
    namespace: Option<Namespace>,
    host: OnceCell<Netlink>,
    home: OnceCell<Namespace>,
    record: Option<Record<Effect>>,
    /// The section of the plugin that the runtime called is this run's.
    begun: bool,
    /// Cookie of the container's namespace, where it was asked for before the namespace was entered.
    cookie: Option<u64>,
    /// The record that was found lists all that was made.
    whole: bool,
    /// What was last said of the record.
    told: String,
}

impl Session {
    /// A session that knows of no namespace but its own, and has no record open.
    pub fn new(request: Request, deadline: Instant, places: Places) -> Self {
        let attachment = format!("{}/{}/{}", request.conf.name, request.container_id, request.ifname);
        let Places { state, library, logs } = places;
        let audit = Audit::new(&logs, attachment);
        Self {
            request,
            deadline,
            state,
            library,
            runner: Rc::new(Direct),
            logs,
            own: Vec::new(),
            audit,
            asked: Budget::default(),
            routes: Budget::new(MOST_ROUTES),
            addresses: Budget::new(MOST_ADDRESSES),
            undo: Vec::new(),
            digest: String::new(),
            started: now(),
            container_mac: None,
            shown: BTreeSet::new(),
            nft: RefCell::new(None),
            worker: None,
            namespace: None,
            host: OnceCell::new(),
            home: OnceCell::new(),
            record: None,
            begun: false,
            cookie: None,
            whole: false,
            told: String::new(),
        }
    }

    /// A session for another attachment, of which there is only its record: garbage collection by a runtime.
    pub fn for_record(&self, record: Record<Effect>) -> Self {
        let places = Places { state: self.state.clone(), library: self.library.clone(), logs: self.logs.clone() };
        let mut session = Self::of_record(record, self.deadline, places);
        let request = &mut session.request;
        request.plugin.clone_from(&self.request.plugin);
        request.path.clone_from(&self.request.path);
        request.stdin.clone_from(&self.request.stdin);
        session.runner = Rc::clone(&self.runner);
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
        session
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

    /// Gives what is to be cleaned up time of its own: a run that went past its deadline must not leave its rules.
    pub fn allow_cleanup(&mut self) {
        self.deadline = self.deadline.max(Instant::now() + CLEANUP_WITHIN);
        if let Some(nft) = self.nft.get_mut() {
            nft.set_deadline(self.deadline);
        }
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
    /// A text for people: the configuration makes a value of the policy ambiguous.
    pub fn grants(&self, policy: &Policy) -> Result<Granted, String> {
        policy.resolve(&self.request.conf.raw, self.request.args())
    }

    /// The container's namespace; `None` if there is none (any more).
    pub fn container(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }

    /// Treats the container's namespace as gone if `CNI_NETNS` leads to another one than at ADD, or to none: a path can
    /// be reused.
    pub fn forget_foreign_container(&mut self) {
        if self.record.as_ref().is_some_and(|record| self.is_foreign(record.header())) {
            self.worker = None;
        }
    }

    /// Whether a record is of another boot, or of another namespace than the one that `CNI_NETNS` leads to.
    fn is_foreign(&self, header: &Header) -> bool {
        let other_boot = postern_state::boot_id().is_ok_and(|boot| boot != header.boot_id);
        let cookies = (header.netns_cookie, self.worker.as_ref().map(Worker::cookie));
        other_boot || matches!(cookies, (Some(noted), Some(Ok(cookie))) if noted != cookie)
    }

    /// What is left of an earlier run of this ADD: it was made in another boot, for another namespace, or by a process that
    /// was killed before it had given the runtime its result; or a DEL did not end. Whoever had the record open is gone, as it could be locked.
    pub fn leftover(&self) -> Option<Leftover> {
        // What is this run's own, begun before a helper was started, is none.
        let record = self.record.as_ref().filter(|_| !self.begun)?;
        if self.is_foreign(record.header()) {
            return Some(Leftover::Attachment);
        }
        let plugin = &self.request.plugin;
        let own = record.sections().iter().find(|section| section.plugin == *plugin);
        own.is_some_and(|section| section.stage != Stage::Given).then_some(Leftover::Section)
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
        Ok(self.home.get_or_init(|| home))
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

    /// The socket for nftables in the host's namespace.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn nft(&self) -> Result<RefMut<'_, Nft>, OpError> {
        let mut nft = self.nft.borrow_mut();
        if nft.is_none() {
            *nft = Some(Nft::open(self.deadline).map_err(crate::capability::masquerade::firewall)?);
        }
        RefMut::filter_map(nft, Option::as_mut)
            .map_err(|_| OpError::new(ErrorCode::Kernel, "nftables", "the nftables socket is not open"))
    }

    /// The leases of the network in a data directory; `create` makes it if it is missing.
    ///
    /// # Errors
    /// The directory can be written by others, or not be read.
    pub fn leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, OpError> {
        let store = LeaseStore {
            data_dir: PathBuf::from(directory),
            network: self.request.conf.name.clone(),
            index_root: self.library.join("leases"),
            boot_id: postern_state::boot_id().map_err(state)?,
        };
        if create { Leases::open(&store).map(Some) } else { Leases::open_existing(&store) }.map_err(state)
    }

    /// Opens the record that an earlier run left, if there is one, and waits for its lock.
    ///
    /// # Errors
    /// The lock is held past the deadline, or the file can't be read.
    pub fn open_record(&mut self) -> Result<(), OpError> {
        if self.record.is_none() {
            let opened = Record::open_existing(&self.state, &self.key()?, self.deadline);
            self.record = match opened {
                // Set aside, and said: the attachment is removed as one without a record.
                Err(damaged @ StateError::Corrupt { .. }) => {
                    crate::say!("postern: {damaged}");
                    None
                }
                other => other.map_err(state)?,
            };
            let given = |section: &Section| section.stage == Stage::Given;
            self.whole = self.record.as_ref().is_some_and(|record| {
                record.warnings().is_empty() && !record.sections().is_empty() && record.sections().iter().all(given)
            });
            self.warn();
        }
        Ok(())
    }

    /// Tells of what was found damaged in the record.
    fn warn(&self) {
        for warning in self.record.iter().flat_map(Record::warnings) {
            crate::say!("postern: {warning}");
        }
    }

    /// Begins the section of the plugin that the runtime called, before the first operation that changes anything: what
    /// can't be written down must not be done.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn begin(&mut self) -> Result<(), OpError> {
        if self.begun || self.request.verb != Verb::Add {
            return Ok(());
        }
        let (plugin, digest) = (self.request.plugin.clone(), self.digest.clone());
        let record = self.record_for_writing()?;
        // A second ADD without a DEL between: the section stays that of the first.
        let known = record.sections().iter().any(|section| section.plugin == plugin);
        if !known && record.effects(Some(&plugin)).is_empty() {
            record.begin(&plugin, &digest, now()).map_err(state)?;
            self.begun = true;
        }
        Ok(())
    }

    /// The same before the container's namespace is entered.
    ///
    /// # Errors
    /// As [`Session::begin`], and that the namespace is none.
    pub fn begin_for(&mut self, namespace: Option<&Namespace>) -> Result<(), OpError> {
        // One that is there may be of another boot or namespace, which is known later: it is recovered then, and begun.
        if self.record.is_some() {
            return Ok(());
        }
        self.cookie = namespace.map(Namespace::cookie).transpose().map_err(kernel)?;
        self.begin()
    }

    /// Notes that all is made, before the runtime gets to see it.
    ///
    /// # Errors
    /// The record can't be written: the ADD must be undone.
    pub fn made(&mut self, result: &CniResult) -> Result<(), OpError> {
        let addresses = result.ips.iter().map(|ip| ip.address.to_string()).collect();
        match &mut self.record {
            Some(record) if self.begun => record.made(&self.request.plugin, addresses).map_err(state),
            _ => Ok(()),
        }
    }

    /// Notes that the runtime has the result.
    pub fn given(&mut self) {
        let record = self.record.as_mut().filter(|_| self.begun);
        let noted = record.map_or(Ok(()), |record| record.given(&self.request.plugin, now()));
        self.tell(noted);
    }

    /// Says what could not be noted; of a disk that takes nothing any more, once.
    fn tell(&mut self, noted: Result<(), StateError>) {
        let Err(error) = noted else { return };
        let error = error.to_string();
        if self.told != error {
            crate::say!("postern: {error}");
            self.told = error;
        }
    }

    /// Notes that an ADD was undone: its section ends, unless something could not be undone.
    pub fn undone(&mut self) {
        let plugin = self.request.plugin.clone();
        if self.begun && self.record.as_ref().is_some_and(|record| record.effects(Some(&plugin)).is_empty()) {
            self.ended(Some(&plugin));
        }
    }

    /// Notes that a plugin's DEL has begun, or that of all of them. To remove, nothing has to be written.
    pub fn ending(&mut self, plugin: Option<&str>) {
        let noted = self.record.as_mut().map_or(Ok(()), |record| record.ending(plugin));
        self.tell(noted);
    }

    /// Notes that nothing is left to do for a plugin, or for all of them.
    pub fn ended(&mut self, plugin: Option<&str>) {
        let noted = self.record.as_mut().map_or(Ok(()), |record| record.end(plugin));
        self.tell(noted);
    }

    /// The record, if it is open.
    pub fn record(&self) -> Option<&Record<Effect>> {
        self.record.as_ref()
    }

    /// Whether a record was found that is the whole truth, so that nothing else has to be looked for. One that was damaged or
    /// cut off is not, nor one of a run that was killed, from which it can't be told apart.
    pub fn record_is_whole(&self) -> bool {
        self.whole
    }

    /// Notes what an operation is about to leave: in the record first, then for undo.
    ///
    /// # Errors
    /// The record can't be written: nothing may be done then.
    pub fn intend(&mut self, effect: Effect) -> Result<(), OpError> {
        // What an earlier run made is not this one's to undo. (A lease knows which addresses this run took.)
        let earlier = |record: &Record<Effect>| record.effects(None).iter().any(|noted| noted.effect == effect);
        if !matches!(effect, Effect::Lease { .. })
            && self.record_for_writing_unless(&effect)?.is_some_and(|r| earlier(r))
        {
            return Ok(());
        }
        let sequence = if effect == Effect::LoopbackUp {
            None
        } else {
            let plugin = self.request.plugin.clone();
            Some(self.record_for_writing()?.append(&plugin, &effect).map_err(state)?)
        };
        self.undo.push(Undo { sequence, effect, leases: Vec::new() });
        Ok(())
    }

    fn record_for_writing_unless(&mut self, effect: &Effect) -> Result<Option<&mut Record<Effect>>, OpError> {
        if *effect == Effect::LoopbackUp { Ok(None) } else { self.record_for_writing().map(Some) }
    }

    /// The first line of this run's record.
    fn header(&self) -> Result<Header, OpError> {
        let request = &self.request;
        Ok(Header {
            network: request.conf.name.clone(),
            container_id: request.container_id.clone(),
            ifname: request.ifname.clone(),
            boot_id: postern_state::boot_id().map_err(state)?,
            host_netns_cookie: self.host()?.cookie().map_err(kernel)?,
            netns_cookie: match &self.worker {
                Some(worker) => Some(worker.cookie().map_err(kernel)?),
                None => self.cookie,
            },
            netns_path: request.netns.clone(),
            created: now(),
        })
    }

    /// Makes the record of an earlier run this one's, if nothing is left in it: it is about this boot and this namespace
    /// from now on. The file stays, as its lock may be held by a helper too.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn renew_record(&mut self) -> Result<(), OpError> {
        if self.record.as_ref().is_some_and(|record| record.is_empty() && record.warnings().is_empty()) {
            let header = self.header()?;
            if let Some(record) = &mut self.record {
                record.renew(header).map_err(state)?;
            }
        } else if self.record.as_ref().is_some_and(Record::is_empty) {
            self.close_record();
        }
        Ok(())
    }

    fn record_for_writing(&mut self) -> Result<&mut Record<Effect>, OpError> {
        if self.record.is_none() {
            let header = self.header()?;
            let record = Record::open_or_create(&self.state, &header, self.deadline).map_err(state)?;
            // There was none when this run began.
            if !record.is_new() {
                let message = "another run for this attachment is under way, or has just ended";
                return Err(OpError::new(ErrorCode::TryAgain, &self.request.container_id, message)
                    .hint("run DEL, then ADD again"));
            }
            self.record = Some(record);
            self.warn();
        }
        self.record.as_mut().ok_or_else(|| OpError::new(ErrorCode::Io, "record", "the record is not open"))
    }

    /// Whether this attachment has that effect.
    pub fn has(&self, effect: &Effect) -> bool {
        self.record.as_ref().is_some_and(|record| record.effects(None).iter().any(|noted| noted.effect == *effect))
    }

    /// Takes effects that are gone off the record and off the list to undo.
    pub fn gone(&mut self, matches: impl Fn(&Effect) -> bool) {
        self.undo.retain(|undo| !matches(&undo.effect));
        let Some(record) = &self.record else { return };
        let gone: Vec<u64> =
            record.effects(None).into_iter().filter(|noted| matches(&noted.effect)).map(|noted| noted.seq).collect();
        for sequence in gone {
            self.taken_off(Some(sequence));
        }
    }

    /// Notes that one effect of the record is no more. At worst it is removed once more.
    pub fn taken_off(&mut self, sequence: Option<u64>) {
        if let (Some(sequence), Some(record)) = (sequence, self.record.as_mut()) {
            let noted = record.mark_removed(sequence);
            self.tell(noted);
        }
    }

    /// Takes everything off the record, and leaves the node as it is: what it lists is somebody else's.
    pub fn forget(&mut self) {
        let listed = self.record.iter().flat_map(|record| record.effects(None)).map(|noted| noted.seq);
        for sequence in listed.collect::<Vec<u64>>() {
            self.taken_off(Some(sequence));
        }
        self.ended(None);
    }

    /// Lets go of the record: its file goes once nothing is left in it.
    pub fn close_record(&mut self) {
        if let Some(record) = self.record.take()
            && let Err(error) = record.remove_file()
        {
            crate::say!("postern: {error}");
        }
    }

    /// Takes the addresses of a result as the attachment's own.
    pub fn adopt(&mut self, result: &CniResult) {
        adopt(&mut self.own, result);
    }

    /// Whether an address with this prefix is the attachment's.
    pub fn owns(&self, net: &IpNet) -> bool {
        self.own.iter().any(|own| own.net == *net)
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A kernel error as the guest gets it.
pub fn kernel(error: postern_kernel::KernelError) -> OpError {
    use nix::errno::Errno;
    let code = match error.errno.map(Errno::from_raw) {
        Some(Errno::EEXIST) => ErrorCode::Exists,
        Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH) => ErrorCode::NotFound,
        Some(Errno::EOPNOTSUPP) => ErrorCode::Unsupported,
        Some(Errno::EXFULL) => ErrorCode::Exhausted,
        _ => ErrorCode::Kernel,
    };
    let text = error.to_string();
    let mut converted = OpError::new(code, error.object, text);
    converted.errno = error.errno;
    converted
}

/// An error of the state directory as the guest gets it.
pub fn state(error: postern_state::StateError) -> OpError {
    let code = match error {
        StateError::Locked { .. } => ErrorCode::TryAgain,
        StateError::Refused(_) => ErrorCode::Exists,
        StateError::Exhausted(_) => ErrorCode::Exhausted,
        _ => ErrorCode::Io,
    };
    OpError::new(code, "", error.to_string())
}
