//! The IPAM plugin dhcp with a simulated service: the requests of the host, the answers that the host believes,
//! and the leases that the host releases. `tests/tests/dhcp` tests the real service with real servers.

use anyhow::{Context, Result, ensure};
use postern_tests::dhcp::{lease, play};
use postern_tests::proof::Refusal;
use postern_tests::{Names, Network, Node, compare, copy_bin, flat, merge, plugin_bin};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A separate CNI bin directory of the node: a copy, so that its policies can be changed.
const BIN: &str = "/run/cni-bin";

/// The service's answer to `acquire` and `check`. `None` means no answer.
type Script = Arc<Mutex<Option<Value>>>;

/// A service that gives the answers of its script, and notes the requests.
struct Service {
    script: Script,
    asked: Arc<Mutex<Vec<Value>>>,
    /// The service's answer to a request for all leases.
    listed: Arc<Mutex<Vec<Value>>>,
}

impl Service {
    fn start(node: &Node, answer: Value) -> Result<Self> {
        let own = Self { script: Arc::new(Mutex::new(Some(answer))), asked: Arc::default(), listed: Arc::default() };
        let (script, asked, listed) = (Arc::clone(&own.script), Arc::clone(&own.asked), Arc::clone(&own.listed));
        play(node, move |ask| answer_to(ask, &script, &asked, &listed).unwrap_or_default())?;
        Ok(own)
    }

    fn says(&self, answer: Option<Value>) {
        if let Ok(mut script) = self.script.lock() {
            *script = answer;
        }
    }

    fn lists(&self, leases: Vec<Value>) {
        if let Ok(mut listed) = self.listed.lock() {
            *listed = leases;
        }
    }

    /// Returns the kinds of requests since the last call.
    fn asked(&self) -> Vec<String> {
        self.asks().iter().map(|(kind, _)| kind.clone()).collect()
    }

    fn asks(&self) -> Vec<(String, Value)> {
        let asked = self.asked.lock().map(|mut asked| std::mem::take(&mut *asked)).unwrap_or_default();
        let kind = |ask: Value| match ask {
            Value::Object(map) => map.into_iter().next().unwrap_or_default(),
            other => (other.as_str().unwrap_or_default().to_owned(), Value::Null),
        };
        asked.into_iter().map(kind).collect()
    }
}

/// Returns the answer to one request, or waits a minute and returns none.
fn answer_to(ask: Value, script: &Script, asked: &Mutex<Vec<Value>>, listed: &Mutex<Vec<Value>>) -> Option<Value> {
    asked.lock().ok()?.push(ask.clone());
    let wants_lease = ask.get("acquire").or(ask.get("check")).is_some();
    match ask.as_str() {
        Some("leases") => Some(json!({"leases": *listed.lock().ok()?})),
        _ if wants_lease => {
            let answer = script.lock().ok()?.clone();
            if answer.is_none() {
                std::thread::sleep(Duration::from_secs(60));
            }
            answer
        }
        _ => Some(json!("done")),
    }
}

struct Place {
    node: Node,
    service: Service,
    net: Network,
}

impl Place {
    fn new(patch: &Value) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(&format!("{}; ip link add up0 type veth peer name up1; ip address add 192.0.2.77/24 dev up0; ip link set up0 up; ip link set up1 up", copy_bin(&plugin_bin()?, BIN)))?;
        let service = Service::start(&node, lease("10.9.0.42/24", "10.9.0.1"))?;
        let net = Network::new(&node, &json!({"type": "bridge", "bridge": "br9", "ipam": {"type": "dhcp"}}))?;
        Ok(Self { net: net.by(Path::new(BIN)).with(patch), node, service })
    }

    /// Attaches c2 to another network, which gives this subnet's addresses.
    fn add_bystander(&self, subnet: &str) -> Result<()> {
        self.node.add_container("c2")?;
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": subnet}]]});
        let other = json!({"name": "other", "type": "bridge", "bridge": "br8", "isGateway": true, "ipam": ipam});
        Network::new(&self.node, &other)?.by(Path::new(BIN)).add("c2").map(drop)
    }

    /// Fails unless ADD is refused with this error, the lease is released, and nothing is left.
    fn refused(&self, code: u64, words: &str) -> Result<()> {
        self.service.asked();
        Refusal::of(&self.net.call("ADD", "c1")?)?.expect(code, words)?;
        let asked = self.service.asked();
        ensure!(asked == ["acquire", "release"], "{asked:?}");
        let left = self.left()?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    }

    fn left(&self) -> Result<String> {
        self.node.sh("ip -o link | grep -o 'veth[0-9a-f]*' || true
            ls /run/postern/attachments 2>/dev/null || true; ip -n c1 -o link | grep -v ' lo:' || true")
    }
}

