//! What all guests of a run may use up together: a delegate is started anew at each call, so that what is counted for one
//! start of one guest has no end.

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
