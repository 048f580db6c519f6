//! The rights of a run: files, programs, directories of leases, and access to the network. They come from policies, the
//! configuration and the records that the run works on.

use crate::capability::{device, facts, firewall, leases, namespace_sysctl};
use crate::context::{Context, View};
use crate::effect::{Effect, in_record};
use crate::launcher::Launcher;
use crate::prepared::Prepared;
use crate::request::Request;
use crate::right::Right;
use crate::system::Inside;
use crate::view::can_be_path;
use crate::{collectable, disk, native, places};
use postern_cni::{Error, Verb};
use postern_confine::Allowed;
use postern_firewall::{ChainKind, iptables};
use postern_policy::capability::firewall::is_zone;
use postern_policy::{Granted, Policy};
use postern_state::{Dir, is_trusted_way};
use postern_types::{Capability, OpError};
use std::borrow::Cow;
use std::path::PathBuf;

/// The rights for the plugins of this run, and for its records.
#[derive(Debug, Default)]
pub struct Rights {
    /// True if this run reads the tables of legacy iptables.
    pub legacy: bool,
    /// Netlink and sysctls.
    pub network: bool,
    /// `Some` if this run may make a tap; the inner value is the SELinux context of the tap, if it gets one.
    pub tap: Option<Option<String>>,
    /// True if the run may set or read the settings of the container that the network lists.
    settings: bool,
    /// True if some of these settings need a thread in the container's namespace.
    thread: bool,
    /// True if the run may move a device of the node back to the host's namespace.
    pub device: bool,
    /// The sysfs directories with the files of the run's devices.
    pub device_files: Vec<String>,
    /// Directories with leases: `dataDir`, and the real path of the network's own directory in it.
    pub leases: Vec<(PathBuf, PathBuf)>,
    /// The directory of the index of leases. It is open, because a run may make it.
    pub index: Option<Dir>,
    /// Directories of the native tuning plugin's files.
    pub backups: Vec<PathBuf>,
    /// Files to read.
    pub files: Vec<PathBuf>,
    /// Programs to run.
    pub programs: Vec<Allowed>,
    /// For each [`ChainKind`]: true if the rights for its iptables rules were added.
    iptables: [bool; 2],
    /// True if the rights for the rules of the firewall plugin were added.
    forwarding: bool,
    /// True if the run may talk to firewalld.
    pub bus: bool,
    /// Zones of firewalld.
    pub zones: Vec<String>,
    /// Sockets of DHCP services.
    pub dhcp: Vec<String>,
}

/// The most DHCP services of one run. A collection reads the records of many attachments, and each record can name a
/// service.
const MOST_SOCKETS: usize = 16;

impl Rights {
    pub fn of(
        run: &mut Context,
        launcher: &Launcher,
        called: &Prepared,
        of_delegates: Option<&Request>,
    ) -> Result<Self, OpError> {
        let listed = recorded(run)?;
        let mut rights = Self::default();
        rights.add_plugin(run, launcher, called);
        rights.add_others(&run.with(of_delegates.unwrap_or(run.request)), launcher, called, &listed);
        Ok(rights)
    }

    /// Checks that an ADD can write its leases.
    pub fn writable(&self, request: &Request) -> Result<(), Error> {
        match request.verb {
            Verb::Add => self.leases.iter().try_for_each(|(_, network)| disk::writable(network)),
            Verb::Check | Verb::Del | Verb::Gc | Verb::Status | Verb::Version => Ok(()),
        }
    }

    /// Returns the purpose for which the container's namespace is entered.
    pub fn inside(&self) -> Inside {
        match &self.tap {
            Some(context) => Inside::Tap(context.clone()),
            None if self.thread => Inside::Thread,
            None => Inside::Opened(if self.settings { namespace_sysctl::looks() } else { Vec::new() }),
        }
    }

