//! Attacks on the DHCP service: by a hostile client component, by a station on the link, and by another program of the
//! node.

use crate::lab::{Lab, attachment, refused, scripted_bin, wait};
use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};
use postern_dhcp_channel::{Answer, Ask, Attachment, Channel};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Returns a message of a correct client.
fn message(mac: [u8; 6], id: &[u8], kind: u8) -> Vec<u8> {
    // The fixed part: a request over Ethernet, the hardware address, the cookie.
    let mut message = [[1, 1, 6].as_slice(), &[0; 25], &mac, &[0; 202], &[99, 130, 83, 99]].concat();
    message.extend([53, 1, kind, 61, id.len() as u8]);
    message.extend(id);
    message.push(255);
    message.resize(300, 0);
    message
}

/// Returns a script that takes a lease when a packet comes.
pub fn binds(lease: &Value) -> Value {
    json!({"script": {"packet": {"state": {"is": "bound"}, "outcome": {"bound": {"lease": lease, "probe": false}}}}})
}

/// Requests a lease while a server offers an address.
pub fn ask_with_offer(lab: &Lab, attachment: &Attachment, offered: [u8; 4]) -> Result<Answer> {
    let server = server_socket(lab, 0)?;
    let mut offer = message(lab.mac(&attachment.container_id)?, b"", 2);
    // The message becomes a reply (`op`), with the address in `yiaddr`.
    offer.iter_mut().take(1).for_each(|op| *op = 2);
    offer.iter_mut().skip(16).zip(offered).for_each(|(to, from)| *to = from);
    let asked = ask_aside(lab, Ask::Acquire(attachment.clone()));
    while !asked.is_finished() {
        server.send_to(&offer, "255.255.255.255:68")?;
        std::thread::sleep(Duration::from_millis(50));
    }
    asked.join().map_err(|_| anyhow::anyhow!("the thread failed"))?
}

/// Returns the output of a step that sends these packets, and then waits.
pub fn sends(packets: &[(&[u8], Value)]) -> Value {
    let text = |payload: &[u8]| base64::engine::general_purpose::STANDARD.encode(payload);
    let send: Vec<Value> = packets.iter().map(|(payload, to)| json!({"payload": text(payload), "to": to})).collect();
    json!({"script": {"state": {}, "send": send, "wake_ms": 60_000}})
}

/// Runs `open` in the server's namespace. Sockets that it opens stay in this namespace.
pub fn in_server<T: Send + 'static>(lab: &Lab, open: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let namespace = File::open(lab.node.path("/run/netns/srv"))?;
    let opened = std::thread::spawn(move || -> Result<T> {
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        open()
    });
    opened.join().map_err(|_| anyhow::anyhow!("the thread failed"))?
}

/// Opens a UDP socket in the server's namespace.
fn server_socket(lab: &Lab, port: u16) -> Result<UdpSocket> {
    in_server(lab, move || {
        let socket = UdpSocket::bind(("0.0.0.0", port))?;
        socket.set_broadcast(true)?;
        // A broadcast needs a default route or a fixed link, and the namespace has no default route.
        setsockopt(&socket, sockopt::BindToDevice, &"s0".into())?;
        socket.set_read_timeout(Some(Duration::from_millis(700)))?;
        Ok(socket)
    })
}

/// Sends a request from another thread, because the answer comes late or never.
pub fn ask_aside(lab: &Lab, ask: Ask) -> std::thread::JoinHandle<Result<Answer>> {
    let socket = lab.socket();
    std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(8);
        let mut channel = Channel::connect(&socket, until)?;
        Ok(channel.ask(&ask, None, until)?)
    })
}

