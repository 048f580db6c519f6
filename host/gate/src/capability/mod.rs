//! What the operations do: one file per WIT interface.
//!
//! A function here may assume that policy allows the operation on the object that it names. It checks what holds for
//! every plugin: handles, and that addresses are the attachment's own.

pub mod addresses;
pub mod attachments;
pub mod bridge;
pub mod forwarding;
pub mod ipam;
pub mod leases;
pub mod link;
pub mod link_sysctl;
pub mod loopback;
pub mod mac_guard;
pub mod masquerade;
pub mod point_to_point;
pub mod resolv_conf;
pub mod routes;
pub mod veth;

use crate::gate::Gate;
use crate::session::{Session, kernel};
use postern_cni::Verb;
use postern_kernel::KernelError;
use postern_types::{OpError, Operation, Reply};
use std::fmt;

/// Removes what attachments that are not among these (container ID and interface name) have left of one capability and no
/// record tells of: a native plugin made it, or it lost its record. Returns how much that was.
type Unrecorded = fn(&Session, &[(String, String)]) -> Result<usize, OpError>;

/// The capabilities whose traces tell their network by themselves; those of the others go with a link or by a record.
pub const UNRECORDED: [(&str, Unrecorded); 1] = [("masquerade", masquerade::collect)];

/// A kernel error about `object` in the words of the native plugins: `what`, then the error number's text.
fn refused(error: KernelError, object: &str, what: impl fmt::Display) -> OpError {
    let message = format!("{what}: {}", error.message);
    OpError { message, object: object.to_owned(), ..kernel(error) }
}

/// A kernel error about a link that the kernel knows by index, and people by name.
fn about(name: &str) -> impl Fn(KernelError) -> OpError {
    move |error| kernel(KernelError { object: name.to_owned(), ..error })
}

/// Carries out an operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &Operation) -> Result<Reply, OpError> {
    match operation {
        Operation::LinkOwn => link::own(gate),
        Operation::LinkAttributes { link } => link::attributes(gate, *link),
        Operation::LinkUp { link } => link::up(gate, *link),
        Operation::LinkDelete { link } => link::delete(gate, *link),
        Operation::VethCreate { mtu, mac } => veth::create(gate, *mtu, *mac),
        Operation::VethFind => veth::find(gate),
        Operation::VethWaitRunning { host } => veth::wait_running(gate, *host),
        Operation::AddressesAdd { link, addresses } => addresses::add(gate, *link, addresses),
        Operation::AddressesList { link } => addresses::list(gate, *link),
        Operation::AddressesSettle { link } => addresses::settle(gate, *link),
        Operation::RoutesAdd { link, routes } => routes::add(gate, *link, routes),
        Operation::RoutesRemoveConnected { link, networks } => routes::remove_connected(gate, *link, networks),
        Operation::RoutesList { link } => routes::list(gate, *link),
        Operation::SysctlSet { link, key, value } => link_sysctl::set(gate, *link, *key, *value),
        Operation::BridgeEnsure { name, mtu, vlan_filtering, promisc } => {
            bridge::ensure(gate, name, *mtu, *vlan_filtering, *promisc)
        }
        Operation::BridgeFind { name } => bridge::find(gate, name),
        Operation::BridgeAttach { bridge, host, port } => bridge::attach(gate, *bridge, *host, port),
        Operation::BridgeEnsureGateways { bridge, port, force } => bridge::ensure_gateways(gate, *bridge, port, *force),
        Operation::PointToPointEnsure { host } => point_to_point::ensure(gate, *host),
        Operation::ForwardingEnable => forwarding::enable(gate),
        Operation::MasqueradeEnsure { backend } => masquerade::ensure(gate, *backend),
        Operation::MasqueradeCheck { backend } => masquerade::check(gate, *backend),
        Operation::MasqueradeRemove => masquerade::remove(gate),
        Operation::MacGuardEnsure { host, mac } => mac_guard::ensure(gate, *host, *mac),
        Operation::MacGuardCheck { host, mac } => mac_guard::check(gate, *host, *mac),
        Operation::MacGuardRemove => mac_guard::remove(gate),
        Operation::IpamAdd => ipam::run(gate, Verb::Add),
        Operation::IpamDel => ipam::run(gate, Verb::Del),
        Operation::IpamCheck => ipam::run(gate, Verb::Check),
        Operation::IpamStatus => ipam::run(gate, Verb::Status),
        Operation::IpamGc => ipam::run(gate, Verb::Gc),
        Operation::LeasesReserve { sets, requested } => leases::reserve(gate, sets, requested),
        Operation::LeasesHeld => leases::held(gate),
        Operation::LeasesRelease => leases::release(gate),
        Operation::LeasesRetain => leases::retain(gate),
        Operation::LeasesAvailable { sets } => leases::available(gate, sets),
        Operation::ResolvConfRead => resolv_conf::read(gate),
        Operation::LoopbackUp => loopback::up(gate),
        Operation::LoopbackDown => loopback::down(gate),
        Operation::LoopbackAddresses => loopback::state(gate),
        Operation::AttachmentsCollect => attachments::collect(gate),
    }
}
