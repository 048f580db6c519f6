//! A host executable whose sandbox is under an attacker's control. The sandbox sends messages that a guest could send
//! after an escape from wasmtime.
//!
//! `tests/setup` places this program in `target/cni/test-bin` under the plugin name `rogue`. Gate, policy and catalog
//! are real; only the sandbox is different. The network's key `rogue` lists the steps of the sandbox. The sandbox
//! carries out these steps on the verb `on` (default: ADD), and ends with an error object at the first refusal.
//!
//! | step | what it does |
//! |---|---|
//! | `{"call": OPERATION}` | requests an operation, in the audit log's form, and reads the answer: code 110 for a denial, 999 for any other error |
//! | `{"try": OPERATION}` | requests an operation, and continues after any answer |
//! | `{"say": MESSAGE}` | sends a message that is no call, and expects no answer |
//! | `{"text": TEXT}` | sends one frame with this text, which is no message |
//! | `{"frame": [LENGTH, TEXT]}` | sends a length, and a text that may have another length |
//! | `{"drip": MS}` | announces 1000 bytes, and sends one byte every MS milliseconds |
//! | `{"times": N, "step": STEP}` | does a step N times; 0 means endlessly |
//! | `{"deep": N}`, `{"name": N}`, `{"sets": N}`, `{"routes": N}`, `{"vlans": N}` | sends a message of size N, which the network configuration could not hold |
//! | `{"sleep": MS}`, `{"hang": true}`, `{"leave": true}` | waits for MS milliseconds, waits until the gate ends, or exits |
//! | `{"print": TEXT}` | ends with success and TEXT on standard output |
//!
//! The sandbox sends an operation or message that the host does not know as JSON text.
//!
//! If `ROGUE_EARLY` is in the environment, the sandbox reports its end before the gate tells it to start.

use postern_gate::Engine;
use postern_types::channel::{MAX_MESSAGE, PACKET, receive_in_sandbox, send};
use postern_types::{Capability, ErrorCode, FromSandbox, OpError, Start, ToSandbox};
use serde_json::{Value, json};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

fn main() {
    let called = std::env::args().next().unwrap_or_default();
    let name = Path::new(&called).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let engine = Engine { main: |channel, _code| child(channel), fingerprint };
    std::process::exit(postern_gate::protocol::main(&name, engine).into());
}