#[test]
fn a_lease_is_taken_looked_at_and_given_back() -> Result<()> {
    let place = Place::new(&json!({}))?;
    let c1 = place.net.add("c1")?;
    ensure!(
        c1.result.pointer("/ips/0") == Some(&json!({"address": "10.9.0.42/24", "gateway": "10.9.0.1", "interface": 2})),
        "{c1:?}"
    );
    ensure!(c1.result.get("routes") == Some(&json!([{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}])), "{c1:?}");
    let shown = place.node.sh("ip -n c1 -4 -o address show dev eth0; ip -n c1 route")?;
    ensure!(shown.contains("10.9.0.42/24") && shown.contains("default via 10.9.0.1"), "{shown}");
    // The host sends the service all data of the attachment.
    let asks = place.service.asks();
    let [(kind, ask)] = asks.as_slice() else { anyhow::bail!("{asks:?}") };
    let text = |key: &str| ask.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ensure!(kind == "acquire", "{asks:?}");
    let names = [text("container_id"), text("network"), text("ifname"), text("netns")];
    ensure!(names == ["c1", "net", "eth0", "/run/netns/c1"], "{ask}");
    ensure!(serde_json::from_str::<Value>(&text("configuration"))? == place.net.config(0, &json!({}))?, "{ask}");

    c1.call_at(0, "CHECK")?.success()?;
    ensure!(place.service.asked() == ["check"]);
    place.service.says(Some(lease("10.9.0.43/24", "10.9.0.1")));
    let other = c1.call_at(0, "CHECK")?;
    Refusal::of(&other)?.expect(999, "the lease now has 10.9.0.43/24")?;
    let lost = json!({"refused": {"code": 999, "words": "the lease has expired", "details": "no server renewed it"}});
    place.service.says(Some(lost));
    Refusal::of(&c1.call_at(0, "CHECK")?)?.expect(999, "the lease has expired…no server renewed it")?;

    let shown = place.node.sh(&format!("{BIN}/postern show c1; {BIN}/postern ls"))?;
    ensure!(shown.contains("10.9.0.42/24"), "{shown}");
    place.service.asked();
    place.net.call("DEL", "c1")?.success()?;
    ensure!(place.service.asked() == ["release"]);
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    place.net.call("DEL", "c1")?.success()?;
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    let log = place.node.sh("cat /var/log/postern/audit.jsonl")?;
    ensure!(log.contains(r#""dhcp.acquire""#) && log.contains(r#""dhcp.release""#), "{log}");
    // The host removes the address from the link before it releases the lease. The log has only one line for the
    // removal.
    let taken: Vec<&str> = log.lines().filter(|line| line.contains(r#""operation":"address.remove""#)).collect();
    let [line] = taken.as_slice() else { anyhow::bail!("{taken:?} of {log}") };
    ensure!(line.contains(r#""request":{"address":"10.9.0.42/24","link":"eth0"}"#), "{line}");
    Ok(())
}

#[test]
fn without_a_service_add_fails_and_del_succeeds() -> Result<()> {
    let place = Place::new(&json!({}))?;
    let c1 = place.net.add("c1")?;
    place.node.sh("rm /run/cni/dhcp.sock")?;
    let check = Refusal::of(&c1.call_at(0, "CHECK")?)?;
    check.expect(999, "error dialing DHCP daemon: dial unix /run/cni/dhcp.sock: connect: no such file or directory…postern dhcp serve")?;
    let del = place.net.call("DEL", "c1")?;
    ensure!(del.stderr.contains("the DHCP lease is not given back"), "{del:?}");
    del.success()?;
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Refusal::of(&place.net.call("ADD", "c1")?)?
        .expect(999, "error dialing DHCP daemon…start the service (package postern-dhcp): `systemctl enable --now postern-dhcp.socket`")?;
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    // By default STATUS succeeds, like the native STATUS, which asks no service: a kubelet evicts the pods of a node
    // that is not ready.
    let status = place.net.call("STATUS", "c1")?;
    ensure!(status.status == 0 && status.stderr.contains("would fail: error dialing DHCP daemon"), "{status:?}");
    postern_tests::proof::strict_status(&place.node)?;
    Refusal::of(&place.net.call("STATUS", "c1")?)?.expect(50, "error dialing DHCP daemon")?;
    // Policy grants another path for the socket if the network names the path.
    let other = json!({"ipam": {"daemonSocketPath": "/run/other.sock"}});
    Refusal::of(&place.net.call_at(0, "ADD", "c1", &other)?)?.expect(999, "dial unix /run/other.sock")?;
    let doctor = place.node.command(format!("{BIN}/postern")).arg("doctor").arg("--json").output()?;
    ensure!(!doctor.stdout.is_empty());
    Ok(())
}

#[test]
fn status_asks_the_service() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.net.call("STATUS", "c1")?.success()?;
    ensure!(place.service.asked() == ["alive"]);
    Ok(())
}

/// Leases with which a server on the network could harm a node.
#[test]
fn leases_that_no_container_may_have() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.add_bystander("10.8.0.0/24")?;
    place.net.add("c1")?;
    place.net.call("DEL", "c1")?.success()?;
    place.node.sh("ip link set br9 down; ip link del br9; ip link add br9 type bridge; ip link set br9 up")?;
    let before = place.node.snapshot(&["c1", "c2"], &mut Names::new(""))?;
    for (address, gateway, words) in [
        ("127.0.0.2/8", "127.0.0.1", "offers 127.0.0.2/8, which the container can't have: it is a loopback address"),
        ("169.254.169.254/16", "169.254.0.1", "link-local"),
        ("224.0.0.5/24", "224.0.0.1", "multicast"),
        ("10.9.0.42/1", "10.9.0.1", "most of the Internet"),
        ("192.0.2.77/24", "192.0.2.1", "the node itself has this address"),
        ("10.8.0.1/24", "10.8.0.9", "the node itself has this address"),
        ("10.8.0.2/24", "10.8.0.9", "attachment other/c2/eth0 has this address, by its record"),
        (
            "10.9.0.42/24",
            "10.9.0.42",
            "names router 10.9.0.42 for 10.9.0.42/24: the router has the container's own address",
        ),
        ("10.9.0.42/24", "127.0.0.1", "no router has that address"),
    ] {
        place.service.says(Some(lease(address, gateway)));
        let left = place.left()?;
        place.service.asked();
        Refusal::of(&place.net.call("ADD", "c1")?)?.expect(999, words).with_context(|| address.to_owned())?;
        let asked = place.service.asked();
        ensure!(asked == ["acquire", "release"], "{address}: {asked:?}");
        ensure!(place.left()? == left, "{address}: {}", place.left()?);
    }
    let after = place.node.snapshot(&["c1", "c2"], &mut Names::new(""))?;
    let differences = compare(&before, &after);
    ensure!(differences.iter().all(|mismatch| mismatch.path.contains("br9")), "{differences:?}");
    Ok(())
}

/// Leases of DHCPv6 and answers of a router that could harm a node.
#[test]
fn ipv6_leases_that_no_container_may_have() -> Result<()> {
    let place = Place::new(&json!({"ipam": {"families": ["ipv6"]}}))?;
    place.node.sh("ip address add 2001:db8:7::77/64 dev up0 nodad")?;
    place.add_bystander("2001:db8:8::/64")?;
    let six = |address: &str, gateway: &str| {
        let mut lease = lease(address, gateway);
        merge(&mut lease, &json!({"lease": {"routes": [{"dst": "::/0", "gw": gateway}]}}));
        lease
    };
    for (address, gateway, words) in [
        ("::1/128", "fe80::1", "offers ::1/128, which the container can't have: it is a loopback address"),
        ("fe80::7/64", "fe80::1", "link-local"),
        ("ff02::1/64", "fe80::1", "multicast"),
        ("2001:db8:9::7/16", "fe80::1", "most of the Internet"),
        ("2001:db8:7::77/64", "fe80::1", "the node itself has this address"),
        ("2001:db8:8::1/64", "fe80::1", "the node itself has this address"),
        ("2001:db8:8::2/64", "fe80::1", "attachment other/c2/eth0 has this address, by its record"),
        ("2001:db8:9::7/64", "2001:db8:9::1", "a router advertises itself by its link-local address"),
        ("2001:db8:9::7/64", "10.9.0.1", "the router has the other IP version"),
        ("10.9.0.42/24", "10.9.0.1", "has 1 IPv4 addresses for the attachment, and not 0"),
    ] {
        place.service.says(Some(six(address, gateway)));
        let left = place.left()?;
        place.service.asked();
        Refusal::of(&place.net.call("ADD", "c1")?)?.expect(999, words).with_context(|| address.to_owned())?;
        let asked = place.service.asked();
        ensure!(asked == ["acquire", "release"], "{address}: {asked:?}");
        ensure!(place.left()? == left, "{address}: {}", place.left()?);
    }
    // A server gives an allowed lease. With isGateway, the server would choose an address of the node.
    place.service.says(Some(six("2001:db8:9::7/64", "fe80::1")));
    place.service.asks();
    place.net.add("c1")?;
    let asks = place.service.asks();
    ensure!(asks.iter().any(|(kind, ask)| kind == "acquire" && ask["families"] == json!(["ipv6"])), "{asks:?}");
    place.net.call("DEL", "c1")?.success()?;
    Refusal::of(&place.net.call_at(0, "ADD", "c1", &json!({"isGateway": true}))?)?
        .expect(999, "the gateway of 2001:db8:9::7/64 would be fe80::1…leave isGateway out")?;
    // A service of an older version knows only IPv4.
    let both = json!({"isGateway": false, "ipam": {"families": ["ipv4", "ipv6"]}});
    place.service.says(Some(lease("10.9.0.42/24", "10.9.0.1")));
    Refusal::of(&place.net.call_at(0, "ADD", "c1", &both)?)?
        .expect(999, "has 0 IPv6 addresses for the attachment, and not 1…older version")
}

/// A native daemon speaks another protocol. Each verb except DEL says so at once, and names the daemon's unit and a
/// remedy.
#[test]
fn a_native_daemon_is_not_asked() -> Result<()> {
    let place = Place::new(&json!({"ipam": {"daemonSocketPath": "/run/cni/native.sock"}}))?;
    let listener = UnixListener::bind(place.node.path("/run/cni/native.sock"))?;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let hears = Arc::clone(&hears);
            std::thread::spawn(move || -> Option<()> {
                let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
                let is_go = lines.next()?.ok()?.contains("/_goRPC_");
                while !lines.next()?.ok()?.is_empty() {}
                let answer =
                    if is_go { "HTTP/1.0 200 Connected to Go RPC\n\n" } else { "HTTP/1.0 404 Not Found\r\n\r\n" };
                stream.write_all(answer.as_bytes()).ok()?;
                let more = lines.next().and_then(Result::ok);
                hears.lock().ok()?.extend(more);
                Some(())
            });
        }
    });
    postern_tests::proof::strict_status(&place.node)?;
    let began = Instant::now();
    for (verb, code) in [("ADD", 999), ("STATUS", 50)] {
        Refusal::of(&place.net.call(verb, "c1")?)?.expect(
            code,
            "the DHCP service at /run/cni/native.sock is a native daemon (cni-dhcp.service), which Postern does not ask…\
             systemctl disable --now cni-dhcp.socket cni-dhcp.service && systemctl enable --now postern-dhcp.socket",
        )?;
    }
    // DEL removes the container's attachment, although the native daemon may keep a lease.
    place.net.call("DEL", "c1")?.success()?;
    ensure!(began.elapsed() < Duration::from_secs(5), "DEL waited: {:?}", began.elapsed());
    ensure!(heard.lock().is_ok_and(|heard| heard.is_empty()));
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// With isGateway, a server would choose an address and a route of the node.
#[test]
fn a_server_chooses_no_address_of_the_node() -> Result<()> {
    let place = Place::new(&json!({"isGateway": true}))?;
    place.refused(999, "\"br9\" does not get 10.9.0.1/24, because a DHCP server chose it")?;
    ensure!(!place.node.sh("ip -o -4 address")?.contains("10.9.0.1"));
    // If the operator has put the gateway on the bridge, ADD adds no address.
    place.node.sh("ip address add 10.9.0.1/24 dev br9")?;
    place.net.add("c1")?;
    place.net.call("DEL", "c1")?.success().map(drop)
}

#[test]
fn an_operator_can_name_the_networks_of_leases() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.node.sh(&format!(
        "echo 'addresses = [\"10.7.0.0/16\"]' > /run/line; sed -i '/^sockets/r /run/line' {BIN}/postern.d/dhcp.toml"
    ))?;
    place.refused(110, "offers 10.9.0.42/24, which policy does not allow")?;
    place.service.says(Some(lease("10.7.3.4/24", "10.7.3.1")));
    place.net.add("c1")?;
    place.net.call("DEL", "c1")?.success().map(drop)
}

#[test]
fn a_failed_add_gives_the_lease_back() -> Result<()> {
    let place = Place::new(&json!({}))?;
    // The router can't be reached, so the route fails after everything else was made.
    place.service.says(Some(lease("10.9.0.42/24", "10.5.0.1")));
    place.refused(999, "10.5.0.1")?;
    // ADD passes on the service's own error.
    place
        .service
        .says(Some(json!({"refused": {"code": 999, "words": "no more tries", "details": "no server answered"}})));
    place.refused(999, "no more tries…no server answered")
}

/// ADD answers before the runtime gives up. If the lease comes later, the service gets it back.
#[test]
fn a_wait_without_end_ends_in_time() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.node.sh(&format!("printf '[limits]\\nseconds = 4\\n' >> {BIN}/postern.d/bridge.toml"))?;
    place.service.says(None);
    let start = Instant::now();
    place.refused(
        11,
        "no lease within 2 s: no DHCP server answers on \"eth0\", or the DHCP service at /run/cni/dhcp.sock is stuck…tcpdump -ni any \
         port 67",
    )?;
    ensure!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    Ok(())
}

