//! The socket that systemd passes to the service (sd_listen_fds(3)), and descriptors that the service refuses.

use crate::lab::{Lab, address, attachment, wait};
use anyhow::{Context, Result, ensure};
use postern_dhcp_channel::{Answer, Ask};
use postern_tests::{plugin_bin, skip};
use serde_json::json;
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The variables of systemd for the process of the service itself.
const OWN: &str = "LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_FDNAMES=postern-dhcp.socket";

/// Returns the command that starts the service with `given` as descriptor 3, as systemd does. Tests end the service by
/// a signal.
fn service(lab: &Lab, variables: &str, given: OwnedFd, options: &str) -> Result<Command> {
    let postern = plugin_bin()?.join("postern");
    let own = lab.dir.join("service");
    let script = format!(
        "exec 3<&0 </dev/null; echo $$ > {own}.pid; {variables} exec {} dhcp serve {options} >> {own}.log 2>&1",
        postern.display(),
        own = own.display()
    );
    let mut command = lab.node.command("sh");
    command.args(["-c", &script]).stdin(Stdio::from(given));
    Ok(command)
}

fn start(lab: &Lab, variables: &str, given: &UnixListener, options: &str) -> Result<()> {
    service(lab, variables, given.try_clone()?.into(), options)?.spawn()?;
    wait(Duration::from_secs(10), || Ok(lab.ask(&Ask::Alive).is_ok())).with_context(|| lab.log("service"))
}

/// systemd's socket stays when the service ends. The next service answers requests that came meanwhile.
#[test]
fn the_socket_of_systemd_is_served_and_stays() -> Result<()> {
    let lab = Lab::with_client(&["c1"], plugin_bin()?)?;
    lab.dnsmasq("--dhcp-authoritative")?;
    let listener = UnixListener::bind(lab.socket())?;
    let pidfile = lab.dir.join("own.pidfile");
    start(&lab, OWN, &listener, &format!("--pidfile {}", pidfile.display()))?;
    ensure!(std::fs::read_to_string(&pidfile)?.trim() == lab.pid("service")?.to_string());
    let c1 = attachment("c1", &json!({}));
    let lease = lab.acquire(&c1)?;
    lab.kill("service", "TERM")?;
    ensure!(lab.socket().exists() && !pidfile.exists(), "the socket is gone, or the PID file is left");
    // Between two services, the request waits in systemd's socket.
    std::thread::scope(|scope| -> Result<()> {
        let asked = scope.spawn(|| lab.ask(&Ask::Check(c1.clone())));
        std::thread::sleep(Duration::from_millis(100));
        start(&lab, OWN, &listener, "")?;
        let answer = asked.join().map_err(|_| anyhow::anyhow!("the thread failed"))??;
        ensure!(matches!(&answer, Answer::Lease(now) if address(now) == address(&lease)), "{answer:?}");
        Ok(())
    })
}

/// The service ignores variables for another process.
#[test]
fn a_socket_of_another_process_is_not_taken() -> Result<()> {
    let lab = Lab::with_client(&[], plugin_bin()?)?;
    let other = lab.dir.join("other.sock");
    let listener = UnixListener::bind(&other)?;
    let own = format!("--socketpath {}", lab.socket().display());
    for variables in ["LISTEN_FDS=1 LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDS=1 LISTEN_PID=nonsense"] {
        start(&lab, variables, &listener, &own)?;
        lab.kill("service", "TERM")?;
        ensure!(!lab.socket().exists() && other.exists(), "{variables}");
    }
    Ok(())
}

/// When the service starts, it refuses a wrong descriptor with a message, before the first client.
#[test]
fn what_is_no_listening_socket_is_refused() -> Result<()> {
    let lab = Lab::with_client(&[], plugin_bin()?)?;
    let many = OWN.replace("FDS=1", "FDS=2");
    let none = OWN.replace("FDS=1", "FDS=0");
    let listener = || -> Result<OwnedFd> {
        let _ = std::fs::remove_file(lab.socket());
        Ok(UnixListener::bind(lab.socket())?.into())
    };
    for (variables, given, words) in [
        (many.as_str(), listener()?, "gives 2 sockets instead of one"),
        (none.as_str(), listener()?, "gives 0 sockets instead of one"),
        (OWN, File::open("/dev/null")?.into(), "is no listening socket"),
        (OWN, UnixStream::pair()?.0.into(), "is no listening socket"),
        (OWN, UnixDatagram::unbound()?.into(), "is no listening socket"),
        (OWN, TcpListener::bind("127.0.0.1:0")?.into(), "is no UNIX stream socket"),
    ] {
        let ended = service(&lab, variables, given, "")?.output()?;
        let said = lab.log("service");
        ensure!(ended.status.code() == Some(1) && said.contains(words), "{words}: {}: {said}", ended.status);
        std::fs::remove_file(lab.dir.join("service.log"))?;
    }
    Ok(())
}

/// systemd-socket-activate stands for systemd: it opens the socket, and starts the service for the first client.
#[test]
fn systemd_starts_the_service_for_its_first_client() -> Result<()> {
    let is_there = Command::new("systemd-socket-activate").arg("--version").output().is_ok();
    if !is_there {
        skip("systemd-socket-activate is not installed");
        return Ok(());
    }
    let lab = Lab::with_client(&["c1"], plugin_bin()?)?;
    lab.dnsmasq("--dhcp-authoritative")?;
    let plugin = plugin_bin()?.join("dhcp");
    // The native daemon's unit file has this command. With the path of our plugin, the command starts our service.
    let command = format!("systemd-socket-activate --listen={} {} daemon", lab.socket().display(), plugin.display());
    lab.background("service", &command)?;
    // The socket's file exists before systemd listens.
    lab.until_said("service", "Listening on")?;
    let c1 = attachment("c1", &json!({}));
    lab.acquire(&c1)?;
    ensure!(lab.ask(&Ask::Release(c1))? == Answer::Done);
    lab.kill("service", "TERM")?;
    ensure!(lab.socket().exists(), "the service removed systemd's socket");
    Ok(())
}
