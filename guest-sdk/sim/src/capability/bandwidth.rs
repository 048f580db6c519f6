//! `bandwidth`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, Handle, LinkInfo, Mac, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Bandwidth) -> Result<Reply, OpError> {
    match operation {
        ops::Bandwidth::Limit { ingress, egress } => {
            kernel.limits = (*ingress, *egress);
            let name = kernel.ifb_name.clone();
            let ifb = || LinkInfo {
                handle: Handle::MAX,
                name: name.unwrap_or_else(|| "bwpfake".to_owned()),
                mac: Some(Mac([2, 0, 0, 0, 0, 0xbb])),
                mtu: 1500,
                kind: "ifb".to_owned(),
                up: true,
                running: true,
            };
            Ok(Reply::MaybeLink(egress.map(|_| ifb())))
        }
        ops::Bandwidth::Check { ingress, egress } => match kernel.limits == (*ingress, *egress) {
            true => Ok(Reply::Done),
            false => Err(OpError::new(ErrorCode::Mismatch, "veth0", "Rate doesn't match")),
        },
        ops::Bandwidth::Remove => {
            kernel.limits = (None, None);
            Ok(Reply::Done)
        }
    }
}
