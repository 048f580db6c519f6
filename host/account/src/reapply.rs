//! Rules of living attachments that another program wiped: `nft flush ruleset`, a restored set of iptables rules, a
//! reloaded firewall.
//!
//! [`find`] compares records and kernel as `postern doctor` does, and changes nothing. [`run`] puts the rules of one
//! attachment back, as its record lists them. Links, addresses and routes are not touched.

use crate::attachment::{Account, REAPPLY, State};
use crate::node_state;
use postern_gate::effect::Effect;
use postern_gate::places::Places;
use postern_gate::upkeep::{Reapplied, SharedNft, Upkeep};
use postern_state::{Header, Record, StateError};
use std::time::{Duration, Instant};

/// The longest time for the look at the node.
const LOOK_WITHIN: Duration = Duration::from_secs(30);
/// The longest time for the rules of one attachment.
const WITHIN: Duration = Duration::from_secs(30);

/// The result of [`find`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Attachments with missing rules, each with sentences about the missing rules.
    pub wiped: Vec<(Header, Vec<String>)>,
    /// Attachments that stay as they are, each with the reason.
    pub skipped: Vec<(Header, String)>,
    /// Rules that can't be looked at, and so may be missing.
    pub problems: Vec<String>,
    /// The number of attachments without missing rules.
    pub complete: usize,
}

/// Looks for attachments with missing rules. Changes nothing.
///
/// # Errors
/// A text for people: records or kernel can't be looked at.
pub fn find(places: &Places) -> Result<Report, String> {
    let (_, accounts) = node_state::settled(places, LOOK_WITHIN)?;
    let mut report = Report::default();
    for account in accounts? {
        let Some(header) = account.header.clone() else { continue };
        let wiped = wiped(&account);
        if matches!(account.state, State::Ok | State::Drift) {
            let name = format!("{}/{}/{}", header.network, header.container_id, header.ifname);
            report.problems.extend(account.unseen.iter().map(|what| format!("{name}: {what}")));
        }
        match account.state {
            State::Ok | State::Drift if !wiped.is_empty() => report.wiped.push((header, wiped)),
            State::Ok | State::Drift => report.complete += usize::from(account.unseen.is_empty()),
            State::Stuck | State::Incomplete => {
                report.skipped.push((header, "a run for this attachment is under way, or was killed".to_owned()));
            }
            // The rules of these attachments can't be put back: `postern gc` and DEL remove them.
            State::Replaced | State::ContainerGone | State::PreviousBoot | State::Damaged | State::Held => {}
        }
    }
    Ok(report)
}

fn wiped(account: &Account) -> Vec<String> {
    let wiped = account.deviations.iter().filter(|deviation| deviation.remedy == REAPPLY);
    wiped.map(|deviation| deviation.what.clone()).collect()
}

/// Puts back the rules of one attachment. Returns the effects whose rules were missing; none if a run has begun for the
/// attachment meanwhile.
///
/// # Errors
/// A text for people for each effect whose rules are still missing.
pub fn run(places: &Places, header: &Header, nft: &SharedNft) -> Result<Vec<Effect>, Vec<String>> {
    let record = match Record::<Effect>::open_existing(&places.state, &header.key(), Instant::now()) {
        Ok(Some(record)) if record.header() == header => record,
        Ok(_) | Err(StateError::Locked { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(vec![error.to_string()]),
    };
    let upkeep = Upkeep::of(record, Instant::now() + WITHIN, places, nft);
    let outcomes = upkeep.reapply().map_err(|error| vec![error.to_string()])?;
    let (mut restored, mut failed) = (Vec::new(), Vec::new());
    for (effect, outcome) in outcomes {
        match outcome {
            Ok(Reapplied::Restored) => restored.push(effect),
            Ok(Reapplied::NoRules | Reapplied::Complete) => {}
            Err(error) => failed.push(format!("{}: {error}", effect.words())),
        }
    }
    if failed.is_empty() { Ok(restored) } else { Err(failed) }
}