    /// Adds the rights of the delegates, and of the records.
    fn add_others(&mut self, run: &Context, launcher: &Launcher, called: &Prepared, listed: &[Effect]) {
        let rights = self;
        for delegate in launcher.delegates() {
            rights.add_plugin(run, launcher, delegate);
        }
        let verb = run.request.verb;
        for effect in listed {
            rights.add(run, effect.kind().right());
        }
        // A native plugin may have made an attachment without a record, with rules of either backend.
        let is_whole = run.journal.record_is_whole() && !run.journal.has_lost_link;
        let looks_at_rules = match verb {
            Verb::Gc => true,
            Verb::Del | Verb::Check => !is_whole,
            Verb::Add | Verb::Status | Verb::Version => false,
        };
        if looks_at_rules {
            let masquerades = |policy: &Policy| match verb {
                Verb::Del => [Capability::Masquerade, Capability::PortMappings, Capability::Delegate]
                    .into_iter()
                    .any(|capability| policy.knows(capability)),
                Verb::Add | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => {
                    policy.grants(Capability::Masquerade) || policy.grants(Capability::PortMappings)
                }
            };
            // Every collection reads the node's rules before it gives an address back.
            rights.network |= verb == Verb::Gc;
            let looks = verb == Verb::Gc || launcher.with(called).any(|plugin| masquerades(&plugin.policy));
            rights.legacy |= looks;
            // If a network has no masquerading, its collection needs iptables' programs only if the kernel has a legacy
            // nat table.
            let asks = |plugin: &Prepared| {
                let has =
                    |granted: &Granted| granted.has(Capability::Masquerade) || granted.has(Capability::PortMappings);
                plugin.granted().is_some_and(has)
            };
            let may_run = verb != Verb::Gc || launcher.with(called).any(asks) || iptables::has_legacy_nat();
            if looks && may_run {
                for is_of_ports in [false, true] {
                    rights.add_iptables(run.view(), is_of_ports);
                }
            }
        }
        // The host itself gives leases back if the delegate can't be run.
        let ipam = &run.request.conf.ipam_type;
        let is_ready = launcher.with(called).any(|plugin| plugin.name == *ipam);
        if verb == Verb::Del && !ipam.is_empty() && !is_ready && !is_native(run.request, launcher, ipam) {
            rights.add_leases(run.request, &leases::directory(&run.request.conf));
        }
    }

    fn add_plugin(&mut self, run: &Context, launcher: &Launcher, plugin: &Prepared) {
        // If the policy can't be resolved with the configuration, the plugin's start is refused.
        let (policy, resolved) = (&plugin.policy, plugin.granted());
        let gives_up = run.request.verb == Verb::Del;
        let may = |capability: &Capability| policy.grants(*capability) || gives_up && policy.knows(*capability);
        let granted: Vec<Capability> = Capability::ALL.iter().copied().filter(may).collect();
        self.network |= granted.iter().any(|capability| capability.acts_in_kernel());
        if granted.contains(&Capability::NamespaceSysctl) {
            self.settings = true;
            self.thread |= namespace_sysctl::take_thread(&run.request.conf, &run.request.ifname);
        }
        if run.request.verb == Verb::Add && granted.contains(&Capability::Device) {
            // The devices are on the host: an ADD reads their files, and its undo writes the files.
            let files = resolved.and_then(|resolved| device::files(run.view(), resolved).ok());
            self.device_files.extend(files.into_iter().flatten());
        }
        let keeps = |capability: Capability| (facts(capability).keeps)(run.request, resolved);
        for right in granted.into_iter().filter_map(keeps) {
            // A delegate from the catalog is no native program.
            if !matches!(&right, Right::Program(name) if launcher.has(name)) {
                self.add(run, right);
            }
        }
    }

    fn add(&mut self, run: &Context, right: Right<'_>) {
        match right {
            Right::Network | Right::Container => self.network = true,
            // The undo of an ADD moves the device back to the host's namespace, too.
            Right::Device(sysfs) => {
                self.network = true;
                // The device is in the container, so the right is for the directory above: the device returns to this
                // directory.
                let beside = sysfs.as_deref().and_then(|directory| directory.rsplit_once('/')).map(|(above, _)| above);
                self.device_files.extend(beside.map(str::to_owned));
                self.device |= match run.request.verb {
                    Verb::Add | Verb::Del | Verb::Gc => true,
                    Verb::Check | Verb::Status | Verb::Version => false,
                };
            }
            // Only an ADD makes a tap.
            Right::Tap(context) => {
                let makes = run.request.verb == Verb::Add;
                (self.network, self.tap) = (true, makes.then(|| context.map(Cow::into_owned)));
            }
            Right::Iptables | Right::HostPorts => {
                self.network = true;
                // The operator's settings are read before confinement. If the rules of this run depend on the settings,
                // an error is reported later.
                let _ = run.fixed.settings();
                self.add_iptables(run.view(), right == Right::HostPorts);
            }
            Right::Zone(zone) => self.add_zone(&zone),
            Right::Forwarding => self.add_forwarding(run),
            Right::Filters(zone) => {
                self.add_forwarding(run);
                self.add_zone(&zone);
            }
            Right::Leases(directory) => self.add_leases(run.request, &directory),
            Right::Backups(directory) => {
                self.network = true;
                self.add_backups(&directory);
            }
            Right::Delegate { program, directory } => {
                if let Some(directory) = directory {
                    self.add_backups(&directory);
                }
                if let Some(program) = program {
                    self.add(run, Right::Program(program));
                }
            }
            Right::Dhcp(socket) => {
                let may_be = can_be_path(&socket) && self.dhcp.len() < MOST_SOCKETS;
                if may_be && !self.dhcp.iter().any(|have| *have == *socket) {
                    self.dhcp.push(socket.into_owned());
                }
            }
            // Only regular files are allowed: a right to a directory would include all files in it.
            Right::File(file) => self.files.extend(Some(PathBuf::from(&*file)).filter(|file| places::is_file(file))),
            Right::Program(plugin) => {
                self.add_programs(native::find(&plugin, &run.request.path).into_iter().map(native::allowed).collect());
            }
        }
    }

