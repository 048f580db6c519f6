//! The output of a client's step. A client that an attacker controls may print anything. The service keeps the output
//! in memory and on disk as long as the lease lasts. So each part has a limit.

use postern_dhcp::{Lease, Outcome, Output};
use serde::Serialize;

/// The longest output, in bytes: state, lease, and one or two packets. The largest real outputs have 20 KiB.
pub const LONGEST: usize = 64 << 10;

/// The longest state. The state of Postern's client has 200 to 1,200 bytes.
const LONGEST_STATE: usize = 2 << 10;

/// The longest lease. A message of 1,500 bytes, which is the longest that a client takes (option 57), has room for
/// routes of 15 KiB.
const LONGEST_LEASE: usize = 16 << 10;

/// The most entries of each list in a lease. The gate takes 128 routes.
const MOST_ENTRIES: usize = 256;

/// The longest reason of a failure. A longer text is cut, and not refused, so that the lease still ends.
const LONGEST_REASON: usize = 1 << 10;

/// Reads the output of a step. An error is the rest of a sentence about the client.
pub fn read(text: &str) -> Result<Output, String> {
    if text.len() > LONGEST {
        return Err(format!("printed {} bytes, and the result of a step has at most {LONGEST}", text.len()));
    }
    let mut output: Output =
        serde_json::from_str(text).map_err(|error| cut(&format!("printed invalid output: {error}")))?;
    check_length("state", &output.state, LONGEST_STATE)?;
    match &mut output.outcome {
        Some(Outcome::Bound { lease, .. } | Outcome::Kept { lease }) => check_lease(lease)?,
        Some(Outcome::Lost { reason } | Outcome::Failed { reason }) => *reason = cut(reason),
        Some(Outcome::Ended) | None => {}
    }
    Ok(output)
}

/// Returns the beginning of a text from the client.
pub fn cut(words: &str) -> String {
    let (short, rest) = words.split_at(words.floor_char_boundary(LONGEST_REASON));
    if rest.is_empty() { short.to_owned() } else { format!("{short}…") }
}

fn check_lease(lease: &Lease) -> Result<(), String> {
    let lists = [
        ("addresses", lease.addresses.len(), 1),
        ("routes", lease.routes.len(), MOST_ENTRIES),
        ("name servers", lease.dns.nameservers.len(), MOST_ENTRIES),
        ("domains", lease.dns.search.len(), MOST_ENTRIES),
    ];
    for (what, count, most) in lists {
        if count > most {
            return Err(format!("gave a lease with {count} {what}, and a lease may have {most}"));
        }
    }
    check_length("lease", lease, LONGEST_LEASE)
}

fn check_length(what: &str, part: &impl Serialize, most: usize) -> Result<(), String> {
    let length = serde_json::to_vec(part).map_or(usize::MAX, |text| text.len());
    if length > most {
        return Err(format!("gave a {what} of {length} bytes, and a {what} may have {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bound(lease: &Value) -> Value {
        json!({"state": {}, "outcome": {"bound": {"lease": lease, "probe": true}}})
    }

    fn lease(more: &Value) -> Value {
        let mut lease = json!({"addresses": [{"address": "10.5.0.7/24"}], "seconds": 60, "t1": 30, "t2": 50});
        lease.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        lease
    }

    /// The largest lease that fits into a message of 1,500 bytes, and the longest state.
    #[test]
    fn what_real_leases_need_passes() {
        let route = json!({"dst": "255.0.0.0/8", "gw": "255.255.255.255", "priority": u32::MAX});
        for more in [
            json!({"routes": vec![route; 205]}),
            json!({"dns": {"nameservers": vec!["255.255.255.255"; 256]}}),
            json!({"dns": {"search": vec!["a".repeat(60); 200]}}),
        ] {
            let output = read(&bound(&lease(&more)).to_string());
            assert!(output.is_ok(), "{output:?}");
        }
        assert!(read(&json!({"state": {"server": "f".repeat(1200)}}).to_string()).is_ok());
    }

    #[test]
    fn more_is_refused_in_words() {
        let address = json!({"address": "10.5.0.7/24"});
        for (output, words) in [
            (json!({"state": "x".repeat(LONGEST)}), "printed 65548 bytes, and the result of a step has at most 65536"),
            (json!({"state": vec![0; 1100]}), "gave a state of 2201 bytes, and a state may have 2048"),
            (
                bound(&lease(&json!({"addresses": [address, address]}))),
                "gave a lease with 2 addresses, and a lease may have 1",
            ),
            (bound(&lease(&json!({"routes": vec![json!({"dst": "::/0"}); 257]}))), "257 routes"),
            (bound(&lease(&json!({"dns": {"nameservers": vec!["::"; 257]}}))), "257 name servers"),
            (bound(&lease(&json!({"dns": {"search": vec![""; 257]}}))), "257 domains"),
            (bound(&lease(&json!({"dns": {"domain": "x".repeat(17 << 10)}}))), "gave a lease of"),
            (json!("nonsense"), "printed invalid output"),
        ] {
            let refused = read(&output.to_string()).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        let kept =
            json!({"state": {}, "outcome": {"kept": {"lease": lease(&json!({"dns": {"search": vec![""; 257]}}))}}});
        assert!(read(&kept.to_string()).is_err());
    }

    #[test]
    fn words_are_cut() {
        for outcome in ["lost", "failed"] {
            let output = json!({"state": {}, "outcome": {outcome: {"reason": "ä".repeat(9000)}}});
            let Some(Outcome::Lost { reason } | Outcome::Failed { reason }) =
                read(&output.to_string()).unwrap().outcome
            else {
                panic!("{outcome}");
            };
            assert_eq!(reason, "ä".repeat(512) + "…");
        }
        assert_eq!(cut("short"), "short");
        let nonsense = read(&json!({"state": {}, "outcome": "x".repeat(60_000)}).to_string()).unwrap_err();
        assert!(nonsense.len() < 2000, "{}", nonsense.len());
    }
}
