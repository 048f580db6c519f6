//! The rights that the gate keeps while guests run.
//!
//! The host does not trust its own sandbox. An attacker who escapes from a sandbox and then finds a fault in the gate
//! gets the rights that are listed here. The other rights of the runtime's root are gone.
//!
//! Everything is decided from policy, configuration and the record, before the first guest is started.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::capability::{facts, firewall, leases};
use crate::collect;
use crate::company::Foreseen;
use crate::disk;
use crate::effect::Effect;
use crate::errors::internal;
use crate::launcher::Launcher;
use crate::native;
use crate::need::Need;
use crate::packet_filter;
use crate::places;
use crate::session::{Session, can_be_path};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{SFlag, lstat};
use nix::unistd::Pid;
use postern_cni::{Error, Verb};
use postern_confine::Capability as Right;
use postern_confine::{
    Access, Allowed, Bus, ConfineError, Confinement, DirectoryRemover, Files, Filter, Helper, NoPrograms, Refusal,
    Rule, forget_environment,
};
use postern_firewall::iptables;
use postern_kernel::{Namespace, tap, tcx};
use postern_policy::Policy;
use postern_policy::capability::firewall::is_zone;
use postern_state::{Dir, Record, is_trusted_way, kind};
use postern_types::{Capability, OpError};
use std::borrow::Cow;
use std::fs::remove_dir;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// The needs of the plugins of this run, and of the records that it works on.
#[derive(Debug, Default)]
struct Needs {
    /// True if this run looks at the tables of legacy iptables.
    legacy: bool,
    /// Netlink and sysctls.
    network: bool,
    /// The SELinux context of the tap, if this run may make one and it is to have one.
    tap: Option<Option<String>>,
    /// True if it may bring a device of the node home.
    device: bool,
    /// Directories with leases: `dataDir`, and the real path of the network's own directory in it.
    leases: Vec<(PathBuf, PathBuf)>,
    /// Directories of the native tuning plugin's files.
    backups: Vec<PathBuf>,
    /// Files to read.
    files: Vec<PathBuf>,
    /// Programs to run.
    programs: Vec<Allowed>,
    /// True if the iptables rules of masquerading, or of the node's ports, were looked at.
    iptables: [bool; 2],
    /// True if the rules of the firewall plugin were looked at.
    forwarding: bool,
    /// True if firewalld is asked for.
    bus: bool,
    /// Zones of firewalld.
    zones: Vec<String>,
}

/// Confines this process, and the thread that enters the container's namespace.
///
/// A rule needs an existing directory. So a directory for leases that an ADD may make is made before. [`MadeDirectories`] removes
/// it again if nothing was put in it.
///
/// `others` are the other plugins of a list that are to run in this process later. The process keeps what they need too:
/// no more than the sum. Those that it can't serve are not admitted, and neither is this run if it needs programs.
///
/// # Errors
/// Code 999: the kernel refuses a step, and no guest may run.
pub fn confine(
    session: &mut Session,
    launcher: &mut Launcher,
    namespace: Option<Namespace>,
    others: Option<&mut Vec<Foreseen<'_>>>,
) -> Result<Confined, Error> {
    launcher.close(&session.state);
    let mut needs = Needs::of(session, launcher).map_err(|error| Error::internal(error.to_string()))?;
    needs.writable(session)?;
    let mut pids = launcher.pids();
    let is_alone = others.is_none();
    if let Some(others) = others {
        if needs.has_helper() {
            return Ok(Confined::Elsewhere);
        }
        let listed = recorded(session).map_err(|error| Error::internal(error.to_string()))?;
        for other in others {
            other.launcher.close(&session.state);
            let wanted = Needs::of_later(&mut other.session, other.launcher, &listed);
            match wanted.ok().filter(|wanted| !wanted.has_helper() && wanted.writable(&other.session).is_ok()) {
                Some(wanted) => {
                    needs.merge(wanted);
                    pids.extend(other.launcher.pids());
                    *other.is_admitted = true;
                }
                None => other.launcher.dismiss(),
            }
        }
    }
    let made = MadeDirectories::of(session, &needs).map_err(|error| {
        Error::internal(format!("the host can start no process, and runs no plugin without it: {error}"))
    })?;
    match give_up(session, &pids, namespace, &needs) {
        Ok(()) if is_alone => Ok(Confined::Alone(made)),
        Ok(()) => Ok(Confined::Together(made)),
        Err(error) => {
            made.tidy();
            Err(error)
        }
    }
}

