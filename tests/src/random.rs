//! Random numbers (xorshift64*). A seed gives the same numbers on every machine.

/// A generator. It is only good enough to choose a test's steps.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Makes a generator. Neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(1);
        random
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let wide = u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(limit);
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// Returns an index into a list of this length; 0 if the list is empty.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    /// Returns true with a chance of `of_four` in four.
    pub fn chance(&mut self, of_four: u64) -> bool {
        self.below(4) < of_four
    }

    /// Returns an element of a list that is not empty.
    #[allow(clippy::expect_used, reason = "the lists of all tests have elements")]
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        *of.get(self.index(of.len())).expect("the list is empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_sequence() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(7).iter().all(|number| *number < 1000));
    }
}
