//! The state of all attachments in the kernel and on disk, read once for an account of the node. This module changes
//! nothing.

use crate::attachment::{Account, State};
use crate::busy::{self, File, Holder};
use crate::dhcp::Untold;
use crate::namespaces::Namespaces;
use crate::places;
use postern_confine::Direct;
use postern_firewall::Nft;
use postern_firewall::account::{NftRules, Tables};
use postern_firewall::iptables::ProgramRunner;
use postern_gate::effect::{Port, Veth};
use postern_gate::places::Places;
use postern_gate::upkeep::now;
use postern_kernel::{Link, Netlink};
use postern_state::{HeldAddress, Summary};
use postern_types::VlanId;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest time for packet filters and their programs together.
const FILTERS_WITHIN: Duration = Duration::from_secs(60);

/// The reason why packet filters can't be looked at.
const NOT_SHOWN: &str = "the kernel does not let this user look at its packet filter";

/// Leases of a network, or the reason why they can't be listed.
pub type Listed = Rc<Result<Vec<HeldAddress>, String>>;

/// Leases of a DHCP service, or the reason why the service does not show the leases.
pub type DhcpListed = Rc<Result<Vec<postern_dhcp_channel::HeldLease>, Untold>>;

/// The records, or the reason why they can't be read.
pub type Records = Result<Vec<Summary>, String>;

/// The state of the node, read once, with which all attachments are compared.
pub struct NodeState {
    /// The directories of the state.
    pub places: Places,
    /// The cookie of the host's network namespace.
    pub here: u64,
    /// The boot ID.
    pub boot: String,
    /// The time when the node was looked at, milliseconds since 1970.
    pub started: u64,
    /// A socket in the host's namespace.
    pub(crate) host: Netlink,
    /// The host's links.
    pub links: Vec<Link>,
    /// All network namespaces that could be found, with routes for the namespaces of attachments.
    pub namespaces: Namespaces,
    /// Processes that hold locks of records.
    pub(crate) busy: BTreeMap<File, Vec<Holder>>,
    nft: RefCell<Option<Nft>>,
    rules: Result<NftRules, String>,
    iptables: Result<Tables, String>,
    forwards: OnceCell<Result<Tables, String>>,
    leases: RefCell<BTreeMap<(PathBuf, String), Listed>>,
    /// The leases of DHCP services, by socket.
    pub(crate) dhcp: RefCell<BTreeMap<String, DhcpListed>>,
}

/// The node, and the accounts of its attachments or the reason why the accounts are missing.
pub type Accounts = (NodeState, Result<Vec<Account>, String>);

/// Looks at the node and its attachments. If this function sees a deviation, it looks a second time. A deviation
/// that a run in progress caused is gone by then.
///
/// # Errors
/// The errors of [`NodeState::look`].
pub fn settled(places: &Places, within: Duration) -> Result<Accounts, String> {
    let look = || -> Result<Accounts, String> {
        let (node_state, records) = NodeState::look(places.clone(), within)?;
        let accounts = records.map(|records| node_state.accounts(records));
        Ok((node_state, accounts))
    };
    let (node_state, first) = look()?;
    let Ok(first) = first else { return Ok((node_state, first)) };
    if first.iter().all(|account| account.state == State::Ok) {
        return Ok((node_state, Ok(first)));
    }
    let (node_state, second) = look()?;
    let confirmed = |mut account: Account| {
        let before = first.iter().find(|before| before.path == account.path);
        // The deviation of a stuck run contains the run's duration, so the two looks differ.
        if account.state == State::Stuck && before.is_some_and(|before| before.state == State::Stuck) {
            return account;
        }
        let earlier = before.map(|before| before.deviations.as_slice()).unwrap_or_default();
        account.deviations.retain(|deviation| earlier.contains(deviation));
        if account.deviations.is_empty() && account.state != State::Incomplete {
            account.state = State::Ok;
        }
        account
    };
    Ok((node_state, second.map(|accounts| accounts.into_iter().map(confirmed).collect())))
}