/// The process of a run, after [`confine`].
pub enum Confined {
    /// It is confined to what this run needs.
    Alone(MadeDirectories),
    /// It is confined to what the plugins of a list need.
    Together(MadeDirectories),
    /// Nothing was given up: this run may have to start programs, and needs a process of its own for that.
    Elsewhere,
}

fn give_up(session: &mut Session, pids: &[Pid], namespace: Option<Namespace>, needs: &Needs) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::internal(format!("the host cannot confine itself, and runs no plugin unconfined: {error}"))
    };
    // The boot ID is read while /proc can be reached. The answer is kept.
    postern_state::boot_id().map_err(|error| failed(&error))?;
    let bus = if needs.bus { Bus::locate(needs.zones.clone()) } else { None };
    session.runner = if needs.programs.is_empty() && bus.is_none() {
        Rc::new(NoPrograms)
    } else {
        // The helper's programs hold the record's lock. If this process is killed, the removal waits until they have
        // ended.
        session.begin_for(namespace.as_ref()).map_err(internal)?;
        let lock = session.record().map(Record::lock);
        // The helper starts before there is a second thread and before any right is given up: programs need the rights
        // from the runtime.
        Rc::new(Helper::start_with(needs.programs.clone(), bus, lock).map_err(|error| failed(&error))?)
    };
    forget_environment();
    let confined = |calls| needs.confinement(session, calls).map(Arc::new).map_err(|error| failed(&error));
    let confinement = confined(calls(pids))?;
    let own = match needs.device {
        // Only this thread, in the node's namespace, looks for programs on a device that came home.
        true => {
            session.sight();
            confined(calls_with_look(pids))?
        }
        false => Arc::clone(&confinement),
    };
    let tap = if needs.tap.is_some() { Some(confined(calls_with_tap(pids))?) } else { None };
    if let Some(namespace) = namespace {
        // It is opened while /proc can be reached: new links are made in it.
        session.home().map_err(|error| failed(&error))?;
        // Only the thread that makes the tap has the requests for that.
        let inside = tap.unwrap_or_else(|| Arc::clone(&confinement));
        let confine = move || inside.apply().map_err(|error| error.to_string());
        session.enter(namespace, needs.tap.clone(), confine).map_err(|error| failed(&error))?;
    }
    if session.request.verb == Verb::Gc {
        // Devices of the node are moved back there.
        session.home().map_err(|error| failed(&error))?;
        let confine = || {
            let confinement = Arc::clone(&confinement);
            move || confinement.apply().map_err(|error| error.to_string())
        };
        session.enter_collectable_containers(confine).map_err(|error| failed(&error))?;
    }
    // The memory of this process must not be written to a core file.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|error| failed(&error))?;
    own.apply().map_err(|error| failed(&error))
}

impl Needs {
    fn of(session: &mut Session, launcher: &Launcher) -> Result<Self, OpError> {
        let listed = recorded(session)?;
        Self::of_later(session, launcher, &listed)
    }

    /// As [`Needs::of`], with the effects of a record that another run has open.
    fn of_later(session: &mut Session, launcher: &Launcher, listed: &[Effect]) -> Result<Self, OpError> {
        let mut needs = Self::default();
        let called = launcher.policies().find(|(name, _)| *name == session.request.plugin);
        if let Some((_, policy)) = called {
            needs.add_policy(session, launcher, policy);
        }
        // The policies of delegates take their values from the delegate's configuration.
        session.exchange();
        needs.add_others(session, launcher, listed);
        session.exchange();
        Ok(needs)
    }

    /// True if it takes a process that starts programs, or makes calls on the message bus.
    fn has_helper(&self) -> bool {
        // A tap may take one too.
        self.tap.is_some() || !self.programs.is_empty() || self.bus && Bus::locate(self.zones.clone()).is_some()
    }

