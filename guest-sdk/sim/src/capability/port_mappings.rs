//! `port-mappings`, simulated.

use crate::kernel::Kernel;
use postern_types::{ErrorCode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::PortMappings) -> Result<Reply, OpError> {
    match operation {
        ops::PortMappings::Ensure { addresses, forwards, .. } => {
            if let Some(taken) = kernel.taken_ports.iter().find(|taken| forwards.iter().any(|own| own.overlaps(taken)))
            {
                let message = format!("the node's port is taken: {taken}");
                return Err(OpError::new(ErrorCode::Exists, taken.to_string(), message));
            }
            let made = addresses.iter().flat_map(|address| forwards.iter().map(|forward| (*address, *forward)));
            kernel.forwards = made.collect();
            Ok(Reply::Done)
        }
        ops::PortMappings::Check { addresses, forwards, .. } => {
            let has = |address, forward| kernel.forwards.contains(&(address, forward));
            if addresses.iter().all(|address| forwards.iter().all(|forward| has(*address, *forward))) {
                return Ok(Reply::Done);
            }
            Err(OpError::new(ErrorCode::Mismatch, "", "the forwards are not all there"))
        }
        ops::PortMappings::Remove => {
            kernel.forwards.clear();
            Ok(Reply::Done)
        }
    }
}