/// The service drops packets that are not this client's messages. Only the last packet is correct, and arrives.
#[test]
fn a_client_sends_its_own_messages_and_nothing_else() -> Result<()> {
    let lab = Lab::with_client(&["c1"], scripted_bin()?)?;
    lab.serve("")?;
    let server = server_socket(&lab, 67)?;
    let mac = lab.mac("c1")?;
    let id = b"\0c1/net/eth0";
    let own = message(mac, id, 1);
    let with = |at: usize, byte: u8| {
        let mut changed = own.clone();
        changed[at] = byte;
        changed
    };
    let wanting = |kind: u8| {
        let mut changed = message(mac, id, kind);
        let end = changed.iter().rposition(|byte| *byte == 255).unwrap_or_default();
        changed.splice(end..end + 7, [50, 4, 10, 5, 0, 99, 255]);
        changed
    };
    let broadcast = json!("broadcast");
    let unicast = |address: &str| json!({"unicast": address});
    let cases: Vec<(Vec<u8>, Value)> = vec![
        (b"no DHCP at all".to_vec(), broadcast.clone()),
        (with(0, 2), broadcast.clone()),
        (with(33, mac[5] ^ 1), broadcast.clone()),
        (with(12, 10), broadcast.clone()),
        (with(24, 10), broadcast.clone()),
        (message(mac, b"\0c2/net/eth0", 1), broadcast.clone()),
        (message(mac, id, 2), broadcast.clone()),
        (wanting(1), broadcast.clone()),
        (wanting(3), broadcast.clone()),
        (wanting(4), broadcast.clone()),
        (message(mac, id, 8), broadcast.clone()),
        (vec![0; 20_000], broadcast.clone()),
        (own.clone(), unicast("127.0.0.1")),
        (own.clone(), unicast("224.0.0.1")),
        (own.clone(), unicast("::1")),
        (own.clone(), broadcast),
    ];
    let cases: Vec<(&[u8], Value)> = cases.iter().map(|(payload, to)| (payload.as_slice(), to.clone())).collect();
    let asked = ask_aside(&lab, Ask::Acquire(attachment("c1", &sends(&cases))));
    let mut got = vec![0; 70_000];
    server.set_read_timeout(Some(Duration::from_secs(8)))?;
    let (length, from) = server.recv_from(&mut got).with_context(|| lab.log("service"))?;
    server.set_read_timeout(Some(Duration::from_millis(700)))?;
    ensure!(got[..length] == own && from.port() == 68, "{length} bytes from {from}");
    ensure!(server.recv_from(&mut got).is_err(), "a second packet arrives");
    ensure!(lab.ask(&Ask::Release(attachment("c1", &json!({}))))? == Answer::Done);
    drop(asked.join());
    let log = lab.node.sh("cat /var/log/postern/audit.jsonl")?;
    ensure!(log.contains("\"operation\":\"dhcp.send\""), "{log}");
    Ok(())
}

/// The service sends only as many packets of a flood as a client may send.
#[test]
fn a_client_that_floods_is_cut_off() -> Result<()> {
    let lab = Lab::with_client(&["c1"], scripted_bin()?)?;
    lab.serve("")?;
    let server = server_socket(&lab, 67)?;
    let own = message(lab.mac("c1")?, b"\0c1/net/eth0", 1);
    let mut script = sends(&vec![(own.as_slice(), json!("broadcast")); 100]);
    script["script"]["wake_ms"] = json!(0);
    let asked = ask_aside(&lab, Ask::Acquire(attachment("c1", &script)));
    let mut got = vec![0; 2000];
    // The client's process may start late on a busy machine, so the time begins with its first packet.
    let begun = Instant::now();
    while server.recv_from(&mut got).is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(10), "no packet: {}", lab.log("service"));
    }
    let (mut count, until) = (1, Instant::now() + Duration::from_secs(2));
    while Instant::now() < until {
        count += usize::from(server.recv_from(&mut got).is_ok());
    }
    // A client may send 16 packets at once, and two more each second.
    ensure!(count <= 20, "{count} of 100 packets in two seconds");
    ensure!(lab.ask(&Ask::Release(attachment("c1", &json!({}))))? == Answer::Done);
    drop(asked.join());
    Ok(())
}

