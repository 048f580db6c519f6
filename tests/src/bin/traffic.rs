//! Both ends of the traffic in tests/kubernetes.
//!
//! * `traffic serve`: answers HTTP on port 8000 and datagrams on port 5353, with the server's host name and the client's
//!   address. On port 9000, it sends back what it receives. Ends at SIGTERM.
//! * `traffic ask request|datagram ADDRESS:PORT`: prints the answer of such a server, or fails.
//! * `traffic watch`: reads lines `NAME stream|request|datagram ADDRESS:PORT` from standard input, and uses all of them at
//!   the same time until SIGTERM. A stream stays connected. A request is a new connection each time. A failure is a line
//!   `MILLISECONDS NAME KIND REASON` on standard output, with the time since 1970. SIGUSR1 prints the lines
//!   `total NAME KIND asked N failed N longest N`, and begins to count anew.

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{SigSet, Signal};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const HTTP: u16 = 8000;
const ECHO: u16 = 9000;
const DATAGRAMS: u16 = 5353;
/// The time from one question to the next.
const PERIOD: Duration = Duration::from_millis(500);
/// A new connection, or the answer of a new connection, must come within this time: the kernel repeats a lost packet after a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// An open stream without an answer for so long is lost.
const SILENCE: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve"] => serve(),
        ["watch"] => watch(),
        ["ask", kind, address] => {
            print!("{}", way(kind)?(address.parse().context("address")?, &mut None)?);
            Ok(())
        }
        _ => bail!("usage: traffic serve|watch, or traffic ask request|datagram ADDRESS:PORT"),
    }
}

/// The thread that calls it gets these signals. Call it before the first thread starts: threads inherit the mask.
fn signals() -> Result<SigSet> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGUSR1].into_iter().collect();
    signals.thread_block()?;
    Ok(signals)
}

/// Binds with `bind` to all addresses: of both families, or of IPv4 alone in a namespace without IPv6.
fn anywhere<T>(port: u16, bind: impl Fn(SocketAddr) -> std::io::Result<T>) -> Result<T> {
    bind((Ipv6Addr::UNSPECIFIED, port).into())
        .or_else(|_| bind((Ipv4Addr::UNSPECIFIED, port).into()))
        .with_context(|| format!("port {port}"))
}

fn answer(client: IpAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} {}\n", host.trim(), client.to_canonical())
}

fn serve() -> Result<()> {
    let signals = signals()?;
    let (http, echo) = (anywhere(HTTP, TcpListener::bind)?, anywhere(ECHO, TcpListener::bind)?);
    let datagrams = anywhere(DATAGRAMS, UdpSocket::bind)?;
    spawn(move || {
        let mut bytes = [0; 64];
        loop {
            // An error is an earlier client's that has gone.
            if let Ok((_, client)) = datagrams.recv_from(&mut bytes) {
                let _ = datagrams.send_to(answer(client.ip()).as_bytes(), client);
            }
        }
    });
    // A client that has gone needs no answer.
    accept(http, |mut stream, client| {
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes);
        let body = answer(client.ip());
        let _ = write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    });
    accept(echo, |mut stream, _| {
        let mut bytes = [0; 64];
        while let Ok(length) = stream.read(&mut bytes) {
            if length == 0 || stream.write_all(bytes.get(..length).unwrap_or_default()).is_err() {
                break;
            }
        }
    });
    while signals.wait()? != Signal::SIGTERM {}
    Ok(())
}

/// Serves each client of the listener in a thread.
fn accept(listener: TcpListener, serve: fn(TcpStream, SocketAddr)) {
    spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, client)) => drop(spawn(move || serve(stream, client))),
                Err(_) => sleep(PERIOD),
            }
        }
    });
}

#[derive(Default)]
struct Count {
    asked: u64,
    failed: u64,
    longest: Duration,
}

/// A way to ask a server. The last argument is the open connection of a stream.
type Way = fn(SocketAddr, &mut Option<TcpStream>) -> Result<String>;

fn way(kind: &str) -> Result<Way> {
    Ok(match kind {
        "stream" => stream,
        "request" => request,
        "datagram" => datagram,
        _ => bail!("{kind}: this is not stream, request or datagram"),
    })
}

fn watch() -> Result<()> {
    let signals = signals()?;
    let counts: Arc<Mutex<BTreeMap<String, Count>>> = Arc::default();
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, kind, address] = words.as_slice() else { bail!("{line}: NAME KIND ADDRESS:PORT") };
        let (ask, what) = (way(kind)?, format!("{name} {kind}"));
        let address = address.parse().with_context(|| line.clone())?;
        let counts = Arc::clone(&counts);
        spawn(move || {
            let mut open = None;
            loop {
                let began = Instant::now();
                let answered = ask(address, &mut open);
                let took = began.elapsed();
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                let count = counts.entry(what.clone()).or_default();
                count.asked += 1;
                count.longest = count.longest.max(took);
                if let Err(error) = answered {
                    count.failed += 1;
                    open = None;
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    println!("{} {what} {error:#}", now.as_millis());
                }
                drop(counts);
                sleep(PERIOD.saturating_sub(took));
            }
        });
    }
    while signals.wait()? != Signal::SIGTERM {
        for (what, count) in std::mem::take(&mut *counts.lock().unwrap_or_else(PoisonError::into_inner)) {
            println!(
                "total {what} asked {} failed {} longest {}",
                count.asked,
                count.failed,
                count.longest.as_millis()
            );
        }
        // The last line of this answer.
        println!("counted");
    }
    // The threads still ask.
    std::process::exit(0)
}

/// Connects, with a time limit for each read.
fn connect(address: SocketAddr, limit: Duration) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).context("connect")?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn stream(address: SocketAddr, open: &mut Option<TcpStream>) -> Result<String> {
    let stream = match open {
        Some(stream) => stream,
        None => open.insert(connect(address, SILENCE)?),
    };
    let mut back = [0; 4];
    stream.write_all(b"echo").context("write")?;
    stream.read_exact(&mut back).context("read")?;
    ensure!(&back == b"echo", "other bytes came back");
    Ok(String::new())
}

fn request(address: SocketAddr, _: &mut Option<TcpStream>) -> Result<String> {
    let mut stream = connect(address, PATIENCE)?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").context("write")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("read")?;
    let (head, body) = text.split_once("\r\n\r\n").context("no answer of HTTP")?;
    ensure!(head.contains("200 OK"), "{head}");
    Ok(body.to_owned())
}

/// Asks three times: a datagram may be lost.
fn datagram(address: SocketAddr, _: &mut Option<TcpStream>) -> Result<String> {
    let any = if address.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.connect(address)?;
    let mut bytes = vec![0; 256];
    // An earlier ICMP error would be the answer of the next call.
    let mut ask = || socket.send(b"who").and_then(|_| socket.recv(&mut bytes));
    let length = ask().or_else(|_| ask()).or_else(|_| ask()).context("no answer")?;
    bytes.truncate(length);
    String::from_utf8(bytes).context("answer")
}
