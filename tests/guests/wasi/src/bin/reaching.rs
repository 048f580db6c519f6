//! Tries parts of WASI that a plugin must not use: files, sockets, names, HTTP requests, and long waits.
//!
//! The key `do` of the network names the part. The program ends with an error object, whose text is the result.

#[cfg(target_os = "wasi")]
mod reaching {
    use std::fmt::Write;
    use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
    use std::time::{Duration, Instant, SystemTime};
    use wasip2::cli::{stderr, stdin, stdout};
    use wasip2::clocks::monotonic_clock;
    use wasip2::filesystem::preopens;
    use wasip2::http::outgoing_handler;
    use wasip2::http::types::{Fields, OutgoingRequest};
    use wasip2::io::poll::poll;
    use wasip2::sockets::network::IpAddressFamily;
    use wasip2::sockets::{instance_network, ip_name_lookup, tcp_create_socket, udp_create_socket};

    pub fn run(what: &str) -> String {
        match what {
            "files" => files(),
            "sockets" => sockets(),
            "raw-sockets" => raw_sockets(),
            "names" => names(),
            "http" => http(),
            "http-else" => format!("{} headers", Fields::new().entries().len()),
            "clock" => clock(),
            "wait" => {
                std::thread::sleep(Duration::MAX);
                "woke up".to_owned()
            }
            "subscribe" => {
                monotonic_clock::subscribe_instant(u64::MAX).block();
                "woke up".to_owned()
            }
            "poll" => poll_many(1_000_000),
            "poll-some" => poll_many(4000),
            "poll-few" => poll_many(1000),
            "streams" => streams(),
            "memory" => memory(),
            "spin" => loop {
                monotonic_clock::subscribe_duration(0).block();
            },
            "random" => format!("{} bytes", wasip2::random::random::get_random_bytes(1 << 40).len()),
            "flood" => flood(),
            other => format!("there is no {other}"),
        }
    }

    fn kind<T>(result: std::io::Result<T>) -> String {
        result.map_or_else(|error| format!("{:?}", error.kind()), |_| "OPEN".to_owned())
    }

    fn files() -> String {
        let mut text = format!("{} directories", preopens::get_directories().len());
        for path in ["/", "/etc/passwd", "/proc/self/status", ".", "../../etc/shadow", "/dev/urandom"] {
            let _ = write!(text, "; {}", kind(std::fs::File::open(path)));
            let _ = write!(text, " {}", kind(std::fs::write(path, "x")));
        }
        let _ = write!(text, "; {}", kind(std::fs::read_dir("/")));
        let _ = write!(text, "; {}", kind(std::fs::create_dir("/tmp/x")));
        let _ = write!(text, "; {}", kind(std::fs::remove_file("/etc/passwd")));
        text
    }

    fn sockets() -> String {
        format!(
            "{} {} {} {}",
            kind(TcpStream::connect(("127.0.0.1", 22))),
            kind(TcpListener::bind(("0.0.0.0", 8080))),
            kind(UdpSocket::bind(("0.0.0.0", 0))),
            kind(TcpStream::connect(("::1", 80)))
        )
    }

    fn raw_sockets() -> String {
        let network = instance_network::instance_network();
        let tcp = tcp_create_socket::create_tcp_socket(IpAddressFamily::Ipv4).map(|_| "OPEN");
        let udp = udp_create_socket::create_udp_socket(IpAddressFamily::Ipv6).map(|_| "OPEN");
        let name = ip_name_lookup::resolve_addresses(&network, "localhost").map(|_| "OPEN");
        format!("{tcp:?} {udp:?} {name:?}")
    }

    fn names() -> String {
        kind(("localhost", 80).to_socket_addrs())
    }

    fn http() -> String {
        let headers =
            Fields::from_list(&[("accept".to_owned(), b"text/html".to_vec())]).unwrap_or_else(|_| Fields::new());
        let request = OutgoingRequest::new(headers);
        let set =
            request.set_authority(Some("169.254.169.254")).is_ok() && request.set_path_with_query(Some("/")).is_ok();
        let body = request.body().is_ok();
        format!("{set} {body} {:?}", outgoing_handler::handle(request, None).map(|_| "SENT"))
    }

    fn clock() -> String {
        let (start, wall) = (Instant::now(), SystemTime::now());
        std::thread::sleep(Duration::from_millis(50));
        let took = start.elapsed();
        let year = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 31_557_600 + 1970);
        let in_time = took >= Duration::from_millis(50) && took < Duration::from_secs(20);
        let order = poll(&[
            &monotonic_clock::subscribe_duration(30_000_000_000),
            &monotonic_clock::subscribe_duration(1_000_000),
        ]);
        let ready = monotonic_clock::subscribe_duration(30_000_000_000).ready();
        let instant = monotonic_clock::resolution() > 0 && wasip2::clocks::wall_clock::resolution().nanoseconds > 0;
        format!("slept {in_time}, after 2020 {}, poll {order:?}, ready {ready}, resolution {instant}", year > 2020)
    }

    fn poll_many(count: usize) -> String {
        let pollables: Vec<_> = (0..count).map(|_| monotonic_clock::subscribe_duration(3_600_000_000_000)).collect();
        let now = monotonic_clock::subscribe_duration(1);
        let all: Vec<_> = pollables.iter().chain([&now]).collect();
        format!("of {} ready {:?}", all.len(), poll(&all))
    }

    fn streams() -> String {
        let mut all = Vec::new();
        for _ in 0..1_000_000 {
            let input = stdin::get_stdin();
            all.push((input.subscribe(), input, stdout::get_stdout(), stderr::get_stderr()));
        }
        format!("{} streams", all.len())
    }

    fn memory() -> String {
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            all.push(vec![1; 1 << 20]);
        }
    }

    fn flood() -> String {
        let out = stdout::get_stdout();
        for _ in 0..1024 {
            let _ = out.blocking_write_and_flush(&[b'x'; 4096]);
        }
        "not ended".to_owned()
    }
}

#[cfg(target_os = "wasi")]
fn main() -> std::process::ExitCode {
    let input = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
    if std::env::var("CNI_COMMAND").as_deref() != Ok("ADD") {
        return std::process::ExitCode::SUCCESS;
    }
    let what = input.split_once(r#""do":""#).and_then(|(_, rest)| rest.split_once('"')).map_or("", |(what, _)| what);
    let found = reaching::run(what);
    let words = found.replace('\\', "/").replace('"', "'");
    println!(r#"{{"cniVersion":"1.1.0","code":100,"msg":"{words}","details":""}}"#);
    std::process::ExitCode::FAILURE
}

/// This program is only for the sandbox.
#[cfg(not(target_os = "wasi"))]
fn main() {}
