//! The command line: the native daemon's flags, so that the native daemon's unit file works unchanged.

use postern_dhcp::Timeouts;
use postern_dhcp_channel::DEFAULT_SOCKET;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-pidfile`.
    pub pidfile: Option<PathBuf>,
    /// `-hostprefix`: the prefix of the socket's path, and of each namespace's path.
    pub host_prefix: String,
    /// `-socketpath`.
    pub socket: PathBuf,
    /// `-broadcast`: servers are asked to broadcast their answers.
    pub broadcast: bool,
    /// `-timeout`, `-resendmax`, `-resendtimeout`.
    pub timeouts: Timeouts,
}

impl Default for Options {
    fn default() -> Self {
        let (socket, timeouts) = (DEFAULT_SOCKET.into(), Timeouts::default());
        Self { pidfile: None, host_prefix: String::new(), socket, broadcast: false, timeouts }
    }
}

/// The text of `--help`.
pub const HELP: &str = "\
usage: postern dhcp serve [OPTIONS]

Keeps DHCP leases alive, for the plugin \"dhcp\". Runs until SIGTERM. Under
systemd it uses systemd's socket (postern-dhcp.socket).

  --socketpath PATH      the socket (/run/cni/dhcp.sock)
  --pidfile PATH         write the process ID to this file
  --hostprefix PATH      directory with the node's files: a prefix of the
                         socket's path and of the paths of namespaces
  --broadcast            servers shall broadcast their answers
  --timeout TIME         wait for an answer (10s)
  --resendmax TIME       longest wait before a packet is sent again (62s)
  --resendtimeout TIME   longest time to get a lease (3m28s)

An option may begin with one dash, like the native daemon's options, and may
have `=` before its value.
";

/// The request of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DhcpCommand {
    /// The service.
    Serve(Options),
    /// The text about the service's options.
    Help,
}

/// Reads the arguments behind the program's name. `serve` and `daemon` may come first.
///
/// Without arguments no service starts: some programs start each file of a CNI bin directory without arguments, to
/// learn the file's version.
pub fn parse(arguments: &[String]) -> Result<DhcpCommand, String> {
    if arguments.is_empty() {
        return Err("usage: postern-dhcpd serve [OPTIONS], which keeps DHCP leases alive".to_owned());
    }
    let mut options = Options::default();
    let mut rest = arguments.iter().enumerate();
    while let Some((at, argument)) = rest.next() {
        if at == 0 && (argument == "serve" || argument == "daemon") {
            continue;
        }
        let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        let flag = flag.ok_or_else(|| format!("\"{argument}\" is no option"))?;
        let (name, given) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        let mut value = || match given {
            Some(value) => Ok(value),
            None => rest.next().map(|(_, value)| value.as_str()).ok_or_else(|| format!("-{name} needs a value")),
        };
        match name {
            "h" | "help" => return Ok(DhcpCommand::Help),
            "broadcast" => {
                options.broadcast = match given {
                    None | Some("true" | "1" | "t" | "T" | "TRUE" | "True") => true,
                    Some("false" | "0" | "f" | "F" | "FALSE" | "False") => false,
                    Some(other) => return Err(format!("-broadcast is true or false, and not \"{other}\"")),
                }
            }
            "pidfile" => options.pidfile = Some(absolute(name, value()?)?).filter(|path| path.as_os_str() != ""),
            "hostprefix" => options.host_prefix = value()?.to_owned(),
            "socketpath" => options.socket = value()?.into(),
            "timeout" => options.timeouts.request_ms = time(name, value()?)?,
            "resendmax" => options.timeouts.resend_max_ms = time(name, value()?)?,
            "resendtimeout" => options.timeouts.resend_ms = time(name, value()?)?,
            _ => return Err(format!("there is no option -{name}")),
        }
    }
    let socket = format!("{}{}", options.host_prefix, options.socket.display());
    options.socket = absolute("socketpath", &socket)?;
    Ok(DhcpCommand::Serve(options))
}

fn time(name: &str, value: &str) -> Result<u64, String> {
    let time = duration(value).filter(|time| !time.is_zero());
    let time = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    time.ok_or_else(|| format!("-{name} is a time such as 10s or 3m28s, and not \"{value}\""))
}

fn absolute(name: &str, value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if value.is_empty() || path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("-{name} is an absolute path, and not \"{value}\""))
    }
}

/// Reads a duration as Go writes it: numbers with units, such as `1m30s` or `1.5s`.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "\u{b5}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        sum = sum.checked_add(part)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        let arguments: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        parse(&arguments).map(|wanted| match wanted {
            DhcpCommand::Serve(options) => options,
            DhcpCommand::Help => panic!("help"),
        })
    }

    /// The flags of the native daemon, in each form that Go accepts.
    #[test]
    fn the_flags_of_the_native_daemon() {
        let usual = Options { socket: "/run/cni/dhcp.sock".into(), ..Options::default() };
        assert_eq!(read("serve").unwrap(), usual);
        assert_eq!(read("daemon").unwrap(), usual);
        let options = read(
            "daemon -pidfile /run/dhcp.pid --hostprefix=/host -socketpath /run/x.sock -broadcast=true -timeout 5s \
             --resendmax 1m2s -resendtimeout=500ms",
        )
        .unwrap();
        assert_eq!(options.pidfile, Some("/run/dhcp.pid".into()));
        assert_eq!(options.socket, PathBuf::from("/host/run/x.sock"));
        assert_eq!(options.host_prefix, "/host");
        assert!(options.broadcast);
        assert_eq!(options.timeouts, Timeouts { request_ms: 5000, resend_max_ms: 62_000, resend_ms: 500 });
        assert_eq!(read("-pidfile=").unwrap().pidfile, None);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (line, words) in [
            ("", "usage: postern-dhcpd serve [OPTIONS]"),
            ("-pidfile run.pid", "-pidfile is an absolute path"),
            ("-socketpath x", "-socketpath is an absolute path"),
            ("-timeout 5", "-timeout is a time"),
            ("-timeout 0s", "-timeout is a time"),
            ("-timeout", "-timeout needs a value"),
            ("-broadcast=perhaps", "-broadcast is true or false"),
            ("-nonsense 1", "there is no option -nonsense"),
            ("serve serve", "\"serve\" is no option"),
        ] {
            assert!(read(line).unwrap_err().contains(words), "{line}");
        }
    }
}
