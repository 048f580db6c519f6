//! The effect of `lo` that was set up.

use crate::capability::leaves::EffectKind;
use crate::context::Context;
use crate::errors::{kernel_error, link_gone};
use crate::right::Right;
use postern_kernel::{Link, Netlink};
use postern_types::OpError;
use serde::{Deserialize, Serialize};

/// `lo` was set up, and was down before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopbackUp {}

impl EffectKind for LoopbackUp {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let Some(netlink) = run.system.netlink_inside()? else { return Ok(()) };
        netlink.set_down(lo(netlink)?.index).map_err(kernel_error)
    }

    fn words(&self) -> String {
        "lo being up".to_owned()
    }

    fn right(&self) -> Right<'_> {
        Right::Network
    }
}

pub(crate) fn lo(netlink: &Netlink) -> Result<Link, OpError> {
    netlink.link_by_name("lo").map_err(kernel_error)?.ok_or_else(|| link_gone("lo"))
}