/// The socket exists, but the service takes no connection. The error does not blame a DHCP server.
#[test]
fn a_service_that_takes_no_connection_is_said_to_be_stuck() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place
        .node
        .sh(&format!("printf '[limits]\\nseconds = 6\\n' >> {BIN}/postern.d/bridge.toml; rm /run/cni/dhcp.sock"))?;
    let _stuck = UnixListener::bind(place.node.path("/run/cni/dhcp.sock"))?;
    let refused = Refusal::of(&place.net.call("ADD", "c1")?)?;
    refused.expect(
        11,
        "the DHCP service at /run/cni/dhcp.sock took no connection in time: it is stuck…restart the service",
    )?;
    ensure!(!refused.text.contains("no DHCP server"), "{}", refused.text);
    Ok(())
}

#[test]
fn a_killed_add_is_cleared_by_del_and_by_the_next_add() -> Result<()> {
    for by_del in [true, false] {
        let place = Place::new(&json!({}))?;
        place.service.says(None);
        let mut run = place.node.start(&place.net.request(0, "ADD", "c1", &json!({}))?)?;
        let end = Instant::now() + Duration::from_secs(20);
        while !place.service.asked().contains(&"acquire".to_owned()) {
            ensure!(Instant::now() < end, "ADD never asked the service");
            std::thread::sleep(Duration::from_millis(20));
        }
        run.kill()?;
        run.wait()?;
        place.service.says(Some(lease("10.9.0.42/24", "10.9.0.1")));
        if by_del {
            place.net.call("DEL", "c1")?.success()?;
            ensure!(place.service.asked() == ["release"]);
        } else {
            place.net.add("c1")?;
            ensure!(place.service.asked() == ["release", "acquire"]);
            place.net.call("DEL", "c1")?.success()?;
        }
        ensure!(place.left()?.is_empty(), "{}", place.left()?);
    }
    Ok(())
}

