//! The first lines of a connection.

/// The greeting of the service's own protocol.
pub const OWN: &str = "/postern/1";

/// The greeting of Go's net/rpc, with which native daemons and their clients begin.
pub const GO: &str = "/_goRPC_";

/// The longest greeting, or answer to a greeting, in bytes.
pub const LONGEST: usize = 4 << 10;

/// Returns the text that a client sends first.
pub fn call(path: &str) -> String {
    format!("CONNECT {path} HTTP/1.0\r\n\r\n")
}

/// The service's answer to a client that speaks Postern's protocol.
pub const ACCEPTED: &str = "HTTP/1.0 200 Connected to Postern\r\n\r\n";

/// The service's answer to a native client, which shows this line to people.
pub const NATIVE: &str = "HTTP/1.0 404 this is postern-dhcp.service, which serves Postern's dhcp plugin only: install \
                          that plugin, or go back by `systemctl disable --now postern-dhcp.socket postern-dhcp.service` \
                          and `systemctl enable --now cni-dhcp.socket cni-dhcp.service`\r\n\r\n";

/// The service's answer to any other client.
pub const UNKNOWN: &str = "HTTP/1.0 404 Not Found\r\n\r\n";

/// Returns the length of a complete greeting, with the empty line at its end.
pub fn end(bytes: &[u8]) -> Option<usize> {
    let ends: [&[u8]; 2] = [b"\r\n\r\n", b"\n\n"];
    let found = |end: &&[u8]| bytes.windows(end.len()).position(|window| window == *end).map(|at| at + end.len());
    ends.iter().filter_map(found).min()
}

/// Returns the path that a client asks for; `None` if the text is no greeting.
pub fn path(greeting: &[u8]) -> Option<&str> {
    let mut words = first_line(greeting)?.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    (method == "CONNECT" && words.next()?.starts_with("HTTP/1.")).then_some(path)
}

/// Returns the status of an answer; `None` if the text is no answer.
pub fn status(answer: &[u8]) -> Option<u16> {
    let mut words = first_line(answer)?.split(' ');
    words.next().filter(|word| word.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

fn first_line(bytes: &[u8]) -> Option<&str> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok().map(|line| line.trim_end_matches('\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_of_both_kinds() {
        for (bytes, expected) in [
            (call(OWN).as_bytes(), Some("/postern/1")),
            (b"CONNECT /_goRPC_ HTTP/1.0\n\n".as_slice(), Some("/_goRPC_")),
            (b"GET / HTTP/1.1\r\n\r\n", None),
            (b"\xff\n\n", None),
        ] {
            assert_eq!(end(bytes), Some(bytes.len()));
            assert_eq!(path(bytes), expected);
        }
        assert_eq!(end(b"CONNECT / HTTP/1.0\r\n"), None);
        assert_eq!(status(b"HTTP/1.0 200 Connected to Go RPC\n\n"), Some(200));
        // The status line must not contain a line end.
        assert!(status(NATIVE.as_bytes()) == Some(404) && NATIVE.trim_end().lines().count() == 1);
        assert_eq!(status(b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\n"), Some(404));
        assert_eq!(status(b"nonsense\n\n"), None);
    }
}
