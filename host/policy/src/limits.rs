//! `[limits]`: the limits of a run, each with a default, a least and a greatest value.

use super::error::LimitError;
use crate::prelude::*;
use core::time::Duration;
use serde::Deserialize;

macro_rules! limits {
    ($($(#[$doc:meta])* $key:ident: $default:literal in $least:literal..=$most:literal),* $(,)?) => {
        /// The limits of a run.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct Limits { $($key: Option<u32>),* }

        impl Limits {
            $($(#[$doc])* pub fn $key(&self) -> u32 { self.$key.unwrap_or($default) })*

            /// Takes the limits that `operator` sets.
            pub fn replace_with(&mut self, operator: &Self) {
                $(self.$key = operator.$key.or(self.$key);)*
            }

            /// Returns every limit: its key, its value, and true if a file sets it.
            pub fn list(&self) -> Vec<(String, u32, bool)> {
                vec![$((stringify!($key).replace('_', "-"), self.$key(), self.$key.is_some())),*]
            }

            /// Checks that each limit is in its possible range.
            ///
            /// # Errors
            /// A limit is outside of its possible range.
            pub fn check(&self) -> Result<(), LimitError> {
                $(if !($least..=$most).contains(&self.$key()) {
                    let key = stringify!($key).replace('_', "-");
                    return Err(LimitError { key, value: self.$key(), least: $least, most: $most });
                })*
                Ok(())
            }
        }
    };
}

limits! {
    /// Seconds from the start of the process to the end of the run, with waits and cleaning up. Runtimes such as
    /// kubelet wait for two minutes. They must get the error earlier.
    seconds: 90 in 1..=3600,
    /// Operations of one guest in one run.
    operations: 4096 in 0..=1_000_000,
    /// Handles to links and bridges that one guest can hold.
    handles: 64 in 0..=65536,
    /// Linear memory of one guest, in MiB.
    memory_mib: 64 in 1..=256,
    /// Entries of all function tables of one guest.
    tables: 131_072 in 0..=10_000_000,
    /// Resources of the component model that one guest holds at one time: options, links, streams.
    resources: 4096 in 16..=1_000_000,
    /// The greatest amount of data that one call may pass out of the guest, in KiB.
    call_kib: 1024 in 1..=1024,
    /// Standard output of one guest, in KiB.
    stdout_kib: 1024 in 1..=1024,
    /// Standard error of one guest, in KiB. More is dropped, and a message says so.
    stderr_kib: 64 in 0..=1024,
    /// The greatest depth of delegates, counted from the plugin that the runtime called.
    depth: 3 in 0..=8,
}

/// The longest time that is reserved for cleaning up.
const CLEANUP: Duration = Duration::from_secs(15);

impl Limits {
    /// Returns the longest time of a run, with cleaning up.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds().into())
    }

    /// Returns the part of a run's time that is reserved for cleaning up: a quarter, and at most 15 seconds.
    pub fn cleanup(&self) -> Duration {
        CLEANUP.min(self.time() / 4)
    }

    /// Returns the limits that the sandbox enforces.
    pub fn of_guest(&self) -> postern_types::GuestLimits {
        let bytes = |number: u32, shift: u32| usize::try_from(u64::from(number) << shift).unwrap_or(usize::MAX);
        postern_types::GuestLimits {
            memory: bytes(self.memory_mib(), 20),
            tables: bytes(self.tables(), 0),
            resources: bytes(self.resources(), 0),
            call: bytes(self.call_kib(), 10),
            stdout: bytes(self.stdout_kib(), 10),
            stderr: bytes(self.stderr_kib(), 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_sandbox() {
        assert_eq!(Limits::default().of_guest(), postern_types::GuestLimits::default());
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn a_part_of_the_time_is_kept_for_cleaning_up() {
        let of = |seconds| Limits { seconds: Some(seconds), ..Limits::default() };
        assert_eq!(of(2).cleanup(), Duration::from_millis(500));
        assert_eq!((of(40).cleanup(), of(3600).cleanup()), (Duration::from_secs(10), CLEANUP));
        // A runtime that gives up after two minutes must get the error earlier.
        assert!(Limits::default().time() <= Duration::from_secs(100));
    }

    #[test]
    fn says_what_is_possible() {
        let limits = Limits { memory_mib: Some(0), ..Limits::default() };
        assert!(limits.check().unwrap_err().to_string().contains("memory-mib = 0: it can be 1 to 256"));
    }

    #[test]
    fn an_operator_replaces_single_limits() {
        let mut limits = Limits { seconds: Some(5), depth: Some(1), ..Limits::default() };
        limits.replace_with(&Limits { seconds: Some(7), ..Limits::default() });
        assert_eq!((limits.seconds(), limits.depth(), limits.handles()), (7, 1, 64));
    }
}
