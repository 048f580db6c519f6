//! The common limits of all guests of a run. The limits hold for the whole run, because a delegate is started again at
//! each call: a limit per start would limit nothing.

use postern_cni::Error;
use postern_types::{DENIED, ErrorCode, OpError};
use std::collections::{BTreeSet, VecDeque};

/// The most routes in one run. Each route takes time and memory of the kernel, without cost to the container.
pub const MOST_ROUTES: usize = 1024;

/// The most addresses in one run.
pub const MOST_ADDRESSES: usize = 256;

/// The most refusals that are kept, and the most faults of the node. A guest usually ends with one of its last errors.
const MOST_ERRORS: usize = 16;

/// The state that all guests of one run share.
#[derive(Debug, Default)]
pub struct Common {
    /// The operations that the guests may request: none before the first guest begins.
    pub asked: Budget,
    /// The routes and addresses that the guests may add; `None` until a guest adds some.
    routes: Option<Budget>,
    addresses: Option<Budget>,
    /// The host's links that a guest was shown: a result may name them.
    pub shown: BTreeSet<String>,
    /// The gate's refusals by policy, as the errors that end a verb. Only the latest refusals are kept.
    pub refusals: VecDeque<Error>,
    /// The errors of operations that failed because of the node. Only the latest errors are kept.
    faults: VecDeque<Error>,
}

impl Common {
    /// Notes an operation's error if it is a refusal by policy or a fault of the node. The refusal can concern the
    /// operation itself or an operation of a delegate.
    pub fn note(&mut self, error: &OpError) {
        let is_denied = error.delegate.as_ref().map_or(error.code == ErrorCode::Denied, |own| own.code == DENIED);
        let kept = match error.code {
            _ if is_denied => &mut self.refusals,
            ErrorCode::Denied | ErrorCode::InvalidArgument | ErrorCode::InvalidHandle | ErrorCode::Delegate => return,
            ErrorCode::NotFound
            | ErrorCode::Exists
            | ErrorCode::Unsupported
            | ErrorCode::Exhausted
            | ErrorCode::TryAgain
            | ErrorCode::Deadline
            | ErrorCode::Mismatch
            | ErrorCode::Kernel
            | ErrorCode::Io => &mut self.faults,
        };
        kept.truncate(MOST_ERRORS - 1);
        kept.push_front(error.clone().into());
    }

    /// True if a guest's error has the message of a fault of the node.
    pub fn is_fault(&self, error: &Error) -> bool {
        self.faults.iter().any(|fault| error.msg.contains(&fault.msg))
    }

    /// Reserves routes through a link of the container.
    pub fn add_routes(&mut self, link: &str, wanted: usize) -> Result<(), OpError> {
        self.routes.get_or_insert(Budget::new(MOST_ROUTES)).spend(wanted).map_err(|most| {
            OpError::new(ErrorCode::Exhausted, link, format!("{wanted} routes are too many: a run may add {most}"))
                .hint("merge adjacent routes")
        })
    }

    /// Reserves addresses on a link of the container.
    pub fn add_addresses(&mut self, link: &str, wanted: usize) -> Result<(), OpError> {
        self.addresses.get_or_insert(Budget::new(MOST_ADDRESSES)).spend(wanted).map_err(|most| {
            OpError::new(ErrorCode::Exhausted, link, format!("{wanted} addresses are too many: a run may add {most}"))
        })
    }
}

/// A number of things that may still be used. The default is zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    spent: usize,
    most: usize,
}

impl Budget {
    /// Makes a budget of this size.
    pub fn new(most: usize) -> Self {
        Self { spent: 0, most }
    }

    /// Takes `more` of the budget. If `more` exceeds the rest, nothing is taken, and the error is the size of the
    /// budget.
    pub fn spend(&mut self, more: usize) -> Result<(), usize> {
        let spent = self.spent.saturating_add(more);
        if spent > self.most {
            return Err(self.most);
        }
        self.spent = spent;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_gone() {
        let mut budget = Budget::new(10);
        assert_eq!(budget.spend(7), Ok(()));
        assert_eq!(budget.spend(4), Err(10));
        assert_eq!(budget.spend(usize::MAX), Err(10));
        assert_eq!(budget.spend(3), Ok(()));
        assert_eq!((budget.spend(1), budget.spend(0)), (Err(10), Ok(())));
        assert_eq!(Budget::default().spend(1), Err(0));
    }
}