/// A guest that traps, hangs, calls the host or prints nonsense gets no lease. The service serves another lease
/// meanwhile.
#[test]
fn a_client_that_fails_harms_no_other_lease() -> Result<()> {
    let lab = Lab::with_client(&["c1", "c2", "c3", "c4", "c5"], scripted_bin()?)?;
    lab.serve("")?;
    let lease = json!({"addresses": [{"address": "10.5.0.7/24"}], "seconds": 600, "t1": 300, "t2": 500});
    let scripts = [
        ("c1", json!("trap"), "trapped"),
        ("c2", json!("loop"), "ran past its deadline"),
        ("c3", json!("call"), "has no operation"),
        ("c4", json!("nonsense"), "printed invalid output"),
    ];
    let mut asked = Vec::new();
    for (container, script, words) in scripts {
        asked.push((ask_aside(&lab, Ask::Acquire(attachment(container, &json!({"script": script})))), words));
    }
    let c5 = attachment("c5", &binds(&lease));
    ensure!(matches!(ask_with_offer(&lab, &c5, [10, 5, 0, 7])?, Answer::Lease(_)));
    for (answer, words) in asked {
        refused(&answer.join().map_err(|_| anyhow::anyhow!("the thread failed"))??, words)?;
    }
    ensure!(matches!(lab.ask(&Ask::Check(c5))?, Answer::Lease(_)));
    ensure!(lab.leases()?.len() == 1);
    Ok(())
}

/// A client gets no lease of an address that no server has offered. Otherwise it could decline or release a foreign
/// lease.
#[test]
fn a_lease_that_no_server_has_offered_is_none() -> Result<()> {
    let lab = Lab::with_client(&["c1"], scripted_bin()?)?;
    lab.serve("")?;
    for probe in [true, false] {
        let lease = json!({"addresses": [{"address": "10.5.0.7/24"}], "seconds": 600, "t1": 300, "t2": 500});
        let output = json!({"state": {"is": "bound"}, "outcome": {"bound": {"lease": lease, "probe": probe}}});
        let at_once = attachment("c1", &json!({"script": output}));
        refused(&lab.ask(&Ask::Acquire(at_once))?, "a lease of 10.5.0.7, which no server has offered")?;
        let later = attachment("c1", &json!({"script": {"packet": output}}));
        refused(&ask_with_offer(&lab, &later, [10, 5, 0, 8])?, "a lease of 10.5.0.7, which no server has offered")?;
        ensure!(lab.leases()?.is_empty());
        ensure!(matches!(ask_with_offer(&lab, &later, [10, 5, 0, 7])?, Answer::Lease(_)));
        ensure!(lab.ask(&Ask::Release(later))? == Answer::Done);
    }
    Ok(())
}

/// The service stores the output of a step for each lease, so it accepts only as much as a lease needs.
#[test]
fn what_a_client_gives_back_is_bounded() -> Result<()> {
    let lab = Lab::with_client(&["c1"], scripted_bin()?)?;
    lab.serve("")?;
    let script = |output: Value| attachment("c1", &json!({"script": output}));
    let bound = |state: Value, more: Value| {
        let mut lease = json!({"addresses": [{"address": "10.5.0.7/24"}], "seconds": 600, "t1": 300, "t2": 500});
        postern_tests::merge(&mut lease, &more);
        json!({"state": state, "outcome": {"bound": {"lease": lease, "probe": false}}})
    };
    let cases = [
        (bound(json!("x".repeat(100_000)), json!({})), "wrote too much to standard output"),
        (bound(json!("x".repeat(3000)), json!({})), "gave a state of 3002 bytes"),
        (bound(json!({}), json!({"dns": {"domain": "x".repeat(20_000)}})), "gave a lease of"),
        (bound(json!({}), json!({"routes": vec![json!({"dst": "0.0.0.0/0"}); 500]})), "gave a lease with 500 routes"),
        (json!({"state": {}, "outcome": {"failed": {"reason": "x".repeat(50_000)}}}), "xxx"),
        (json!("x".repeat(50_000)), "printed invalid output"),
    ];
    for (output, words) in cases {
        let answer = lab.ask(&Ask::Acquire(script(output)))?;
        refused(&answer, words)?;
        ensure!(serde_json::to_vec(&answer)?.len() < 2000, "{answer:?}");
        ensure!(lab.leases()?.is_empty() && lab.node.sh("ls /var/lib/postern/dhcp")?.is_empty());
    }
    ensure!(lab.log("service").len() < 20_000, "{}", lab.log("service").len());
    Ok(())
}

