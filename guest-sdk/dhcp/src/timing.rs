//! The times of a lease, and the waits between packets.

use crate::INFINITE;
use crate::Timeouts;

/// The shortest lease that the client accepts, in seconds. Each renewal costs a packet and a process of the sandbox, so
/// a server must not be able to force many renewals.
pub const SHORTEST: u32 = 4;

/// The lease time if a server names none, as in the native client.
pub const DEFAULT: u32 = 3600;

/// The times of a lease, in seconds: `t1 <= t2 <= lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub seconds: u32,
    pub t1: u32,
    pub t2: u32,
}

impl Times {
    /// Returns the times that a server wants. A default replaces an invalid time. The defaults are those of the native
    /// client: half of the lease, and 85 % of the lease. Zero counts as absent, because with zero the native client
    /// would renew without a pause.
    pub fn of(lease: u32, t1: Option<u32>, t2: Option<u32>) -> Self {
        Self::by(lease, lease, 85, t1, t2)
    }

    /// Works as [`Times::of`], for DHCPv6: the defaults are half and four fifths of the preferred lifetime (RFC 8415,
    /// 21.4).
    pub fn of_v6(valid: u32, preferred: u32, t1: u32, t2: u32) -> Self {
        Self::by(valid, preferred, 80, Some(t1), Some(t2))
    }

    fn by(lease: u32, base: u32, percent: u64, t1: Option<u32>, t2: Option<u32>) -> Self {
        if lease == INFINITE {
            return Self { seconds: lease, t1: lease, t2: lease };
        }
        let base = base.min(lease);
        let half = base / 2;
        let most = u32::try_from(u64::from(base) * percent / 100).unwrap_or(base);
        // Without a minimum, renewals could flood the link.
        let soonest = (lease / 2).min(SHORTEST / 2);
        let t2 = t2.filter(|t2| (1..=lease).contains(t2)).unwrap_or(most).max(soonest);
        let t1 = t1.filter(|t1| (1..=t2).contains(t1)).unwrap_or(half.min(t2)).max(soonest);
        Self { seconds: lease, t1, t2 }
    }
}

/// The number of packets that are followed by a short wait.
const FAST: u32 = 4;

/// Returns the wait after packet number `sent`, counted from 1: 2 s after each of the first four packets, then 4 s, 8
/// s, and so on. Each wait is up to a second shorter or longer.
pub fn wait(sent: u32, timeouts: &Timeouts, random: u64) -> u64 {
    let base = match sent.checked_sub(FAST + 1) {
        None => 2_000,
        Some(doublings) => 4_000_u64.checked_shl(doublings.min(30)).unwrap_or(u64::MAX),
    };
    let jitter = (random >> 32) % 2_000;
    (base.saturating_add(jitter).saturating_sub(1_000)).min(timeouts.resend_max_ms).max(SOONEST_MS)
}

/// Returns the wait between two packets of a renewal: half of the remaining time, but at least a minute (RFC 2131,
/// 4.4.5). For a short lease, the minimum is a quarter of the whole time, but at least two seconds.
pub fn renewal_wait(left_ms: u64, whole_ms: u64, random: u64) -> u64 {
    let least = (whole_ms / 4).clamp(2_000, 60_000);
    let wait = (left_ms / 2).max(least);
    // A tenth more or less, so that leases of the same moment are not always renewed together.
    let jitter = (random >> 32) % (wait / 5).max(1);
    (wait.saturating_sub(wait / 10).saturating_add(jitter)).max(SOONEST_MS)
}

/// The shortest wait, whatever the settings are.
const SOONEST_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_a_lease() {
        for (lease, t1, t2, expected) in [
            (3600, None, None, (1800, 3060)),
            (3600, Some(600), Some(1200), (600, 1200)),
            // Times of zero, too long, and in the wrong order.
            (3600, Some(0), Some(0), (1800, 3060)),
            (3600, Some(4000), Some(4000), (1800, 3060)),
            (3600, Some(3000), Some(2000), (1800, 2000)),
            (3600, None, Some(1000), (1000, 1000)),
            (3600, Some(1), Some(1), (2, 2)),
            (4, Some(1), Some(2), (2, 2)),
            (u32::MAX - 1, None, None, (0x7fff_ffff, 3_650_722_199)),
            (INFINITE, Some(10), None, (INFINITE, INFINITE)),
        ] {
            let times = Times::of(lease, t1, t2);
            assert_eq!((times.t1, times.t2), expected, "{lease} {t1:?} {t2:?}");
        }
    }

    #[test]
    fn waits_are_those_of_the_native_client() {
        let timeouts = Timeouts::default();
        // The least and the most of the jitter.
        for (sent, least) in
            [(1, 1_000), (4, 1_000), (5, 3_000), (6, 7_000), (7, 15_000), (8, 31_000), (9, 62_000), (400, 62_000)]
        {
            assert_eq!(wait(sent, &timeouts, 0), least.min(62_000), "{sent}");
            assert_eq!(wait(sent, &timeouts, 1_999 << 32), (least + 1_999).min(62_000), "{sent}");
        }
    }

    #[test]
    fn renewals_come_closer() {
        let middle = |wait: u64| (wait / 10) << 32;
        assert_eq!(renewal_wait(1_260_000, 1_260_000, middle(630_000)), 630_000);
        assert_eq!(renewal_wait(100_000, 1_260_000, middle(60_000)), 60_000);
        assert_eq!(renewal_wait(7_000, 7_000, middle(3_500)), 3_500);
        assert_eq!(renewal_wait(0, 7_000, middle(2_000)), 2_000);
    }

    proptest! {
        #[test]
        fn times_are_in_order(lease in SHORTEST.., preferred: u32, t1: u32, t2: u32) {
            for times in [Times::of(lease, Some(t1), Some(t2)), Times::of_v6(lease, preferred, t1, t2)] {
                prop_assert!(times.t1 >= 2 && times.t1 <= times.t2 && times.t2 <= times.seconds, "{times:?}");
            }
        }

        #[test]
        fn no_wait_is_a_flood(sent: u32, request_ms: u64, resend_max_ms: u64, random: u64, left: u64, whole: u64) {
            let timeouts = Timeouts { request_ms, resend_max_ms, resend_ms: 1 };
            prop_assert!(wait(sent, &timeouts, random) >= SOONEST_MS);
            prop_assert!(renewal_wait(left, whole, random) >= 1_800);
        }
    }
}
