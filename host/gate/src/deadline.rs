//! The time of a run. Its last part is reserved for cleaning up: a run that went past its deadline must not leave its rules.

use postern_types::{ErrorCode, OpError};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time that a guest has to end after an operation gave up a wait.
const MARGIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Deadline {
    /// The time after which no operation starts or continues. While the run cleans up, it is `end`.
    at: Cell<Instant>,
    end: Instant,
}

impl Deadline {
    /// Makes the deadline of a run that ends at `end`, with this share for cleaning up.
    pub fn new(end: Instant, for_cleanup: Duration) -> Self {
        Self { at: Cell::new(end.checked_sub(for_cleanup).unwrap_or(end)), end }
    }

    /// Returns the time after which no operation starts or continues.
    pub fn at(&self) -> Instant {
        self.at.get()
    }

    /// Fails with [`ErrorCode::Deadline`] if no time is left. It is called before each operation, and before each step of a
    /// long one.
    pub fn in_time(&self) -> Result<(), OpError> {
        if Instant::now() >= self.at() {
            return Err(OpError::new(ErrorCode::Deadline, "", "the deadline of this run has passed"));
        }
        Ok(())
    }

    /// Returns the time at which an operation gives up a wait. The guest gets the error, which names what was waited for, and
    /// ends before the deadline of the run.
    pub fn answer_by(&self) -> Instant {
        let left = self.at().saturating_duration_since(Instant::now());
        self.at().checked_sub(MARGIN.min(left / 4)).unwrap_or(self.at())
    }

    /// Gives the reserved time to cleaning up. Returns the previous deadline for [`Deadline::set`]: work that follows must not
    /// use up that time.
    pub fn allow_cleanup(&self) -> Instant {
        self.at.replace(self.end)
    }

    /// Sets the time after which no operation starts or continues.
    pub fn set(&self, at: Instant) {
        // The packet filter's socket gets it at its next use.
        self.at.set(at);
    }
}