/// A container dies while the service acquires its lease, and comes back with the same names. The end of the first
/// lease's step does not affect the second lease. The client of the first lease gets the error "try again".
#[test]
fn a_lease_that_is_replaced_says_nothing_of_its_successor() -> Result<()> {
    let lab = Lab::with_client(&["c1"], scripted_bin()?)?;
    lab.serve("")?;
    let c1 = attachment("c1", &json!({"script": "loop"}));
    let first = ask_aside(&lab, Ask::Acquire(c1.clone()));
    std::thread::sleep(Duration::from_millis(700));
    // The service still has sockets in the namespace.
    lab.node.sh("ip link delete hc1eth0")?;
    lab.node.remove_container("c1")?;
    lab.node.add_container("c1")?;
    lab.link("c1", "eth0")?;
    let began = Instant::now();
    refused(&lab.ask(&Ask::Acquire(c1))?, "ran past its deadline")?;
    // A step has two seconds. The step of the first lease ended earlier.
    ensure!(began.elapsed() > Duration::from_millis(1900), "{:?}", began.elapsed());
    let first = first.join().map_err(|_| anyhow::anyhow!("the thread failed"))??;
    refused(&first, "is acquired anew, for another namespace or link")?;
    ensure!(matches!(first, Answer::Refused { code: 11, .. }), "{first:?}");
    ensure!(lab.leases()?.is_empty());
    Ok(())
}

/// A station floods the link with malformed frames and answers for other clients. The client still gets its lease.
#[test]
fn a_stranger_on_the_link_keeps_no_client_from_its_lease() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("")?;
    let mac = lab.mac("c1")?;
    let socket = server_socket(&lab, 6767)?;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flood = {
        let stop = std::sync::Arc::clone(&stop);
        std::thread::spawn(move || -> Result<u32> {
            let mut offer = message(mac, b"", 2);
            offer[0] = 2;
            for number in 0u32..10_000 {
                let mut frame = offer.clone();
                let at = 4 + number as usize % (frame.len() - 4);
                if !(28..34).contains(&at) {
                    frame[at] = frame[at].wrapping_add(1 + (number / 300) as u8);
                }
                frame.truncate(if number % 7 == 0 { 40 + number as usize % 260 } else { 300 });
                // During a flood, the queue can be full.
                match socket.send_to(&frame, "255.255.255.255:68") {
                    Err(error) if error.raw_os_error() != Some(105) => return Err(error.into()),
                    _ => {}
                }
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return Ok(number);
                }
                std::thread::sleep(Duration::from_micros(300));
            }
            Ok(10_000)
        })
    };
    let c1 = attachment("c1", &json!({}));
    let lease = lab.acquire(&c1);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let sent = flood.join().map_err(|_| anyhow::anyhow!("the thread failed"))??;
    let lease = lease.with_context(|| format!("{sent} frames"))?;
    ensure!(sent > 0, "the flood sent no frame");
    ensure!(lab.ask(&Ask::Check(c1))? == Answer::Lease(lease));
    Ok(())
}

