//! The leases that DHCP services keep, as the services report them. A service answers only root and its own user.

use crate::attachment::{AGAIN, Account};
use crate::node_state::{DhcpListed, NodeState};
use ipnet::IpNet;
use postern_dhcp_channel::{Answer, Ask, Channel, Family, HeldLease, ServiceError, Standing};
use postern_gate::effect::Dhcp;
use postern_state::Header;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The longest time to wait for a service.
const WITHIN: Duration = Duration::from_secs(3);

/// The command that starts Postern's service.
pub const START: &str = "systemctl enable --now postern-dhcp.socket";

/// The reason why a service does not tell its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Untold {
    /// No process serves at the socket.
    Absent(String),
    /// The service is a native daemon, which Postern does not ask.
    Native,
    /// Another reason.
    Other(String),
}

/// Asks the service at a socket for all its leases.
///
/// # Errors
/// The service does not tell its leases.
pub fn leases(socket: &str) -> Result<Vec<HeldLease>, Untold> {
    let deadline = Instant::now() + WITHIN;
    let untold = |error: ServiceError| match error {
        ServiceError::Absent(why) => Untold::Absent(why),
        ServiceError::Native => Untold::Native,
        other => Untold::Other(other.to_string()),
    };
    let mut channel = Channel::connect(Path::new(socket), deadline).map_err(untold)?;
    match channel.ask(&Ask::Leases, None, deadline).map_err(untold)? {
        Answer::Leases(leases) => Ok(leases),
        Answer::Refused { words, .. } => Err(Untold::Other(format!("refuses: {words}"))),
        Answer::Lease(_) | Answer::Done => Err(Untold::Other("has given an answer of the wrong kind".to_owned())),
    }
}

/// True if a lease belongs to the attachment of a record.
pub fn is_of(held: &HeldLease, header: &Header) -> bool {
    (&held.container_id, &held.network, &held.ifname) == (&header.container_id, &header.network, &header.ifname)
}

impl NodeState {
    /// Returns the leases of the service at a socket, asked once.
    pub fn dhcp_leases(&self, socket: &str) -> DhcpListed {
        let mut asked = self.dhcp.borrow_mut();
        Rc::clone(asked.entry(socket.to_owned()).or_insert_with(|| Rc::new(leases(socket))))
    }

    /// Compares the lease in a record with the lease at the service.
    pub(crate) fn dhcp(&self, account: &mut Account, header: &Header, plugin: &str, lease: &Dhcp) {
        let given = match lease.addresses.as_slice() {
            [] => "no address yet".to_owned(),
            addresses => addresses.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", "),
        };
        let socket = &lease.socket;
        let leases = self.dhcp_leases(socket);
        let held: Vec<&HeldLease> = match leases.as_ref() {
            Ok(leases) => leases.iter().filter(|held| is_of(held, header)).collect(),
            Err(untold) => {
                let found = match untold {
                    Untold::Absent(_) => {
                        let what = format!("no DHCP service answers at {socket}: the lease of {given} is not renewed");
                        account.differs(what, START, true);
                        format!("{given}, by the service at {socket}, which is not there")
                    }
                    Untold::Native => {
                        format!("{given}; Postern does not ask the native daemon that serves at {socket}")
                    }
                    Untold::Other(why) => {
                        account.unseen(format!("{given}: the DHCP service at {socket} can't be asked: it {why}"))
                    }
                };
                return account.fact(plugin, "DHCP lease", found);
            }
        };
        // An attachment with both families has two leases.
        let has = |address: &IpNet| held.iter().any(|held| addresses(held).any(|have| have == *address));
        let missing: Vec<&IpNet> = lease.addresses.iter().filter(|address| !has(address)).collect();
        account.count(!held.is_empty() && missing.is_empty());
        if held.is_empty() {
            account.differs(format!("the DHCP service at {socket} has no lease of {given}"), AGAIN, false);
            return account.fact(plugin, "DHCP lease", format!("{given}, unknown to the service at {socket}"));
        }
        for held in &held {
            let now = addresses(held).map(|address| address.to_string()).collect::<Vec<_>>();
            let own = if now.is_empty() { given.clone() } else { now.join(", ") };
            let found = match &held.standing {
                Standing::Acquiring => "no server has given the lease yet".to_owned(),
                Standing::Remembered => "of an earlier boot".to_owned(),
                Standing::Lost(why) => {
                    account.differs(format!("the DHCP lease of {own} is lost: {why}"), AGAIN, false);
                    format!("lost: {why}")
                }
                Standing::Bound => match held.seconds_left {
                    Some(seconds) => format!("for {} more", humantime::format_duration(Duration::from_secs(seconds))),
                    None => "for ever".to_owned(),
                },
            };
            if let Some(other) = addresses(held).find(|address| !lease.addresses.contains(address)) {
                account.differs(
                    format!("the DHCP service has {other} for the attachment, and not {given}"),
                    AGAIN,
                    false,
                );
            }
            account.fact(plugin, "DHCP lease", format!("{own}, {found}, by the service at {socket}"));
        }
        // A lease with another address is reported above.
        let of_family = |held: &HeldLease, address: &IpNet| (held.family == Family::Ipv4) == address.addr().is_ipv4();
        for address in missing {
            if !held.iter().any(|held| of_family(held, address)) {
                account.differs(format!("the DHCP service at {socket} has no lease of {address}"), AGAIN, false);
            }
        }
    }
}

fn addresses(held: &HeldLease) -> impl Iterator<Item = IpNet> {
    held.lease.iter().flat_map(|lease| &lease.addresses).map(|leased| leased.address)
}
