//! A client of the DHCP service whose output is the key `script` of the network's configuration. If `script` has the
//! key `packet`, the client prints the value of `packet` at the first packet. The `state` in this value must differ
//! from `{}`, the state before the first packet.

use postern_dhcp::{Event, Input};
use serde_json::{Value, json};
use std::io::Read;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text).is_ok();
    let input = if read { serde_json::from_str::<Input>(&text).ok() } else { None };
    let Some(input) = input else { return ExitCode::FAILURE };
    let configuration: Value = serde_json::from_str(&input.client.configuration).unwrap_or_default();
    match configuration.get("script") {
        Some(Value::String(word)) if word == "loop" => loop {
            std::hint::black_box(());
        },
        Some(Value::String(word)) if word == "trap" => std::process::abort(),
        Some(Value::String(word)) if word == "call" => {
            let found = postern_guest::bridge::find("cni0");
            println!("{}", found.is_ok());
        }
        Some(Value::String(word)) => println!("{word}"),
        Some(script) => {
            let state = input.state.map_or_else(|| json!({}), |state| state.0);
            match (script.get("packet"), &input.event) {
                (None, _) => println!("{script}"),
                (Some(output), Event::Packet { .. }) if output.get("state") != Some(&state) => println!("{output}"),
                (Some(_), _) => println!("{}", json!({"state": state, "wake_ms": 60_000})),
            }
        }
        None => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}