    /// Adds only this network's own directory of the data directory. A directory that other users could redirect is not
    /// added. Then opening its leases fails with the reason.
    fn add_leases(&mut self, request: &Request, directory: &str) {
        if !can_be_path(directory) {
            return;
        }
        let directory = PathBuf::from(directory);
        // A directory is added only once, although GC asks for the same directory with each record.
        if self.leases.iter().any(|(have, _)| *have == directory) {
            return;
        }
        if let Ok(network) = postern_state::lease_place(&directory, &request.conf.name) {
            self.leases.push((directory, network));
        }
    }

    /// Adds the directory itself. A directory that other users could redirect is not added. Then opening its files
    /// fails with the reason.
    fn add_backups(&mut self, directory: &str) {
        let path = PathBuf::from(directory);
        if can_be_path(directory) && path.is_absolute() && !self.backups.contains(&path) && is_trusted_way(&path) {
            self.backups.push(path);
        }
    }

    /// Like `add_iptables`, but for the rules of the firewall plugin.
    fn add_forwarding(&mut self, run: &Context) {
        (self.network, self.legacy) = (true, true);
        // The effects and the policy ask for this right, but it is added once.
        if std::mem::replace(&mut self.forwarding, true) {
            return;
        }
        if iptables::forward::needs_program(run.system.program_runner(), firewall::noted(run).as_deref()) {
            self.add_programs(iptables::programs());
        }
    }

    fn add_zone(&mut self, zone: &str) {
        // Without a zone, the run can only ask whether firewalld runs.
        self.bus = true;
        if is_zone(zone) && !self.zones.iter().any(|have| have == zone) {
            self.zones.push(zone.to_owned());
        }
    }

    /// Adds the programs of iptables, if the rules of port forwards or of masquerading can't be read and written
    /// without these programs. A collection works on the rules of all plugins.
    fn add_iptables(&mut self, view: View<'_>, is_of_ports: bool) {
        self.legacy = true;
        let all = view.request.verb == Verb::Gc;
        let kind = if is_of_ports && !all { ChainKind::Forwards } else { ChainKind::Masquerading };
        // The check runs once, although each effect and each policy asks for it.
        if self.iptables.get_mut(kind as usize).is_none_or(|looked| std::mem::replace(looked, true)) {
            return;
        }
        if all && !has_others(view) {
            return;
        }
        let key = Some(view.request.masquerade_key()).filter(|_| !all);
        if iptables::needs_program(view.system.program_runner(), kind, key.as_ref()) {
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
}

/// True if iptables may have chains of attachments that are not valid. A collection has to remove such chains.
fn has_others(view: View<'_>) -> bool {
    let conf = &view.request.conf;
    let valid = conf.valid_attachments.iter().flatten();
    let valid: Vec<(String, String)> = valid.map(|valid| (valid.container_id.clone(), valid.ifname.clone())).collect();
    iptables::has_legacy_nat()
        || view.system.unless_absent(|nft| iptables::others_may_exist(nft, &conf.name, &valid)).unwrap_or(true)
}

/// True if a delegate is a native program, and not an incompletely installed plugin of the catalog.
fn is_native(request: &Request, launcher: &Launcher, name: &str) -> bool {
    !launcher.has(name) && native::find(name, &request.path).is_ok()
}

/// Returns the effects in records that this run may have to remove.
fn recorded(run: &Context) -> Result<Vec<Effect>, OpError> {
    let own = run.journal.effects();
    let mut effects: Vec<Effect> = own.into_iter().map(|noted| noted.effect).collect();
    if run.request.verb == Verb::Gc {
        let network = &run.request.conf.name;
        // Records of valid attachments stay, so they are not opened.
        for summary in collectable::records(run.view())? {
            if summary.header.as_ref().is_some_and(|header| header.network == *network) {
                // An effect that can't be read is skipped here. The removal reports it.
                effects.extend(in_record::<Effect>(summary));
            }
        }
    }
    Ok(effects)
}