/// Returns the catalog's fingerprint of the engine, so that the gate's comparison of fingerprints succeeds.
fn fingerprint() -> String {
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let manifest = std::fs::read(own.with_file_name("postern.d").join("rogue.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap_or_default();
    manifest.get("engine").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The continuation of the script.
enum NextStep {
    Next,
    End(FromSandbox),
}

fn child(channel: OwnedFd) -> ! {
    let line = UnixStream::from(channel);
    if std::env::var_os("ROGUE_EARLY").is_some() {
        finish(&line, &finished("{\"cniVersion\": \"1.1.0\", \"ips\": [{\"address\": \"10.66.6.6/24\"}]}", 0));
    }
    while let Ok(ToSandbox::Start(start) | ToSandbox::StartLast(start)) = receive_in_sandbox(&line, None) {
        let last = play(&line, &start);
        if send(&line, &last, None).is_err() {
            break;
        }
    }
    std::process::exit(0)
}

fn play(line: &UnixStream, start: &Start) -> FromSandbox {
    let config: Value = serde_json::from_str(&start.stdin).unwrap_or_default();
    let verb = start.env.iter().find(|(key, _)| key == "CNI_COMMAND").map(|(_, verb)| verb.as_str());
    if verb != Some(config.get("on").and_then(Value::as_str).unwrap_or("ADD")) {
        return finished("", 0);
    }
    for step in config.get("rogue").and_then(Value::as_array).into_iter().flatten() {
        if let NextStep::End(last) = follow(line, step) {
            return last;
        }
    }
    finished("{\"cniVersion\": \"1.1.0\"}", 0)
}

fn follow(line: &UnixStream, step: &Value) -> NextStep {
    // The keys are sorted, so `times` is behind `step`.
    let Some((key, value)) = step.as_object().and_then(|map| map.iter().next_back()) else { return NextStep::Next };
    let number = || usize::try_from(value.as_u64().unwrap_or_default()).unwrap_or_default();
    let pause = || Duration::from_millis(value.as_u64().unwrap_or_default());
    let text = value.as_str().unwrap_or_default();
    match key.as_str() {
        "call" => return ask(line, value),
        "try" => drop(ask(line, value)),
        "say" => frame(line, None, &message(value)),
        "text" => frame(line, None, text.as_bytes()),
        "frame" => {
            let length = value.get(0).and_then(Value::as_u64).and_then(|length| u32::try_from(length).ok());
            frame(line, length, value.get(1).and_then(Value::as_str).unwrap_or_default().as_bytes());
        }
        "drip" => {
            write(line, &1000_u32.to_le_bytes());
            loop {
                write(line, b" ");
                sleep(pause());
            }
        }
        "times" => {
            let Some(inner) = step.get("step") else { return NextStep::Next };
            for _ in 0..if number() == 0 { usize::MAX } else { number() } {
                if let NextStep::End(last) = follow(line, inner) {
                    return NextStep::End(last);
                }
            }
        }
        "deep" => frame(line, None, "[".repeat(number()).as_bytes()),
        "name" => return ask(line, &json!({"op": "bridge-find", "name": "b".repeat(number())})),
        "sets" => {
            let range = |at: usize| {
                let [_, high, middle, low] = u32::try_from(at * 4).unwrap_or_default().to_be_bytes();
                json!([{"subnet": format!("10.{high}.{middle}.{low}/30")}])
            };
            let sets: Vec<Value> = (0..number()).map(range).collect();
            return ask(line, &json!({"op": "leases-reserve", "sets": sets, "requested": []}));
        }
        "routes" => {
            let route = |at: usize| {
                let [_, high, middle, low] = u32::try_from(at).unwrap_or_default().to_be_bytes();
                json!({"dst": format!("11.{high}.{middle}.{low}/32")})
            };
            let routes: Vec<Value> = (0..number()).map(route).collect();
            return ask(line, &json!({"op": "routes-add", "link": 0, "routes": routes}));
        }
        "vlans" => {
            let port = json!({
                "hairpin": false, "isolated": false, "trunk": vec![7; number()], "preserve_default_vlan": false
            });
            return ask(line, &json!({"op": "bridge-attach", "bridge": 2, "host": 1, "port": port}));
        }
        "sleep" => sleep(pause()),
        // The sandbox ends when its gate is killed, so no process outlives the test.
        "hang" => {
            let gate = parent_id();
            while parent_id() == gate {
                sleep(Duration::from_millis(200));
            }
            std::process::exit(0);
        }
        "leave" => std::process::exit(0),
        "print" => return NextStep::End(finished(text, 0)),
        other => return NextStep::End(failed(999, &format!("the rogue knows no step \"{other}\""), "")),
    }
    NextStep::Next
}

/// Returns the bytes of a message in JSON. A call has its operation in the audit log's form.
fn message(json: &Value) -> Vec<u8> {
    match json.get("call") {
        Some(logged) if json.as_object().is_some_and(|keys| keys.len() == 1) => call(logged),
        _ => bytes(serde_json::from_value(json.clone()).ok(), json),
    }
}

/// Returns the bytes of a call. `logged` is the operation in the audit log's form: the key `op` has the name, and the
/// other keys are the fields.
fn call(logged: &Value) -> Vec<u8> {
    let op = logged.get("op").and_then(Value::as_str).unwrap_or_default();
    let mut rows = Capability::ALL.iter().flat_map(|of| of.rows().iter().map(move |row| (of.name(), row)));
    let known = rows.find(|(_, row)| row.log == op).and_then(|(of, row)| {
        let mut fields = logged.clone();
        fields.as_object_mut()?.remove("op");
        // An operation without fields has only its name.
        let forms = [json!({of: {row.function(): fields}}), json!({of: row.function()})];
        forms.into_iter().find_map(|form| serde_json::from_value(json!({"call": form})).ok())
    });
    bytes(known, logged)
}

fn bytes(known: Option<FromSandbox>, json: &Value) -> Vec<u8> {
    known.and_then(|known| postcard::to_allocvec(&known).ok()).unwrap_or_else(|| json.to_string().into_bytes())
}

/// Makes one call and reads its answer. A refusal ends the script.
fn ask(line: &UnixStream, logged: &Value) -> NextStep {
    let message = call(logged);
    if message.len() > MAX_MESSAGE {
        return NextStep::End(failed(999, "the test asks for a message that is too long", ""));
    }
    frame(line, None, &message);
    match receive_in_sandbox(line, None) {
        Ok(ToSandbox::Answer(Ok(_))) => NextStep::Next,
        Ok(ToSandbox::Answer(Err(OpError { code, operation, message, hint, delegate, .. }))) => {
            let code = if code == ErrorCode::Denied { 110 } else { 999 };
            let delegate = delegate.map(|error| format!("; {}: {}", error.msg, error.details)).unwrap_or_default();
            NextStep::End(failed(code, &format!("{operation}: {message}{delegate}"), &hint))
        }
        Ok(ToSandbox::Start(_) | ToSandbox::StartLast(_)) => NextStep::End(failed(999, "started twice", "")),
        Err(_) => std::process::exit(0),
    }
}

fn finished(stdout: &str, status: u8) -> FromSandbox {
    FromSandbox::Finished { stdout: stdout.to_owned(), status }
}

fn failed(code: u64, msg: &str, details: &str) -> FromSandbox {
    finished(&json!({"code": code, "msg": msg, "details": details}).to_string(), 1)
}

fn frame(line: &UnixStream, length: Option<u32>, bytes: &[u8]) {
    let length = length.unwrap_or_else(|| u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    write(line, &length.to_le_bytes());
    write(line, bytes);
}

/// Sends the bytes in pieces, a packet for each. The kernel refuses much longer packets.
fn write(mut line: &UnixStream, bytes: &[u8]) {
    for piece in bytes.chunks(PACKET) {
        if line.write_all(piece).is_err() {
            std::process::exit(0);
        }
    }
}

fn finish(line: &UnixStream, last: &FromSandbox) -> ! {
    let _ = send(line, last, None);
    std::process::exit(0)
}
