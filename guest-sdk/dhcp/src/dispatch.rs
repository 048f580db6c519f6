//! Passes an [`Input`] to the client of its IP family; [`answer`] does this with JSON.

use crate::{Input, Outcome, Output, State, v4, v6};

/// Takes one step for one lease.
pub fn step(input: &Input) -> Output {
    match input.client.family {
        4 => v4::step(input),
        6 => v6::step(input),
        family => {
            let reason = format!("dhcp: there is no DHCP client for family {family}");
            Output {
                state: State(serde_json::Value::Null),
                send: Vec::new(),
                wake_ms: None,
                outcome: Some(Outcome::Failed { reason }),
            }
        }
    }
}

/// Reads one [`Input`] as JSON, and returns the [`Output`] as JSON.
///
/// # Errors
/// The text is no `Input`, because the service has another version.
pub fn answer(input: &[u8]) -> Result<String, String> {
    let input: Input = serde_json::from_slice(input).map_err(|error| format!("dhcp: unreadable step: {error}"))?;
    serde_json::to_string(&step(&input)).map_err(|error| format!("dhcp: the answer can't be written: {error}"))
}
