//! What a collection must not give back: an address that a rule still leads traffic to, or that plugins behind ours in the
//! chain may have rules for. The next container that got the address would be reached in the place of the one that is gone.
//! A DEL need not ask: the runtime calls it for each plugin of the chain, from the last to the first.

use crate::capability::leases::owner;
use crate::capability::masquerade::means;
use crate::effect::{Addresses, Effect};
use crate::session::{Session, state};
use postern_firewall::{Nft, Served};
use std::cell::OnceCell;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The rules of the node, looked at when they are first asked for, or why they can't be.
pub type Look = Rc<OnceCell<Result<Served, String>>>;

/// How long the look may take.
const WITHIN: Duration = Duration::from_secs(20);

/// What a collection knows beside the record.
#[derive(Clone, Debug)]
pub struct Keeping {
    served: Look,
    /// The plugin that a runtime has called: what native IPAM programs read is its configuration, and no other's.
    called: Option<String>,
    /// Why plugins of the chain may have left something that Postern can't undo.
    chain: Option<String>,
}

impl Keeping {
    /// For a collection by a runtime, which calls one plugin after the other.
    pub fn of_runtime(served: Look, called: &str) -> Self {
        Self { served, called: Some(called.to_owned()), chain: None }
    }

    /// For a collection by people. `chain` is why plugins of the attachment's chain may have left something.
    pub fn of_people(served: Look, chain: Option<String>) -> Self {
        Self { served, called: None, chain }
    }
}

/// Looks at the rules, once.
pub fn served<'l>(look: &'l Look, session: &Session) -> &'l Result<Served, String> {
    look.get_or_init(|| {
        // A socket of its own: this look is allowed to take longer than what it is for.
        let mut nft = match Nft::open(Instant::now() + WITHIN) {
            Err(error) if error.errno.is_some_and(postern_firewall::is_absence) => return Ok(Served::default()),
            opened => opened.map_err(|error| error.to_string())?,
        };
        match Served::look(&mut nft, means(session)) {
            Err(_) if nft.is_absent() => Ok(Served::default()),
            served => served.map_err(|error| error.to_string()),
        }
    })
}

/// Why an address must not be given back, by the rules of the node.
pub fn is_served(look: &Look, session: &Session, address: IpAddr) -> Option<String> {
    let serving = served(look, session).as_ref().ok()?.by(address)?;
    Some(format!("a rule in {} still leads traffic to {address}", serving.place))
}

impl Session {
    /// From now on, this holds for what the record lists.
    pub fn keep_by(&mut self, keeping: Keeping) {
        self.keeping = Some(keeping);
    }

    /// Why something that the record lists has to stay for now; `None` for what can go.
    pub fn must_keep(&self, noted: &postern_state::Effect<Effect>) -> Option<String> {
        let keeping = self.keeping.as_ref()?;
        let directory = match noted.effect.addresses() {
            Addresses::HeldIn(directory) => Some(directory),
            Addresses::GivenBy(native) if keeping.called.as_ref().is_some_and(|called| *called != noted.plugin) => {
                return Some(format!("native {native} goes with a collection by {}", noted.plugin));
            }
            Addresses::GivenBy(_) => None,
            Addresses::Unconcerned | Addresses::Used => return None,
        };
        if let Some(chain) = &keeping.chain {
            return Some(chain.clone());
        }
        let mut addresses = self.noted_addresses();
        if let Some(directory) = directory {
            addresses.extend(self.held_in(directory));
        }
        addresses.into_iter().find_map(|address| is_served(&keeping.served, self, address))
    }

    /// The addresses of the sections of the record.
    fn noted_addresses(&self) -> Vec<IpAddr> {
        let sections = self.record().map(|record| record.sections().to_vec()).unwrap_or_default();
        let texts = sections.into_iter().flat_map(|section| section.addresses);
        texts.filter_map(|text| text.split('/').next()?.parse().ok()).collect()
    }

    /// The addresses that the attachment holds in a directory; none where that can't be told.
    fn held_in(&self, directory: &str) -> Vec<IpAddr> {
        let held =
            self.leases(Path::new(directory).to_str().unwrap_or_default(), false).and_then(|leases| match leases {
                Some(leases) => leases.held(&owner(&self.request), self.deadline).map_err(state),
                None => Ok(Vec::new()),
            });
        held.unwrap_or_default()
    }
}