impl NodeState {
    /// Looks at the node. The search for namespaces takes at most `within`. The records are read first. So the kernel
    /// already has the recorded effects, unless a run is in progress.
    ///
    /// # Errors
    /// A text for people: the kernel does not show its links or namespaces.
    pub fn look(places: Places, within: Duration) -> Result<(Self, Records), String> {
        let started = now();
        let records = postern_state::list(&places.state).map_err(|e| e.to_string());
        let host = Netlink::open().map_err(|e| e.to_string())?;
        let deadline = Instant::now() + FILTERS_WITHIN;
        let mut nft = Nft::usable(deadline);
        let rules = match &mut nft {
            Some(nft) => NftRules::look(nft).map_err(|e| e.to_string()),
            None => Err(NOT_SHOWN.to_owned()),
        };
        let runner = ProgramRunner { runner: &Direct, deadline, nft: None };
        let iptables = match &mut nft {
            Some(nft) => Tables::nat(nft, runner).map_err(|e| e.to_string()),
            None => Err(NOT_SHOWN.to_owned()),
        };
        let known = || records.iter().flatten();
        let routes_of = known().filter_map(|summary| summary.header.as_ref()?.netns_cookie).collect();
        let locked: Vec<File> = known().filter_map(|summary| crate::locked(&summary.path)).collect();
        let node_state = Self {
            places,
            started,
            here: host.cookie().map_err(|e| e.to_string())?,
            boot: postern_state::boot_id().map_err(|e| e.to_string())?,
            links: host.links().map_err(|e| e.to_string())?,
            namespaces: Namespaces::find(within, routes_of)?,
            busy: busy::holders(&locked),
            host,
            nft: RefCell::new(nft),
            rules,
            iptables,
            forwards: OnceCell::new(),
            leases: RefCell::default(),
            dhcp: RefCell::default(),
        };
        Ok((node_state, records))
    }

    /// Returns the filter tables of iptables, read once, at the first call.
    pub(crate) fn forwards(&self) -> Result<&Tables, &str> {
        let look = || match &mut *self.nft.borrow_mut() {
            Some(nft) => Tables::filter(nft, Self::means()).map_err(|e| e.to_string()),
            None => Err(NOT_SHOWN.to_owned()),
        };
        self.forwards.get_or_init(look).as_ref().map_err(String::as_str)
    }

    /// Returns the runner of the packet filters' programs.
    pub(crate) fn means() -> ProgramRunner<'static> {
        ProgramRunner { runner: &Direct, nft: None, deadline: Instant::now() + FILTERS_WITHIN }
    }

    /// Returns the leases of a network in a data directory.
    pub fn leases(&self, directory: &Path, network: &str) -> Listed {
        let key = (directory.to_owned(), network.to_owned());
        let list = || Rc::new(places::all_leases(&self.places, directory, network));
        Rc::clone(self.leases.borrow_mut().entry(key).or_insert_with(list))
    }

    /// Returns the host's link of that name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Returns the host's link of that index.
    pub fn link_at(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// Returns the link that the record lists as a port of a bridge, or else the host end of the attachment's pair.
    pub fn end_of(&self, account: &Account) -> Option<&Link> {
        if let Some(port) = account.effects.iter().find_map(Port::of) {
            return self.link_at(port.index);
        }
        let mut pairs = account.effects.iter().filter_map(Veth::of);
        pairs.find_map(|pair| self.link(&pair.host).filter(|link| pair.is_end(link)))
    }

    /// Returns the VLANs of a port of the host, each with true if incoming untagged frames belong to it.
    ///
    /// # Errors
    /// A text for people: the kernel has no VLANs, or the port is gone.
    pub fn port_vlans(&self, port: &Link) -> Result<Vec<(VlanId, bool)>, String> {
        self.host.port_vlans(port.index).map_err(|e| e.to_string())
    }

    /// True if the host has a link of that name now, or if its links can't be read.
    pub fn has_link(&self, name: &str) -> bool {
        self.host.link_by_name(name).map_or(true, |link| link.is_some())
    }

    /// Calls `work` with an nftables socket.
    ///
    /// # Errors
    /// The kernel does not let this user look at nftables, or the error of `work`.
    pub fn nft<T>(&self, work: impl FnOnce(&mut Nft) -> Result<T, String>) -> Result<T, String> {
        match self.nft.borrow_mut().as_mut() {
            Some(nft) => work(nft),
            None => Err(NOT_SHOWN.to_owned()),
        }
    }

    /// Returns the attachments' rules in nftables.
    ///
    /// # Errors
    /// The reason why the tables could not be looked at.
    pub fn rules(&self) -> Result<&NftRules, String> {
        self.rules.as_ref().map_err(Clone::clone)
    }

    /// Returns the nat tables of iptables.
    ///
    /// # Errors
    /// The reason why the tables could not be looked at.
    pub fn iptables(&self) -> Result<&Tables, String> {
        self.iptables.as_ref().map_err(Clone::clone)
    }
}
