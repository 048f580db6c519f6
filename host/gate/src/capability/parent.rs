//! `parent`: a link on which other links are stacked. A guest can only read the link, and use the link as a parent.

pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::errors::kernel_error;
use crate::gate::Gate;
use crate::guest_state::{Object, Parent};
use crate::others;
use postern_kernel::Netlink;
use postern_types::{ErrorCode, LinkInfo, OpError, host};

impl host::Parent for Gate<'_> {
    fn find(&mut self, name: &str, in_container: bool) -> Result<LinkInfo, OpError> {
        let netlink = if in_container { self.run.system.container_netlink()? } else { self.run.system.host()? };
        let link = if name.is_empty() {
            let none = || OpError::new(ErrorCode::NotFound, "default route", "no default route interface found");
            netlink.link_by_index(default_link(netlink)?.ok_or_else(none)?)
        } else {
            netlink.link_by_any_name(name)
        };
        let link = link.map_err(kernel_error)?;
        let link = link.ok_or_else(|| OpError::new(ErrorCode::NotFound, name, "Link not found"))?;
        // The records are read only if the link may be another attachment's, because it has an end in a container or is
        // a port.
        if !in_container
            && (link.peer_netnsid.is_some() || link.master.is_some())
            && others::is_link_of_others(self.run.view(), &link)?
        {
            let message = format!("\"{}\" can't be a parent: it is the host end of another attachment", link.name);
            return Err(OpError::new(ErrorCode::Denied, &link.name, message)
                .hint("name a link of the node itself in the network configuration"));
        }
        let parent = Parent { index: link.index, name: link.name.to_string(), in_container, mtu: link.mtu };
        Ok(Gate::show(self.grant(Object::Parent(parent))?, link))
    }
}

/// Returns the link of the first default route of the main table, IPv4 first.
pub fn default_link(netlink: &Netlink) -> Result<Option<u32>, OpError> {
    Ok(default_links(netlink)?.first().copied())
}

/// Returns the links of all default routes of the main table, IPv4 first.
pub(crate) fn default_links(netlink: &Netlink) -> Result<Vec<u32>, OpError> {
    let routes = netlink.all_routes().map_err(kernel_error)?;
    let is_default = |v4| {
        routes.iter().filter(move |(_, route)| {
            let is_main = route.table.is_none_or(|table| table == 254);
            is_main && route.dst.prefix_len() == 0 && route.dst.addr().is_ipv4() == v4
        })
    };
    Ok(is_default(true).chain(is_default(false)).map(|(link, _)| *link).collect())
}
