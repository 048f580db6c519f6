//! The time of a run. Its last part is reserved for cleaning up, because a run that exceeds its deadline must not leave
//! rules behind.

use postern_types::{ErrorCode, OpError};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time for a guest to end, after an operation gave up a wait.
const MARGIN: Duration = Duration::from_secs(1);

/// The deadline of a run.
#[derive(Debug)]
pub struct Deadline {
    /// The time after which no operation starts or continues. While the run cleans up, this time is `end`.
    at: Cell<Instant>,
    end: Instant,
}

impl Deadline {
    /// Makes the deadline of a run that ends at `end`, with the last part `for_cleanup`.
    pub fn new(end: Instant, for_cleanup: Duration) -> Self {
        Self { at: Cell::new(end.checked_sub(for_cleanup).unwrap_or(end)), end }
    }

    /// Returns the time after which no operation starts or continues.
    pub fn at(&self) -> Instant {
        self.at.get()
    }

    /// Fails with [`ErrorCode::Deadline`] if no time is left. This function is called before each operation, and before
    /// each step of a long operation.
    pub fn in_time(&self) -> Result<(), OpError> {
        if Instant::now() >= self.at() {
            return Err(OpError::new(ErrorCode::Deadline, "", "the deadline of this run has passed"));
        }
        Ok(())
    }

    /// Returns the time at which an operation gives up a wait. So the guest can report the error, with the reason of
    /// the wait, before the deadline of the run.
    pub fn answer_by(&self) -> Instant {
        let left = self.at().saturating_duration_since(Instant::now());
        self.at().checked_sub(MARGIN.min(left / 4)).unwrap_or(self.at())
    }

    /// Lets the cleanup use the reserved time. Returns the previous deadline for [`Deadline::set`]: later work must not
    /// use the reserved time.
    pub fn allow_cleanup(&self) -> Instant {
        self.at.replace(self.end)
    }

    /// Sets the time after which no operation starts or continues.
    pub fn set(&self, at: Instant) {
        // The packet filter's socket gets this time at its next use.
        self.at.set(at);
    }
}