    /// Checks that an ADD can write its leases.
    fn writable(&self, session: &Session) -> Result<(), Error> {
        match session.request.verb {
            Verb::Add => self.leases.iter().try_for_each(|(_, network)| disk::writable(network)),
            Verb::Check | Verb::Del | Verb::Gc | Verb::Status | Verb::Version => Ok(()),
        }
    }

    /// Adds the needs of another plugin, which has no helper and makes no tap.
    fn merge(&mut self, other: Self) {
        let Self {
            legacy,
            network,
            tap: _,
            device,
            leases,
            backups,
            files,
            programs: _,
            iptables: _,
            forwarding: _,
            bus: _,
            zones: _,
        } = other;
        self.legacy |= legacy;
        self.network |= network;
        self.device |= device;
        self.leases.extend(leases);
        self.backups.extend(backups);
        self.files.extend(files);
    }

    /// Adds the needs of the delegates, and of the records.
    fn add_others(&mut self, session: &Session, launcher: &Launcher, listed: &[Effect]) {
        let needs = self;
        for (_, policy) in launcher.policies().filter(|(name, _)| *name != session.request.plugin) {
            needs.add_policy(session, launcher, policy);
        }
        let verb = session.request.verb;
        for effect in listed {
            needs.add(session, effect.needs());
        }
        // An attachment without a record may be a native plugin's, with rules of either backend.
        let is_whole = session.record_is_whole() && !session.has_lost_link();
        if verb == Verb::Gc || matches!(verb, Verb::Del | Verb::Check) && !is_whole {
            let masquerades = |policy: &Policy| match verb {
                Verb::Del => [Capability::Masquerade, Capability::PortMappings, Capability::Delegate]
                    .into_iter()
                    .any(|capability| policy.knows(capability)),
                Verb::Add | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => {
                    policy.grants(Capability::Masquerade) || policy.grants(Capability::PortMappings)
                }
            };
            // Every collection looks at the node's rules before it gives an address back, whichever plugin was called.
            needs.network |= verb == Verb::Gc;
            let looks = verb == Verb::Gc || launcher.policies().any(|(_, policy)| masquerades(policy));
            needs.legacy |= looks;
            // A collection of a network without masquerading only has to see which legacy tables there are.
            let asks = |policy: &Policy| {
                session
                    .grants(policy)
                    .is_ok_and(|granted| granted.has(Capability::Masquerade) || granted.has(Capability::PortMappings))
            };
            let may_run =
                verb != Verb::Gc || launcher.policies().any(|(_, policy)| asks(policy)) || iptables::has_legacy_nat();
            if looks && may_run {
                for is_of_ports in [false, true] {
                    needs.add_iptables(session, is_of_ports);
                }
            }
        }
        // The host itself gives leases back if the delegate can't be asked.
        let ipam = &session.request.conf.ipam_type;
        if verb == Verb::Del && !ipam.is_empty() && !launcher.is_ready(ipam) && !is_native(session, launcher, ipam) {
            needs.add_leases(session, &leases::directory(&session.request.conf));
        }
    }

    fn add_policy(&mut self, session: &Session, launcher: &Launcher, policy: &Policy) {
        let gives_up = session.request.verb == Verb::Del;
        let may = |capability: &Capability| policy.grants(*capability) || gives_up && policy.knows(*capability);
        let granted: Vec<Capability> = Capability::ALL.iter().copied().filter(may).collect();
        self.network |= granted.iter().any(|capability| capability.acts_in_kernel());
        // If the policy can't be resolved with the configuration, the plugin's start is refused.
        let resolved = session.grants(policy).ok();
        let asked = |capability: Capability| (facts(capability).keeps)(&session.request, resolved.as_ref());
        for need in granted.into_iter().filter_map(asked) {
            // A delegate of the catalog is not a program.
            if !matches!(&need, Need::Program(name) if launcher.has(name)) {
                self.add(session, need);
            }
        }
    }

