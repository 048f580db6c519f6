//! Days and times for people, in UTC.

use std::time::{Duration, UNIX_EPOCH};

/// Returns day and time of day of a number of milliseconds since 1970.
pub fn utc(milliseconds: u64) -> (String, String) {
    // The last second of the year 9999 is the last second that can be written.
    let time = UNIX_EPOCH + Duration::from_millis(milliseconds.min(253_402_300_799_000));
    let text = humantime::format_rfc3339_millis(time).to_string();
    let (day, time) = text.split_once('T').unwrap_or_default();
    (day.to_owned(), time.trim_end_matches('Z').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times() {
        assert_eq!(utc(0), ("1970-01-01".to_owned(), "00:00:00.000".to_owned()));
        assert_eq!(utc(1_795_266_000_123).0, "2026-11-21");
        assert_eq!(utc(1_709_164_799_999), ("2024-02-28".to_owned(), "23:59:59.999".to_owned()));
        assert_eq!(utc(u64::MAX).0, "9999-12-31");
    }
}
