//! `dummy`: the attachment's own link, without connection to any other link.

use super::inner::{self, NewLink};
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::gate::Gate;
use postern_kernel::{InnerLinkKind, random_mac};
use postern_types::{LinkInfo, Mac, OpError, host};

impl host::Dummy for Gate<'_> {
    fn create(&mut self) -> Result<LinkInfo, OpError> {
        let (spec, mac) = (InnerLinkKind::Dummy, Some(Mac(random_mac())));
        inner::create(self, &NewLink { spec, mtu: None, mac, from_host: false, shares: None }, |_| Ok(()))
    }
}