    fn add(&mut self, session: &Session, need: Need<'_>) {
        match need {
            Need::Network | Need::Container => self.network = true,
            // An ADD is undone.
            Need::Device => {
                self.network = true;
                self.device |= matches!(session.request.verb, Verb::Add | Verb::Del | Verb::Gc);
            }
            // Only an ADD makes one.
            Need::Tap(context) => {
                let makes = session.request.verb == Verb::Add;
                (self.network, self.tap) = (true, makes.then(|| context.map(Cow::into_owned)));
            }
            Need::Iptables | Need::HostPorts => {
                self.network = true;
                // Its error is reported if the rules of this run depend on it.
                let _ = packet_filter::settings(session);
                self.add_iptables(session, need == Need::HostPorts);
            }
            Need::Zone(zone) => self.add_zone(&zone),
            Need::Forwarding => self.add_forwarding(session),
            Need::Filters(zone) => {
                self.add_forwarding(session);
                self.add_zone(&zone);
            }
            Need::Leases(directory) => self.add_leases(session, &directory),
            Need::Backups(directory) => {
                self.network = true;
                self.add_backups(&directory);
            }
            Need::Delegate { program, directory } => {
                if let Some(directory) = directory {
                    self.add_backups(&directory);
                }
                if let Some(program) = program {
                    self.add(session, Need::Program(program));
                }
            }
            // A rule on a directory would allow everything in it.
            Need::File(file) => self.files.extend(Some(PathBuf::from(&*file)).filter(|file| places::is_file(file))),
            Need::Program(plugin) => {
                self.add_programs(
                    native::find(&plugin, &session.request.path).into_iter().map(native::allowed).collect(),
                );
            }
        }
    }

    /// Adds this network's own directory, and nothing else of the data directory. It adds none that other users could
    /// redirect: opening its leases then fails with the reason.
    fn add_leases(&mut self, session: &Session, directory: &str) {
        if !can_be_path(directory) {
            return;
        }
        let directory = PathBuf::from(directory);
        // GC has as many records as there are attachments.
        if self.leases.iter().any(|(have, _)| *have == directory) {
            return;
        }
        if let Ok(network) = postern_state::lease_place(&directory, &session.request.conf.name) {
            self.leases.push((directory, network));
        }
    }

    /// Adds the directory itself. None is added that other users could redirect: opening its files then fails with the
    /// reason.
    fn add_backups(&mut self, directory: &str) {
        let path = PathBuf::from(directory);
        if can_be_path(directory) && path.is_absolute() && !self.backups.contains(&path) && is_trusted_way(&path) {
            self.backups.push(path);
        }
    }

    /// As `add_iptables`, for the rules of the firewall plugin.
    fn add_forwarding(&mut self, session: &Session) {
        (self.network, self.legacy) = (true, true);
        // Its effects and its policy ask for the same.
        if std::mem::replace(&mut self.forwarding, true) {
            return;
        }
        if iptables::forward::needs_program(session.program_runner(), firewall::noted(session).as_deref()) {
            self.add_programs(iptables::programs());
        }
    }

    fn add_zone(&mut self, zone: &str) {
        // Without a zone it can only be asked if firewalld runs.
        self.bus = true;
        if is_zone(zone) && !self.zones.iter().any(|have| have == zone) {
            self.zones.push(zone.to_owned());
        }
    }

    /// Adds the programs of iptables, where its rules can't be read and written without them: those of forwards from the
    /// node's ports, or those of masquerading. A collection meets the rules of all plugins.
    fn add_iptables(&mut self, session: &Session, is_of_ports: bool) {
        self.legacy = true;
        let all = session.request.verb == Verb::Gc;
        let (kind, runner, key) =
            (usize::from(is_of_ports && !all), session.program_runner(), session.masquerade_key());
        // Each effect and each policy asks.
        if self.iptables.get_mut(kind).is_none_or(|looked| std::mem::replace(looked, true)) {
            return;
        }
        if all && !has_others(session) {
            return;
        }
        let needs = match kind {
            0 => iptables::needs_program(runner, &key, all),
            _ => iptables::hostport::needs_program(runner, &key),
        };
        if needs {
            self.add_programs(iptables::programs());
        }
    }

    fn add_programs(&mut self, programs: Vec<Allowed>) {
        for program in programs {
            if !self.programs.iter().any(|have| have.path == program.path) {
                self.programs.push(program);
            }
        }
    }

