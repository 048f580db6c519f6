//! Runs of installed guests against the simulation. Each guest is in its sandbox, and its policy decides on each
//! operation.

mod delegates;
mod lookups;

use super::handles;
use super::names::{self, Names};
use super::node::Node;
use super::report::{Delegate, OperationReport, Verdict};
use crate::capability::operation_texts;
use crate::lists;
use postern_account::lease_snapshot::LeaseSnapshot;
use postern_cni::{CniResult, Env, Error, IpConfig, Verb, code, config_version, read_conf};
use postern_dhcp_channel::{Family, families};
use postern_gate::capability::{device, notes, resolv_conf};
use postern_gate::catalogs::Catalogs;
use postern_gate::rehearsal::{
    self, BadEnd, Common, GuestState, Launcher, LinkAttributes, OwnAddress, Plugin, Request, RunFacts, UnmetDemand,
};
use postern_gate::{Engine, PluginError, catalog, places};
use postern_policy::{Granted, Policy, allows};
use postern_sim::{Kernel, Place, dhcp_example};
use postern_types::{
    Capability, DhcpLease, ErrorCode, IngressPolicy, LeaseGrant, LinkInfo, OpError, Operation, Reply, ToSandbox, ops,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The simulated node, and the guests that act on it.
pub struct Stage {
    launcher: Launcher,
    catalogs: Catalogs,
    /// The present state of the node.
    pub kernel: Kernel,
    forwarding: [bool; 2],
    leases: BTreeMap<PathBuf, LeaseSnapshot>,
    /// Findings besides the operations.
    pub notes: Vec<String>,
    /// The reason why the plan ends in the current plugin, although an ADD might succeed. The reason is a native
    /// program that policy allows.
    pub unknown: Option<String>,
    /// The reason why this user can't look into the container's namespace; `None` if this user can.
    hidden: Option<String>,
    /// True if an operation failed because the container is hidden. A run may succeed.
    pub is_blind: bool,
    /// All operations so far.
    pub operations: Vec<OperationReport>,
    /// The delegates that were run.
    pub delegates: Vec<Delegate>,
    /// The data of the plugins so far. In a run, the record has these data.
    given: ChainInput,
    /// Policies that replace the policies on disk, by plugin.
    pub policies: Vec<(String, Policy)>,
}

/// One plugin that the runtime calls, with its delegates.
struct Run {
    request: Request,
    deadline: Instant,
    own: Vec<OwnAddress>,
    leased: bool,
    guarded: bool,
    isolated: Option<IngressPolicy>,
    common: Common,
}

/// A guest's operation, which the code beside the simulation answers.
struct Scene<'a, 'f> {
    stage: &'a mut Stage,
    run: &'a mut Run,
    guest: &'a mut GuestState<'f>,
    /// Receives the policy line that a native delegate would need.
    native: &'a mut Option<String>,
}

/// The data of a chain's plugins.
#[derive(Default)]
struct ChainInput {
    addresses: Vec<IpConfig>,
    /// Links of the host.
    links: Vec<String>,
}

impl Run {
    fn unmet_demand(&self, granted: &Granted) -> Option<UnmetDemand> {
        // Only the guest acts in a simulation, so its effects still exist.
        let is_unguarded = granted.requires_mac_guard() && !self.guarded;
        let is_open = |wanted| !self.own.is_empty() && self.isolated != Some(wanted);
        let is_open = granted.required_ingress().is_some_and(is_open);
        let guard = is_unguarded.then(UnmetDemand::of_guard);
        guard.or_else(|| is_open.then(UnmetDemand::of_isolation))
    }
}

/// The outcome of a plugin that the runtime would call.
pub struct Played {
    /// SHA-256 of its component; `None` if the plugin could not be run.
    pub digest: Option<String>,
    /// The result, in the version of the network.
    pub outcome: Result<serde_json::Value, Error>,
}

impl Stage {
    /// Makes a stage for the plugins of this postern's catalog.
    ///
    /// # Errors
    /// There is no catalog, or it is not trusted.
    pub fn new(node: Node) -> Result<Self, PluginError> {
        let catalogs = Catalogs::find()?;
        places::trust(catalogs.own())?;
        let engine = Engine {
            main: |channel, code| postern_sandbox::child::run(channel, code),
            fingerprint: postern_sandbox::engine::fingerprint,
        };
        Ok(Self {
            launcher: Launcher::new(engine),
            catalogs,
            kernel: node.kernel,
            forwarding: node.forwarding,
            leases: BTreeMap::new(),
            notes: node.notes,
            unknown: None,
            hidden: node.hidden,
            is_blind: false,
            operations: Vec::new(),
            delegates: Vec::new(),
            given: ChainInput::default(),
            policies: Vec::new(),
        })
    }

    /// Returns the plugin of the catalog that a runtime starts by this name: a symbolic link to a plugin's file starts
    /// that plugin.
    pub fn component(&self, cni_path: &str, name: &str) -> Option<String> {
        if self.has(name) {
            return Some(name.to_owned());
        }
        lists::behind(cni_path, name).filter(|plugin| self.has(plugin))
    }

    /// True if a plugin is in the catalog.
    pub fn has(&self, plugin: &str) -> bool {
        self.launcher.has(plugin)
    }

    /// Returns the files of a plugin's policy.
    pub fn policy_files(&self, plugin: &str) -> Vec<String> {
        let catalog = self.catalogs.of(plugin).unwrap_or(self.catalogs.own());
        let shipped = catalog.join(format!("{plugin}.toml"));
        let own = Path::new(postern_policy::OPERATOR_DIRECTORY).join(format!("{plugin}.toml"));
        let files = std::iter::once(shipped).chain(own.is_file().then_some(own));
        files.map(|path| path.display().to_string()).collect()
    }

    /// Prepares a plugin, with its policy in this plan.
    fn take(&self, plugin: &str) -> Result<Plugin, Error> {
        let internal = |error: PluginError| Error::internal(error.to_string());
        let ready = self.launcher.open_unnoted(plugin).map_err(internal)?;
        let Some((_, policy)) = self.policies.iter().find(|(name, _)| name == plugin) else { return Ok(ready) };
        let file = Path::new(policy.pin_file().unwrap_or_default());
        catalog::check_pin(policy.digest(), &ready.digest, plugin, file).map_err(internal)?;
        Ok(Plugin { policy: policy.clone(), ..ready })
    }

    /// Runs a plugin with the verb in `env`, as a runtime would.
    pub fn play(&mut self, plugin: &str, env: &Env, stdin: &[u8]) -> Played {
        let mut digest = None;
        let outcome = self.try_play(plugin, env, stdin, &mut digest);
        Played { digest, outcome }
    }

    fn try_play(
        &mut self,
        plugin: &str,
        env: &Env,
        stdin: &[u8],
        digest: &mut Option<String>,
    ) -> Result<serde_json::Value, Error> {
        let verb = env.verb()?;
        let raw = read_conf(stdin, rehearsal::STDIN_LIMIT)?;
        let ready = self.take(plugin)?;
        *digest = Some(ready.digest.clone());
        let named = ready.versions.as_deref();
        let version = rehearsal::spoken(&ready.policy, named, verb, &config_version(&raw.0)?)?;
        let request = Request::read(plugin, env, verb, version, raw, stdin)?;
        let mut own = Vec::new();
        if let Ok(Some(previous)) = request.conf.previous_result() {
            // An ambiguous configuration is refused when the plugin is started.
            let granted = ready.policy.resolve(request.conf.raw(), request.args()).ok();
            // A native plugin's work in the container is not played: the plan assumes the state that `prevResult`
            // describes.
            let in_container = |ip: &IpConfig| self.given.addresses.is_empty() && !self.is_nodes(ip.address.addr());
            let may = |ip: &IpConfig| {
                granted.as_ref().is_some_and(|granted| {
                    granted.may_take_over(&ip.address) || granted.may_take_over_in_container() && in_container(ip)
                })
            };
            let ips = previous.ips.into_iter().filter(|ip| self.given.addresses.contains(ip) || may(ip)).collect();
            rehearsal::adopt(&mut own, &CniResult { ips, ..CniResult::default() });
        }
        let deadline = Instant::now() + ready.policy.limits().time();
        let mut run =
            Run { request, deadline, own, leased: false, guarded: false, isolated: None, common: Common::default() };
        let result = self.run(&mut run, ready, plugin, 0)?.unwrap_or_default();
        if verb != Verb::Add {
            return Ok(serde_json::Value::Null);
        }
        // Addresses that a plugin only passes on belong to another plugin.
        let own = result.ips.iter().filter(|ip| run.own.iter().any(|own| own.net == ip.address));
        self.given.addresses.extend(own.cloned());
        self.given.links.extend(self.kernel.host_end_name.clone().filter(|name| run.common.shown.contains(name)));
        let text = result.to_json(version)?;
        serde_json::from_str(&text).map_err(|error| Error::internal(error.to_string()))
    }

    /// Runs one guest from start to end.
    fn run(&mut self, run: &mut Run, ready: Plugin, plugin: &str, depth: u32) -> Result<Option<CniResult>, Error> {
        let Plugin { policy, sandbox, .. } = ready;
        let mut sandbox = sandbox.ok_or_else(|| Error::internal(format!("plugin \"{plugin}\" has no process")))?;
        let granted = policy
            .resolve(run.request.conf.raw(), run.request.args())
            .map_err(|error| Error::new(code::INVALID_NETWORK_CONFIG, error.to_string()))?;
        let verb = run.request.verb;
        let start = rehearsal::start(&run.request, verb, &granted);
        let mut guest = GuestState::new(plugin, depth, &granted, &mut run.common);
        if depth == 0 {
            // The record's section of an ADD is new, and has no note.
            self.kernel.note = None;
        }
        let deadline = run.deadline;
        let (stdout, status) = rehearsal::serve(ToSandbox::Start, plugin, &mut sandbox, start, deadline, |operation| {
            let answer = self.answer(run, &mut guest, operation);
            if let Ok(Err(error)) = &answer {
                run.common.note(error);
            }
            answer
        })
        .map_err(|end| end.of(plugin))?;
        let (run, kernel) = (&*run, &self.kernel);
        let facts = RunFacts {
            request: &run.request,
            own: &run.own,
            common: &run.common,
            seen: &|interface| {
                let place = if interface.sandbox.is_empty() { Place::Host } else { Place::Container };
                let link = kernel.find(place, &interface.name);
                Ok(link.map(|link| LinkAttributes { mtu: link.info.mtu, pci: link.pci.clone() }))
            },
            unmet_demand: &|granted| Ok(run.unmet_demand(granted)),
        };
        rehearsal::read(&facts, guest.granted(), plugin, verb, &stdout, status, policy.grants(Capability::Loopback))
    }

    /// Decides on one operation. The simulation answers it, even if policy denies it. An error stops the guest.
    fn answer(
        &mut self,
        run: &mut Run,
        guest: &mut GuestState<'_>,
        operation: &Operation,
    ) -> Result<Result<Reply, OpError>, BadEnd> {
        let counted = guest.count(&mut run.common, &run.request.plugin);
        if let Some(why) = guest.spent() {
            return Err(why.into());
        }
        let is_counted = counted.is_ok();
        let decision = counted.and_then(|()| guest.decide(&run.request, true, operation));
        let at = self.operations.len();
        self.operations.push(OperationReport::new(guest.plugin, guest.depth, operation));
        let there = names::object_before(&self.kernel, operation);
        let (kernel, leases, forwarding) = (self.kernel.clone(), self.leases.clone(), self.forwarding);
        let mut native = None;
        let outcome = match &decision {
            // No policy can allow the operation: the guest gets the error of the gate.
            Err(refusal) if !is_counted || !allows(operation.lasting(), run.request.verb) => Err(refusal.clone()),
            _ => self.execute(run, guest, operation, &mut native),
        }
        .map_err(|mut error| {
            if error.operation.is_empty() {
                operation.name().clone_into(&mut error.operation);
            }
            error
        });
        let changed = kernel != self.kernel || leases != self.leases || forwarding != self.forwarding;
        let names = Names { kernel: &self.kernel, guest, request: &run.request, own: &run.own };
        let words = operation_texts(operation).words(&names, &outcome);
        let verdict = match (decision, native) {
            (Ok(_), Some(missing)) => Verdict::Denied { missing },
            (Ok(rule), None) => Verdict::Allowed { rule: rule.name, from: rule.from },
            (Err(refusal), _) => Verdict::Denied { missing: refusal.hint },
        };
        if let Some(report) = self.operations.get_mut(at) {
            report.finish(words, &verdict, &outcome, changed, there);
        }
        Ok(outcome)
    }

    /// Lets the simulation, or the code beside it, carry out an operation. `native` gets the policy line that a native
    /// delegate would need.
    fn execute(
        &mut self,
        run: &mut Run,
        guest: &mut GuestState<'_>,
        operation: &Operation,
        native: &mut Option<String>,
    ) -> Result<Reply, OpError> {
        match operation {
            Operation::Ipam(asked) => asked.ask(&mut Scene { stage: self, run, guest, native }),
            Operation::Delegate(asked) => asked.ask(&mut Scene { stage: self, run, guest, native }),
            Operation::Leases(asked) => asked.ask(&mut Scene { stage: self, run, guest, native }),
            Operation::ResolvConf(ops::ResolvConf::Read) => {
                Reply::of(&resolv_conf::load(&resolv_conf::file(&run.request.conf))?)
            }
            Operation::Forwarding(ops::Forwarding::Enable) => {
                for own in &run.own {
                    let [v4, v6] = &mut self.forwarding;
                    *(if own.net.addr().is_ipv4() { v4 } else { v6 }) = true;
                }
                Reply::of(&())
            }
            Operation::Bridge(asked) => self.bridge(run, guest, operation, asked),
            // To take a bridge port, or the link of the default route, the plugin needs a policy line.
            Operation::Device(ops::Device::Take { .. }) => {
                let before = self.kernel.clone();
                let reply = self.simulate(run, guest, operation)?;
                *native = self.needed_device(&before, guest.granted());
                Ok(reply)
            }
            // Only the node knows the driver of a device.
            Operation::Device(ops::Device::Find { by, value }) if device::is_userspace(*by, value)? => {
                Reply::of(&None::<LinkInfo>)
            }
            Operation::Parent(ops::Parent::Find { name, in_container: true }) => match &self.hidden {
                Some(why) => {
                    self.is_blind = true;
                    let message = format!("this user can't look into the container: {why}");
                    Err(OpError::new(ErrorCode::Kernel, name, message).hint("run `postern plan` as root"))
                }
                None => self.simulate(run, guest, operation),
            },
            Operation::MacGuard(asked) => {
                let reply = self.simulate(run, guest, operation)?;
                match asked {
                    ops::MacGuard::Ensure { .. } => run.guarded = true,
                    ops::MacGuard::Remove => run.guarded = false,
                    ops::MacGuard::Check { .. } => {}
                }
                Ok(reply)
            }
            Operation::Link(asked) => {
                let reply = self.simulate(run, guest, operation)?;
                // The guard's rules are removed with the pair.
                run.guarded &= !matches!(asked, ops::Link::Delete { .. });
                Ok(reply)
            }
            Operation::Firewall(asked) => {
                let reply = self.simulate(run, guest, operation)?;
                if let ops::Firewall::Isolate { ingress } = asked {
                    run.isolated = Some(*ingress);
                }
                Ok(reply)
            }
            Operation::Notes(_) => {
                notes::refuse_delegate(guest)?;
                self.simulate(run, guest, operation)
            }
            Operation::PortMappings(ops::PortMappings::Ensure { addresses, .. }) => {
                let is_own = |address: &&IpAddr| run.own.iter().any(|own| own.net.addr() == **address);
                if let Some(foreign) = addresses.iter().find(|address| !is_own(address)) {
                    let message = format!("no plugin of Postern gave {foreign}, and policy does not accept it");
                    return Err(OpError::new(ErrorCode::Denied, foreign.to_string(), message));
                }
                self.simulate(run, guest, operation)
            }
            Operation::Routes(_)
            | Operation::Addresses(_)
            | Operation::Veth(_)
            | Operation::LinkSysctl(_)
            | Operation::Parent(_)
            | Operation::Macvlan(_)
            | Operation::Vlan(_)
            | Operation::Ipvlan(_)
            | Operation::Dummy(_)
            | Operation::Tap(_)
            | Operation::Device(_)
            | Operation::PointToPoint(_)
            | Operation::Masquerade(_)
            | Operation::Bandwidth(_)
            | Operation::PortMappings(_)
            | Operation::Loopback(_)
            | Operation::NamespaceSysctl(_)
            | Operation::LinkSettings(_)
            | Operation::SourceRoutes(_)
            | Operation::Vrf(_)
            | Operation::Attachments(_) => self.simulate(run, guest, operation),
            Operation::Dhcp(asked) => {
                // The plugin refuses a configuration that can't be read.
                let families = families(&run.request.stdin).unwrap_or_default();
                let has = |family| families.contains(&family);
                self.kernel.dhcp = Some(dhcp_example(has(Family::Ipv4), has(Family::Ipv6)));
                let reply = self.simulate(run, guest, operation)?;
                if *asked == ops::Dhcp::Acquire {
                    let lease: DhcpLease = reply.read()?;
                    let own = |grant: &LeaseGrant| OwnAddress { net: grant.address, gateway: grant.gateway };
                    run.own.extend(lease.addresses.iter().map(own));
                    let gateways = lease.addresses.iter().filter_map(|grant| grant.gateway);
                    let addresses = lease.addresses.iter().map(|grant| grant.address.to_string());
                    let stand: Vec<String> = addresses.chain(gateways.map(|gateway| gateway.to_string())).collect();
                    self.notes.push(format!(
                        "no DHCP server was asked, so address, gateway and routes are unknown; the plan assumes {} \
                         and a default route",
                        stand.join(", ")
                    ));
                }
                Ok(reply)
            }
        }
    }

    fn simulate(&mut self, run: &mut Run, guest: &mut GuestState<'_>, operation: &Operation) -> Result<Reply, OpError> {
        let resolved = handles::resolve(guest, operation)?;
        if let Operation::Routes(ops::Routes::Add { routes, .. }) = operation {
            run.common.add_routes(&run.request.ifname, routes.len())?;
        }
        if let Operation::Addresses(ops::Addresses::Add { addresses, .. }) = operation {
            run.common.add_addresses(&run.request.ifname, addresses.len())?;
        }
        self.kernel.attachment = run.own.iter().map(|own| (own.net, own.gateway)).collect();
        let before = self.kernel.clone();
        let reply = self.kernel.call(&resolved)?;
        // The report replaces the log.
        self.kernel.log.clear();
        // If no handle is free for an object, the object is not made.
        handles::show(guest, &mut run.common, operation, reply).inspect_err(|_| self.kernel = before)
    }
}