/// Only requests with the lease's namespace may use a lease.
#[test]
fn nobody_speaks_for_another_namespace() -> Result<()> {
    let lab = Lab::new(&["c1", "c2"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("")?;
    let c1 = attachment("c1", &json!({}));
    let lease = lab.acquire(&c1)?;
    let mut other = c1.clone();
    other.netns = "/run/netns/c2".to_owned();
    for ask in [Ask::Acquire(other.clone()), Ask::Check(other.clone()), Ask::Release(other.clone())] {
        refused(&lab.ask(&ask)?, "belongs to the namespace at /run/netns/c1")?;
    }
    // The service also compares the descriptor of the namespace.
    let until = Instant::now() + Duration::from_secs(10);
    let namespace = File::open(lab.node.path("/run/netns/c2"))?;
    let mut channel = Channel::connect(&lab.socket(), until)?;
    let fd = std::os::fd::AsFd::as_fd(&namespace);
    refused(&channel.ask(&Ask::Acquire(c1.clone()), Some(fd), until)?, "leads the DHCP service to another namespace")?;
    refused(&channel.ask(&Ask::Release(c1.clone()), Some(fd), until)?, "belongs to the namespace")?;
    ensure!(lab.ask(&Ask::Check(c1.clone()))? == Answer::Lease(lease));
    // Without a namespace, a release succeeds, as for a container that is gone.
    other.netns = String::new();
    ensure!(lab.ask(&Ask::Release(other))? == Answer::Done);
    ensure!(lab.leases()?.is_empty());
    lab.until_said("dnsmasq", "DHCPRELEASE")
}

/// Nonsense on the socket only ends its connection. A client that disconnects before the answer gets no lease.
#[test]
fn what_clients_say_ends_their_own_connection() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("")?;
    let rude: [&[u8]; 7] = [
        b"\0\0\0\0\n\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"CONNECT /postern/1 HTTP/1.0\r\n\r\nnonsense\n",
        b"CONNECT /postern/1 HTTP/1.0\r\n\r\n{\"acquire\":{\"container_id\":1}}\n",
        b"CONNECT /_goRPC_ HTTP/1.0\n\n\xf8\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"CONNECT /_goRPC_ HTTP/1.0\n\n\x02\x08\x00",
        b"\n\n",
    ];
    for words in rude {
        let mut stream = UnixStream::connect(lab.socket())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(words)?;
        let mut answer = Vec::new();
        // A reset connection has ended, too.
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => ensure!(error.kind() == std::io::ErrorKind::ConnectionReset, "{words:?}: {error}"),
        }
    }
    let many: Vec<UnixStream> = (0..200).filter_map(|_| UnixStream::connect(lab.socket()).ok()).collect();
    // This client sends a request and disconnects at once.
    let c1 = attachment("c1", &json!({}));
    let mut hasty = UnixStream::connect(lab.socket())?;
    hasty.write_all(b"CONNECT /postern/1 HTTP/1.0\r\n\r\n")?;
    let mut ask = serde_json::to_vec(&Ask::Acquire(c1.clone()))?;
    ask.push(b'\n');
    hasty.write_all(&ask)?;
    lab.until_said("dnsmasq", "DHCPREQUEST")?;
    drop(hasty);
    wait(Duration::from_secs(5), || Ok(lab.leases()?.is_empty()))?;
    lab.until_said("dnsmasq", "DHCPRELEASE")?;
    lab.acquire(&c1)?;
    drop(many);
    Ok(())
}

/// The processes of the service have only the Linux capabilities that leases need.
#[test]
fn the_service_keeps_what_leases_need() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("")?;
    lab.acquire(&attachment("c1", &json!({})))?;
    let service = lab.pid("service")?;
    let children = std::fs::read_to_string(format!("/proc/{service}/task/{service}/children"))?;
    let mut processes = vec![service.to_string()];
    processes.extend(children.split_whitespace().map(str::to_owned));
    let mut seen = BTreeMap::new();
    for pid in processes {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| -> String {
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:\t")));
            line.unwrap_or_default().trim().to_owned()
        };
        let bits = u64::from_str_radix(&field("CapEff"), 16)?;
        ensure!(field("CapPrm") == field("CapEff") && field("CapInh") == "0000000000000000", "{status}");
        ensure!(field("NoNewPrivs") == "1" && field("Threads") == "1", "{status}");
        *seen.entry((field("Name"), bits, field("Seccomp"))).or_insert(0) += 1;
    }
    let bit = |number: u64| 1 << number;
    let expected = BTreeMap::from([
        // CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN.
        (("dhcp service".to_owned(), bit(12) | bit(13) | bit(21), "2".to_owned()), 1),
        // CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP.
        (("dhcp steps".to_owned(), bit(5) | bit(6) | bit(7) | bit(8), "2".to_owned()), 2),
        // CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE.
        (("dhcp namespaces".to_owned(), bit(2) | bit(19), "2".to_owned()), 1),
        (("dhcp files".to_owned(), 0, "2".to_owned()), 1),
    ]);
    ensure!(seen == expected, "{seen:#?}");
    Ok(())
}