    /// Returns the Linux capabilities to keep (capabilities(7)).
    fn capabilities(&self) -> Vec<Right> {
        // The sandboxes belong to another user. The filter below lists the processes that may be killed.
        let mut kept = vec![Right::CAP_KILL];
        if self.network {
            kept.push(Right::CAP_NET_ADMIN);
        }
        if !self.leases.is_empty() {
            // A data directory may belong to another user than root, and its time is set back (host/state).
            kept.extend([Right::CAP_DAC_OVERRIDE, Right::CAP_FOWNER]);
        } else if !self.backups.is_empty() {
            // The native plugin makes the directory without the right to search it.
            kept.push(Right::CAP_DAC_OVERRIDE);
        }
        kept
    }

    fn confinement(&self, session: &Session, calls: Vec<Rule>) -> Result<Confinement, ConfineError> {
        // Records, notes on node objects, and the audit log.
        let mut paths: Vec<(&Path, Access)> = vec![(&session.state, Access::Own), (&session.logs, Access::Own)];
        if !self.leases.is_empty() {
            paths.push((&session.library, Access::Own));
        }
        for (_, network) in &self.leases {
            // A symbolic link in this place is refused when leases are opened. The rule must not hold for its target.
            if lstat(network).is_ok_and(|found| kind(&found) == SFlag::S_IFDIR) {
                paths.push((network, Access::Own));
            }
        }
        paths.extend(self.backups.iter().map(|directory| (directory.as_path(), Access::Own)));
        paths.extend(self.files.iter().map(|file| (file.as_path(), Access::Read)));
        if self.network {
            // Nothing below: a deeper directory belongs to one namespace, and there are two.
            paths.push((Path::new("/proc/sys/net"), Access::Change));
        }
        if self.legacy || !self.programs.is_empty() {
            // This shows if there are rules of legacy iptables.
            paths.push((Path::new("/proc/thread-self/net"), Access::Read));
        }
        let files = Files::new(paths)?;
        if !files.enforced() {
            crate::say!(
                "postern: this kernel has no Landlock: guests reach no file all the same, but a gate that was taken over would"
            );
        }
        Ok(Confinement { capabilities: self.capabilities(), files, filter: Filter::new(&calls, Refusal::Absent) })
    }
}

/// True if iptables may have chains of other attachments than the valid ones: something for a collection to look at.
fn has_others(session: &Session) -> bool {
    let conf = &session.request.conf;
    let valid = conf.valid_attachments.iter().flatten();
    let valid: Vec<(String, String)> = valid.map(|valid| (valid.container_id.clone(), valid.ifname.clone())).collect();
    iptables::has_legacy_nat()
        || session.unless_absent(|nft| iptables::others_may_exist(nft, &conf.name, &valid)).unwrap_or(true)
}

/// True if a delegate is a native program, and not an incompletely installed plugin of the catalog.
fn is_native(session: &Session, launcher: &Launcher, name: &str) -> bool {
    !launcher.has(name) && native::find(name, &session.request.path).is_ok()
}

/// Returns the effects in records that this run may have to remove.
fn recorded(session: &Session) -> Result<Vec<Effect>, OpError> {
    let own = session.record().map(|record| record.effects(None)).unwrap_or_default();
    let mut effects: Vec<Effect> = own.into_iter().map(|noted| noted.effect).collect();
    if session.request.verb == Verb::Gc {
        let network = &session.request.conf.name;
        // The records of valid attachments stay, and are not even opened.
        for summary in collect::collectable_records(session)? {
            if summary.header.as_ref().is_some_and(|header| header.network == *network) {
                // The removal reports an effect that can't be read.
                let read = summary.effects.iter().filter_map(|noted| serde_json::from_value(noted.effect.clone()).ok());
                effects.extend(read);
            }
        }
    }
    Ok(effects)
}

/// Returns the system calls of a gate and its thread.
fn calls(sandboxes: &[Pid]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = CALLS.iter().copied().map(Rule::Any).collect();
    // Memory is allowed, but no new code.
    let executable = libc::PROT_EXEC as u32;
    rules.extend([Rule::Lacks(libc::SYS_mmap, 2, executable), Rule::Lacks(libc::SYS_mprotect, 2, executable)]);
    // Links, addresses, routes and nftables. No other netlink protocol is allowed (udev listens to one), and no other
    // socket.
    let netlink = |protocol: i32| [(0, libc::AF_NETLINK as u32), (2, protocol as u32)];
    rules.extend([libc::NETLINK_ROUTE, libc::NETLINK_NETFILTER].map(|to| Rule::Both(libc::SYS_socket, netlink(to))));
    // Descriptors that close on exec. Another command could send signals to any process.
    let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];
    rules.extend(commands.map(|command| Rule::Equal(libc::SYS_fcntl, 1, command as u32)));
    // The gate stops the sandboxes when they are no longer needed, and no other process.
    rules.extend(sandboxes.iter().map(|pid| Rule::Equal(libc::SYS_kill, 0, pid.as_raw() as u32)));
    #[cfg(target_arch = "x86_64")]
    rules.extend(OLD_CALLS.iter().copied().map(Rule::Any));
    rules
}

