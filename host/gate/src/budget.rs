//! What all guests of a run may use up together: a delegate is started anew at each call, so that what is counted for one
//! start of one guest has no end.

use postern_types::{ErrorCode, OpError};
use std::collections::BTreeSet;

/// Routes in one run: each takes the kernel's time and memory, which a container has for nothing.
pub const MOST_ROUTES: usize = 1024;

/// Addresses in one run.
pub const MOST_ADDRESSES: usize = 256;

/// What the guests of one run have in common.
#[derive(Debug)]
pub struct Common {
    /// Operations that they may ask for: none before the first of them begins.
    pub asked: Budget,
    routes: Budget,
    addresses: Budget,
    /// Host links that were shown to one of them: what a result may name.
    pub shown: BTreeSet<String>,
}

impl Default for Common {
    fn default() -> Self {
        let (routes, addresses) = (Budget::new(MOST_ROUTES), Budget::new(MOST_ADDRESSES));
        Self { asked: Budget::default(), routes, addresses, shown: BTreeSet::new() }
    }
}

impl Common {
    /// Takes room for routes through a link of the container.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn add_routes(&mut self, link: &str, wanted: usize) -> Result<(), OpError> {
        self.routes.spend(wanted).map_err(|most| {
            OpError::new(ErrorCode::Exhausted, link, format!("{wanted} routes are too many: a run may add {most}"))
                .hint("join routes that lie side by side")
        })
    }

    /// Takes room for addresses on a link of the container.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn add_addresses(&mut self, link: &str, wanted: usize) -> Result<(), OpError> {
        self.addresses.spend(wanted).map_err(|most| {
            OpError::new(ErrorCode::Exhausted, link, format!("{wanted} addresses are too many: a run may add {most}"))
        })
    }
}

/// Room for a number of things. The default has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    spent: usize,
    most: usize,
}

impl Budget {
    /// Room for so many.
    pub fn new(most: usize) -> Self {
        Self { spent: 0, most }
    }

    /// Takes `more` of it.
    ///
    /// # Errors
    /// How many there may be: these are more. Nothing is taken then.
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
