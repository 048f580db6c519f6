//! One end of a connection, for tests of forwarded ports.
//!
//! * `talk has sctp`: prints `yes` or `no`.
//! * `talk serve tcp|udp|sctp ADDRESS:PORT`: prints `ready`, and answers each client with the client's address, until
//!   standard input ends.
//! * `talk ask tcp|udp|sctp ADDRESS:PORT [LOCAL:PORT]`: prints the answer, or `nobody` after a second.
//! * `talk gauge ADDRESS:PORT`: prints `ready`, and receives datagrams until none comes for a while. Then it prints the
//!   number of bytes, and the microseconds from the first to the last datagram.
//! * `talk pour ADDRESS:PORT DATAGRAMS`: sends DATAGRAMS datagrams of [`DATAGRAM`] bytes, as fast as possible.

use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, bind, connect,
    listen, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);
/// The bytes of a datagram that `pour` sends. With headers, it fits into one frame.
const DATAGRAM: usize = 1400;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["has", "sctp"] => {
            println!("{}", if sctp(SocketAddr::from(([127, 0, 0, 1], 0))).is_ok() { "yes" } else { "no" });
            Ok(())
        }
        ["serve", protocol, address] => serve(protocol, address.parse().context("address")?),
        ["ask", protocol, address, from @ ..] => {
            let from = from.first().map(|from| from.parse()).transpose().context("address")?;
            let answer = ask(protocol, address.parse().context("address")?, from);
            println!("{}", answer.unwrap_or_else(|_| "nobody".to_owned()));
            Ok(())
        }
        ["gauge", address] => gauge(address.parse().context("address")?),
        ["pour", address, datagrams] => {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            for _ in 0..datagrams.parse().context("datagrams")? {
                // A full queue does not end the program.
                let _ = socket.send_to(&[7; DATAGRAM], address);
            }
            Ok(())
        }
        _ => bail!("usage: talk has|serve|ask|gauge|pour ARGUMENT..."),
    }
}

/// Returns the address in the kernel's form.
fn to_kernel(address: SocketAddr) -> Box<dyn SockaddrLike> {
    match address {
        SocketAddr::V4(address) => Box::new(SockaddrIn::from(address)),
        SocketAddr::V6(address) => Box::new(SockaddrIn6::from(address)),
    }
}

/// Returns an SCTP socket in TCP style.
fn sctp(address: SocketAddr) -> Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    Ok(socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Sctp)?)
}

fn ready() -> Result<()> {
    println!("ready");
    std::io::stdout().flush().context("stdout")
}

fn serve(protocol: &str, address: SocketAddr) -> Result<()> {
    // The server ends with its test, which closes standard input.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    if protocol == "udp" {
        let socket = UdpSocket::bind(address)?;
        ready()?;
        let mut bytes = [0; 64];
        loop {
            let (_, from) = socket.recv_from(&mut bytes)?;
            socket.send_to(from.ip().to_string().as_bytes(), from)?;
        }
    }
    let listener = if protocol == "sctp" {
        let socket = sctp(address)?;
        bind(socket.as_raw_fd(), &*to_kernel(address))?;
        listen(&socket, Backlog::new(16)?)?;
        TcpListener::from(socket)
    } else {
        TcpListener::bind(address)?
    };
    ready()?;
    loop {
        let (mut stream, from) = listener.accept()?;
        // A client that has disconnected needs no answer.
        let _ = stream.write_all(from.ip().to_string().as_bytes());
    }
}

fn gauge(address: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(address)?;
    ready()?;
    let mut bytes = [0; 2 * DATAGRAM];
    let mut total = socket.recv(&mut bytes)?;
    let (first, mut last) = (Instant::now(), Duration::ZERO);
    socket.set_read_timeout(Some(PATIENCE))?;
    while let Ok(length) = socket.recv(&mut bytes) {
        total += length;
        last = first.elapsed();
    }
    println!("{total} {}", last.as_micros());
    Ok(())
}

fn ask(protocol: &str, address: SocketAddr, from: Option<SocketAddr>) -> Result<String> {
    let mut bytes = vec![0; 64];
    let length = if protocol == "udp" {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(from.map_or_else(|| any.parse(), Ok)?)?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(b"who")?;
        socket.recv(&mut bytes)?
    } else {
        let mut stream = if protocol == "sctp" {
            let socket = sctp(address)?;
            setsockopt(&socket, sockopt::SendTimeout, &TimeVal::seconds(1))?;
            connect(socket.as_raw_fd(), &*to_kernel(address))?;
            TcpStream::from(socket)
        } else {
            TcpStream::connect_timeout(&address, PATIENCE)?
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read(&mut bytes)?
    };
    bytes.truncate(length);
    String::from_utf8(bytes).context("answer")
}