/// As [`calls`], for a gate that may bring a device home: it asks whether a program reads the device's packets. It loads,
/// attaches and removes none.
fn calls_with_look(sandboxes: &[Pid]) -> Vec<Rule> {
    let mut rules = calls(sandboxes);
    rules.push(Rule::Equal(libc::SYS_bpf, 0, tcx::BPF_PROG_QUERY));
    rules
}

/// As [`calls`], for a thread that makes a tap: these requests and no other of ioctl(2).
fn calls_with_tap(sandboxes: &[Pid]) -> Vec<Rule> {
    let mut rules = calls(sandboxes);
    rules.extend(tap::REQUESTS.map(|request| Rule::Equal(libc::SYS_ioctl, 1, request as u32)));
    rules
}

const CALLS: [libc::c_long; 55] = [
    libc::SYS_read,            // channels, files
    libc::SYS_write,           // files, standard output and error
    libc::SYS_writev,          // standard error, in one piece
    libc::SYS_pread64,         // the lease index
    libc::SYS_pwrite64,        // the lease index
    libc::SYS_close,           // any descriptor
    libc::SYS_lseek,           // the length of a file
    libc::SYS_openat,          // files, within Landlock's rules
    libc::SYS_openat2,         // the same, of cap-std
    libc::SYS_newfstatat,      // owner and mode of what is opened
    libc::SYS_fstat,           // the same, of older C libraries
    libc::SYS_statx,           // the same, of the standard library
    libc::SYS_faccessat,       // may the state directory be written?
    libc::SYS_faccessat2,      // the same, of newer C libraries
    libc::SYS_readlinkat,      // paths of native plugins
    libc::SYS_getdents64,      // listing records and leases
    libc::SYS_mkdirat,         // state and network directories
    libc::SYS_renameat,        // files appear whole
    libc::SYS_renameat2,       // the same, of newer C libraries
    libc::SYS_unlinkat,        // removing leases and records
    libc::SYS_linkat,          // a lease appears with its content
    libc::SYS_ftruncate,       // a torn line of a record
    libc::SYS_utimensat,       // the lease directory's time
    libc::SYS_flock,           // locks of leases, records and the log
    libc::SYS_munmap,          // memory
    libc::SYS_mremap,          // memory
    libc::SYS_madvise,         // memory of a thread that ends
    libc::SYS_brk,             // memory
    libc::SYS_rt_sigreturn,    // the end of a signal handler
    libc::SYS_rt_sigprocmask,  // around the end of a thread
    libc::SYS_rt_sigaction,    // the handling of SIGPIPE
    libc::SYS_sigaltstack,     // the stack for overflows, of a thread that ends
    libc::SYS_futex,           // locks between the two threads
    libc::SYS_sched_yield,     // the same, under contention
    libc::SYS_getrandom,       // names and addresses of links
    libc::SYS_clock_gettime,   // the clock, if the vDSO has none
    libc::SYS_clock_nanosleep, // waiting for a link, a lock
    libc::SYS_nanosleep,       // the same, of older C libraries
    libc::SYS_restart_syscall, // a wait that was interrupted
    libc::SYS_ppoll,           // waiting for netlink
    libc::SYS_bind,            // netlink sockets
    libc::SYS_connect,         // netlink sockets
    libc::SYS_getsockname,     // a netlink socket's own port
    libc::SYS_setsockopt,      // timeouts and strict checking
    libc::SYS_getsockopt,      // a namespace's cookie
    libc::SYS_sendto,          // requests
    libc::SYS_sendmsg,         // requests
    libc::SYS_recvfrom,        // answers
    libc::SYS_recvmsg,         // answers
    libc::SYS_getpid,          // names of temporary files
    libc::SYS_gettid,          // a thread's own directory in /proc
    libc::SYS_geteuid,         // the user with trusted files
    libc::SYS_wait4,           // waiting for ended sandboxes
    libc::SYS_exit,            // the end of a thread
    libc::SYS_exit_group,      // the end
];