#[test]
fn collections_give_leases_back() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.net.add("c1")?;
    place.service.asked();
    let collect =
        |valid: Value| place.net.call_at(0, "GC", "", &json!({"cni.dev/valid-attachments": valid}))?.success();
    collect(json!([{"containerID": "c1", "ifname": "eth0"}]))?;
    ensure!(place.service.asked().is_empty(), "GC released a valid attachment's lease");
    collect(json!([]))?;
    ensure!(place.service.asked() == ["release"]);
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    // An operator runs `postern gc` after the container is gone.
    place.net.add("c1")?;
    place.node.remove_container("c1")?;
    place.service.asked();
    place.node.sh(&format!("{BIN}/postern gc --yes"))?;
    let asked = place.service.asked();
    ensure!(asked.contains(&"release".to_owned()), "{asked:?}");
    let left = place.node.sh("ls /run/postern/attachments")?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

/// Other users could have made the socket, so the host sends nothing to it.
#[test]
fn a_socket_that_others_could_have_made_is_not_used() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.node.sh("chmod 777 /run/cni")?;
    Refusal::of(&place.net.call("ADD", "c1")?)?
        .expect(5, "the DHCP service at /run/cni/dhcp.sock is not to be trusted")?;
    ensure!(place.service.asked().is_empty());
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// `plan` and `inspect` ask no DHCP server. `plan` says that only a server knows the address.
#[test]
fn plans_say_what_only_a_server_knows() -> Result<()> {
    let place = Place::new(&json!({}))?;
    let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "bridge", "bridge": "br9", "ipam": {"type": "dhcp"}}]});
    place.node.sh(&format!("echo '{list}' > /run/net.conflist"))?;
    let plan = place.node.sh(&format!("{BIN}/postern plan /run/net.conflist 2>&1 || true"))?;
    ensure!(
        flat(&plan).contains("have the DHCP service at /run/cni/dhcp.sock get an address")
            && flat(&plan).contains("no DHCP server was asked"),
        "{plan}"
    );
    ensure!(place.service.asked().is_empty());
    let list = list.to_string().replace(r#""type":"dhcp""#, r#""type":"dhcp","families":["ipv6"]"#);
    place.node.sh(&format!("echo '{list}' > /run/net.conflist"))?;
    let plan = place.node.sh(&format!("{BIN}/postern plan /run/net.conflist 2>&1 || true"))?;
    ensure!(flat(&plan).contains("2001:db8::2/64") && !plan.contains("192.0.2.2"), "{plan}");
    let inspect = place.node.sh(&format!("{BIN}/postern inspect dhcp"))?;
    ensure!(flat(&inspect).contains("get an address for this attachment, and keep it alive"), "{inspect}");
    Ok(())
}

