//! A macvlan link, in the container's namespace: it has no end on the host, and dies with that namespace.

use super::{Addresses, AttachmentLink, Effect, Leaves, Reapplied, RecordTiming};
use crate::errors::kernel_error;
use crate::need::Need;
use crate::session::Session;
use postern_cni::CniResult;
use postern_kernel::{Link, Netlink};
use postern_types::{ErrorCode, Mac, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A macvlan link. The record notes its interface index beside it, which root in the container can't change. Before that,
/// its first name and its address identify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Macvlan {
    /// The address that the host gave it; none in mode "passthru", where it has its parent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The name that the host chose, before it gets the attachment's. None where it is born with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<String>,
}

impl Macvlan {
    /// The kernel's name for such links.
    pub const KIND: &str = "macvlan";

    /// The link, in the namespace that it was made in.
    ///
    /// # Errors
    /// The kernel refuses to show it.
    pub fn find(&self, session: &Session, container: &Netlink) -> Result<Option<Link>, OpError> {
        let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
        let own = effects.into_iter().filter(|noted| Self::of(&noted.effect) == Some(self));
        let indices: Vec<u64> = own.flat_map(|noted| noted.handles).collect();
        if let Some(index) = indices.first() {
            let link = container.link_by_index(u32::try_from(*index).unwrap_or_default()).map_err(kernel_error)?;
            return Ok(link.filter(|link| link.kind == Self::KIND));
        }
        for name in self.born.iter().chain([&session.request.ifname]) {
            let link = container.link_by_name(name).map_err(kernel_error)?;
            if let Some(own) = link.filter(|link| self.is_like(link)) {
                return Ok(Some(own));
            }
        }
        Ok(None)
    }

    /// True if a link has the kind and the address that this one was made with.
    fn is_like(&self, link: &Link) -> bool {
        link.kind == Self::KIND && self.mac.is_none_or(|mac| link.mac == Some(mac.0))
    }

    fn delete(&self, session: &Session, container: &Netlink) -> Result<(), OpError> {
        match self.find(session, container)? {
            Some(link) => container.delete_link(link.index).map(drop).map_err(kernel_error),
            None => Ok(()),
        }
    }
}

impl Leaves for Macvlan {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        // In a DEL or ADD, the runtime names the container's namespace; a collection has looked for it. If it is gone, the
        // link is gone too.
        let container = session.container().filter(|_| !session.has_foreign_record());
        match (container, session.hidden()) {
            (Some(container), _) => self.delete(session, container.netlink().map_err(kernel_error)?),
            (None, None) => Ok(()),
            (None, Some(why)) => {
                let message = format!("its namespace may be alive, and with it its macvlan link: {why}");
                Err(OpError::new(ErrorCode::TryAgain, &session.request.netns, message)
                    .hint("run DEL, or `postern gc` once the container is gone"))
            }
        }
    }

    fn reapply(&self, _: &mut Session) -> Result<Reapplied, OpError> {
        Ok(Reapplied::NoRules)
    }

    fn words(&self) -> String {
        self.mac.map_or_else(|| "macvlan".to_owned(), |mac| format!("macvlan {mac}"))
    }

    fn addresses(&self) -> Addresses<'_> {
        Addresses::Used
    }

    fn record_timing(&self) -> RecordTiming {
        RecordTiming::Once
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        Some(self)
    }

    fn outlives_boot(&self) -> bool {
        false
    }

    fn needs(&self) -> Need<'_> {
        Need::Container
    }
}

impl AttachmentLink for Macvlan {
    fn is_there(&self, session: &Session) -> Result<bool, OpError> {
        match session.container().filter(|_| !session.has_foreign_record()) {
            Some(container) => Ok(self.find(session, container.netlink().map_err(kernel_error)?)?.is_some()),
            None => Ok(false),
        }
    }

    fn is_named(&self, result: &CniResult) -> bool {
        let is_own = |address: &str| self.mac.is_none_or(|mac| address.eq_ignore_ascii_case(&mac.to_string()));
        result.interfaces.iter().any(|link| !link.sandbox.is_empty() && is_own(&link.mac))
    }

    fn is_among(&self, _: &[Link], container: Option<&[Link]>) -> Option<bool> {
        // Root in there may give it another address.
        container.map(|links| links.iter().any(|link| link.kind == Self::KIND))
    }
}

/// The macvlan link that the record lists.
pub fn recorded(session: &Session) -> Vec<Macvlan> {
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    effects.iter().filter_map(|noted| Macvlan::of(&noted.effect)).cloned().collect()
}

/// Takes macvlan links that are gone off the record. Returns one that is there.
///
/// # Errors
/// The kernel refuses to show it.
pub fn retire(session: &mut Session) -> Result<Option<Link>, OpError> {
    let mut living = None;
    for made in recorded(session) {
        let Some(container) = session.container() else { continue };
        match made.find(session, container.netlink().map_err(kernel_error)?)? {
            Some(link) => living = Some(link),
            None => session.gone(|effect: &Effect| Macvlan::of(effect) == Some(&made)),
        }
    }
    Ok(living)
}