/// System calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: [libc::c_long; 7] = [
    libc::SYS_poll,     // as ppoll
    libc::SYS_access,   // as faccessat
    libc::SYS_readlink, // as readlinkat
    libc::SYS_mkdir,    // as mkdirat
    libc::SYS_rmdir,    // as unlinkat
    libc::SYS_rename,   // as renameat
    libc::SYS_unlink,   // as unlinkat
];

/// Directories that were made because rules need them.
#[derive(Debug)]
pub struct MadeDirectories(Option<DirectoryRemover>);

impl MadeDirectories {
    /// No directory was made.
    pub fn none() -> Self {
        Self(None)
    }

    /// Makes them before any right is given up, and starts the process that can remove them afterwards.
    #[expect(clippy::disallowed_methods, reason = "the leases' directories, which nobody has opened yet")]
    fn of(session: &Session, needs: &Needs) -> std::io::Result<Self> {
        let mut made = Vec::new();
        if session.request.verb == Verb::Add {
            let leases = needs.leases.iter().map(|(_, directory)| (directory, 0o755));
            let backups = needs.backups.iter().map(|directory| (directory, 0o700));
            for (directory, mode) in leases.chain(backups) {
                let missing: Vec<&Path> = directory
                    .ancestors()
                    .take_while(|path| !path.as_os_str().is_empty() && !places::is_there(path))
                    .collect();
                // The operation that needs the directory reports that it can't be made.
                if Dir::make(directory, mode).is_ok() {
                    made.extend(missing.into_iter().map(Path::to_owned));
                }
            }
        }
        // Each is removed before the one that it is in, whichever need made them.
        made.sort_by_key(|directory: &PathBuf| std::cmp::Reverse(directory.components().count()));
        if made.is_empty() {
            return Ok(Self(None));
        }
        DirectoryRemover::start(&made).map(|directory_remover| Self(Some(directory_remover))).inspect_err(|_| {
            for directory in &made {
                let _ = remove_dir(directory);
            }
        })
    }

    /// Removes the directories that are empty.
    pub fn tidy(self) {
        if let Some(directory_remover) = self.0 {
            directory_remover.tidy();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules for one system call.
    fn of(rules: Vec<Rule>, wanted: libc::c_long) -> Vec<Rule> {
        rules
            .into_iter()
            .filter(|rule| {
                let (Rule::Any(call)
                | Rule::Equal(call, ..)
                | Rule::Both(call, _)
                | Rule::Lacks(call, ..)
                | Rule::Where(call, _)) = rule;
                *call == wanted
            })
            .collect()
    }

    #[test]
    fn only_the_thread_that_makes_a_tap_has_requests_for_it() {
        assert_eq!(of(calls(&[]), libc::SYS_ioctl), []);
        assert_eq!(of(calls_with_look(&[]), libc::SYS_ioctl), []);
        // TUNSETIFF, SIOCSIFHWADDR, TUNSETOWNER, TUNSETGROUP, TUNSETPERSIST of linux/if_tun.h and linux/sockios.h.
        let five = [0x4004_54ca, 0x8924, 0x4004_54cc, 0x4004_54ce, 0x4004_54cb];
        let requests = five.map(|request| Rule::Equal(libc::SYS_ioctl, 1, request));
        assert_eq!(of(calls_with_tap(&[]), libc::SYS_ioctl), requests);
    }

    /// One question of bpf(2), for the thread that may bring a device home.
    #[test]
    fn only_a_gate_that_may_bring_a_device_home_asks_for_programs() {
        assert_eq!(of(calls(&[]), libc::SYS_bpf), []);
        assert_eq!(of(calls_with_tap(&[]), libc::SYS_bpf), []);
        assert_eq!(of(calls_with_look(&[]), libc::SYS_bpf), [Rule::Equal(libc::SYS_bpf, 0, tcx::BPF_PROG_QUERY)]);
    }
}
