//! Virtual routing and forwarding: links with a routing table of their own.

use super::is_link_name;
use crate::error::{Result, Subject};
use crate::netlink::Netlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::LinkVrf;

impl Netlink {
    /// Creates a VRF with this routing table, which stays down.
    ///
    /// # Errors
    /// `EEXIST` if a link has that name, `EOPNOTSUPP` for a kernel without VRFs.
    pub fn create_vrf(&self, name: &str, table: u32) -> Result<()> {
        let subject = Subject { operation: "create VRF", object: &name };
        if !is_link_name(name) {
            return Err(subject.invalid("no link can have this name"));
        }
        let message = RouteNetlinkMessage::NewLink(LinkVrf::new(name, table).build());
        self.acknowledged(subject, &message, NLM_F_CREATE | NLM_F_EXCL)
    }
}
