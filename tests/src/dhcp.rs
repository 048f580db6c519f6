//! A DHCP service that a test plays, at the socket of the real service. It speaks the same protocol as the real
//! service.

use crate::Node;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// The socket, as seen on the node.
pub const SOCKET: &str = "/run/cni/dhcp.sock";

/// Plays a service: `answer` gets each request and returns the reply. It may delay the reply.
///
/// # Errors
/// The socket can't be made.
pub fn play(node: &Node, answer: impl Fn(Value) -> Value + Send + Sync + 'static) -> Result<()> {
    node.sh(&format!("mkdir -p -m 700 /run/cni; rm -f {SOCKET}"))?;
    let listener = UnixListener::bind(node.path(SOCKET))?;
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve(stream, answer.as_ref()));
        }
    });
    Ok(())
}

/// Serves one connection. An error ends the connection.
fn serve(mut stream: UnixStream, answer: &impl Fn(Value) -> Value) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    while !lines.next()?.ok()?.is_empty() {}
    stream.write_all(b"HTTP/1.0 200 Connected to Postern\r\n\r\n").ok()?;
    for line in lines {
        let answer = answer(serde_json::from_str(&line.ok()?).ok()?);
        stream.write_all(format!("{answer}\n").as_bytes()).ok()?;
    }
    Some(())
}

/// Returns the service's answer with a lease.
pub fn lease(address: &str, gateway: &str) -> Value {
    json!({"lease": {
        "addresses": [{"address": address, "gateway": gateway}],
        "routes": [{"dst": "0.0.0.0/0", "gw": gateway}],
        "seconds": 3600, "t1": 1800, "t2": 3150,
    }})
}

/// The leases of a service that gives container `cN` the address 10.9.0.N+40/24 until a run releases the lease.
#[derive(Debug, Default)]
pub struct Leases {
    held: Mutex<BTreeMap<String, String>>,
    early: Mutex<Vec<String>>,
    /// The directory of the containers' namespaces.
    watched: Option<PathBuf>,
}

impl Leases {
    /// Starts this service.
    ///
    /// # Errors
    /// The errors of [`play`].
    pub fn serve(node: &Node) -> Result<Arc<Self>> {
        Self::start(node, Self::default())
    }

    /// Works as [`Leases::serve`]. At each release, the service checks whether a link still has the address.
    ///
    /// # Errors
    /// The errors of [`play`].
    pub fn serve_watching(node: &Node) -> Result<Arc<Self>> {
        Self::start(node, Self { watched: Some(node.path("/run/netns")), ..Self::default() })
    }

    fn start(node: &Node, leases: Self) -> Result<Arc<Self>> {
        let own = Arc::new(leases);
        let leases = Arc::clone(&own);
        play(node, move |ask| leases.answer(&ask).unwrap_or_else(|| refused("the ask is malformed")))?;
        Ok(own)
    }

    /// Returns the address of each container that has a lease.
    pub fn held(&self) -> BTreeMap<String, String> {
        self.held.lock().map(|held| held.clone()).unwrap_or_default()
    }

    /// Returns the addresses that were released since the last call although a link still had them.
    pub fn given_back_early(&self) -> Vec<String> {
        self.early.lock().map(|mut early| std::mem::take(&mut *early)).unwrap_or_default()
    }

    fn answer(&self, ask: &Value) -> Option<Value> {
        let mut held = self.held.lock().ok()?;
        let Some((kind, attachment)) = ask.as_object().and_then(|ask| ask.iter().next()) else {
            let listed = held.iter().map(|(container, address)| {
                let lease = lease(&format!("{address}/24"), "10.9.0.1").get("lease").cloned();
                json!({"container_id": container, "network": "net", "ifname": "eth0", "standing": "bound",
                    "netns": format!("/run/netns/{container}"), "lease": lease, "seconds_left": 3600})
            });
            return Some(match ask.as_str()? {
                "leases" => json!({"leases": listed.collect::<Vec<_>>()}),
                _ => json!("done"),
            });
        };
        let container = attachment.get("container_id")?.as_str()?.to_owned();
        Some(match kind.as_str() {
            "release" => {
                if let Some(address) = held.remove(&container)
                    && self.watched.as_ref().is_some_and(|watched| uses(&watched.join(&container), &address))
                {
                    self.early.lock().ok()?.push(format!("{address} of {container}"));
                }
                json!("done")
            }
            "acquire" => {
                let number: u8 = container.trim_start_matches('c').parse().ok()?;
                let address = held.entry(container).or_insert_with(|| format!("10.9.0.{}", number.saturating_add(40)));
                lease(&format!("{address}/24"), "10.9.0.1")
            }
            _ => match held.get(&container) {
                Some(address) => lease(&format!("{address}/24"), "10.9.0.1"),
                None => refused("the service keeps no lease for it"),
            },
        })
    }
}

fn refused(words: &str) -> Value {
    json!({"refused": {"code": 999, "words": words, "details": ""}})
}

/// True if a link of the namespace has the address.
fn uses(namespace: &PathBuf, address: &str) -> bool {
    let mut option = std::ffi::OsString::from("--net=");
    option.push(namespace);
    let shown = Command::new("nsenter").arg(option).args(["ip", "-o", "address"]).output();
    shown.is_ok_and(|shown| String::from_utf8_lossy(&shown.stdout).contains(&format!(" {address}/")))
}