/// The output of `show`, `doctor` and `validate` about leases and their service.
#[test]
fn people_see_how_leases_stand() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.node.sh(postern_tests::proof::PRIVATE_ETC)?;
    let list = |ipam: Value| json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "bridge", "bridge": "br9", "ipam": ipam}]});
    let file = "/etc/cni/net.d/10-net.conflist";
    place.node.sh("mkdir -p /etc/cni/net.d")?;
    std::fs::write(place.node.path(file), list(json!({"type": "dhcp"})).to_string())?;
    place.net.add("c1")?;
    let say =
        |words: &str| -> Result<String> { Ok(flat(&place.node.sh(&format!("{BIN}/postern {words} 2>&1 || true"))?)) };
    let held = |container: &str, standing: Value| {
        let lease = lease("10.9.0.42/24", "10.9.0.1").get("lease").cloned();
        json!({"container_id": container, "network": "net", "ifname": "eth0", "netns": "/run/netns/c1",
            "standing": standing, "lease": lease, "seconds_left": 3600})
    };
    let expect = |verb: &str, words: &str| -> Result<()> {
        let said = say(verb)?;
        for part in words.split('…') {
            ensure!(said.contains(part), "{verb}: not \"{part}\": {said}");
        }
        Ok(())
    };
    place.service.lists(vec![held("c1", json!("bound"))]);
    expect("show c1", "10.9.0.42/24, for 1h more, by the service at /run/cni/dhcp.sock")?;
    let sound = say("doctor")?;
    ensure!(!sound.contains("DHCP lease of") && !sound.contains("no DHCP service"), "{sound}");
    // A lost lease, and a lease without a record.
    let lost = json!({"lost": "no server renewed it"});
    place.service.lists(vec![held("c1", lost.clone()), held("c7", json!("bound")), held("c8", lost)]);
    expect("show c1", "lost: no server renewed it")?;
    expect("doctor", "the DHCP lease of 10.9.0.42/24 is lost: no server renewed it")?;
    expect("doctor", "the service keeps an IPv4 lease of net/c7/eth0, and this attachment has no record")?;
    expect("doctor", "the service keeps a lost IPv4 lease of net/c8/eth0 (no server renewed it)")?;
    place.service.lists(Vec::new());
    expect("doctor", "the DHCP service at /run/cni/dhcp.sock has no lease of 10.9.0.42/24")?;
    // A network with nonsensical keys, and a node without a service.
    expect(&format!("net validate {file}"), "10-net.conflist")?;
    std::fs::write(place.node.path(file), list(json!({"type": "dhcp", "daemonSocketPath": 7})).to_string())?;
    expect(&format!("net validate {file}"), "daemonSocketPath")?;
    std::fs::write(place.node.path(file), list(json!({"type": "dhcp"})).to_string())?;
    place.node.sh("rm /run/cni/dhcp.sock")?;
    expect("show c1", "by the service at /run/cni/dhcp.sock, which is not there")?;
    expect(
        "doctor",
        "no DHCP service answers…every ADD of network \"net\" fails…systemctl enable --now postern-dhcp.socket",
    )?;
    place.net.call("DEL", "c1")?.success().map(drop)
}
