//! Budgets, which limit how often an event may happen.

/// A bucket of tokens, which fills again with time.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefillingBudget {
    /// The largest number of tokens.
    most: u64,
    /// The milliseconds until one more token.
    every_ms: u64,
    tokens: u64,
    /// The time of the last token that was added.
    filled_at: u64,
}

impl RefillingBudget {
    /// Makes a full bucket.
    pub const fn new(most: u64, every_ms: u64) -> Self {
        Self { most, every_ms, tokens: most, filled_at: 0 }
    }

    /// Takes a token. Returns false if no token is left.
    pub fn take(&mut self, now: u64) -> bool {
        let new = now.saturating_sub(self.filled_at) / self.every_ms.max(1);
        if new > 0 {
            self.tokens = self.tokens.saturating_add(new).min(self.most);
            self.filled_at = if self.tokens == self.most { now } else { self.filled_at + new * self.every_ms };
        }
        let has = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_a_rate() {
        let mut budget = RefillingBudget::new(3, 100);
        let mut taken = |from: u64, until: u64| (from..until).filter(|now| budget.take(*now)).count();
        assert_eq!(taken(10_000, 10_050), 3);
        assert_eq!(taken(10_050, 11_050), 10);
        // A pause fills the bucket, but not beyond its size.
        assert_eq!(taken(90_000, 90_001), 1);
        assert_eq!(taken(90_001, 90_050), 2);
    }
}
