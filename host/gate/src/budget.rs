//! The limits of all guests of a run together. A delegate is started again at each call: a limit for one start of one
//! guest would limit nothing.

use postern_types::{ErrorCode, OpError};
use std::collections::BTreeSet;

/// The most routes in one run. Each takes time and memory of the kernel, without cost to the container.
pub const MOST_ROUTES: usize = 1024;

/// The most addresses in one run.
pub const MOST_ADDRESSES: usize = 256;

/// The state that all guests of one run share.
#[derive(Debug)]
pub struct Common {
    /// The operations that they may request: none before the first guest begins.
    pub asked: Budget,
    routes: Budget,
    addresses: Budget,
    /// The host links that were shown to one of them: a result may name them.
    pub shown: BTreeSet<String>,
}

impl Default for Common {
    fn default() -> Self {
        let (routes, addresses) = (Budget::new(MOST_ROUTES), Budget::new(MOST_ADDRESSES));
        Self { asked: Budget::default(), routes, addresses, shown: BTreeSet::new() }
    }
}

impl Common {
    /// Reserves routes through a link of the container.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn add_routes(&mut self, link: &str, wanted: usize) -> Result<(), OpError> {
        self.routes.spend(wanted).map_err(|most| {
            OpError::new(ErrorCode::Exhausted, link, format!("{wanted} routes are too many: a run may add {most}"))
                .hint("join routes that lie side by side")
        })
    }

    /// Reserves addresses on a link of the container.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn add_addresses(&mut self, link: &str, wanted: usize) -> Result<(), OpError> {
        self.addresses.spend(wanted).map_err(|most| {
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

    /// Takes `more` of the budget.
    ///
    /// # Errors
    /// The size of the budget, if `more` exceeds the rest. Nothing is taken then.
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
