//! The native dhcp plugin and its daemon, beside Postern's plugin and service. Each plugin recognizes the other service
//! at once, and a switch between the services loses no address.

use crate::lab::{Lab, attachment};
use anyhow::{Context, Result, bail, ensure};
use postern_dhcp_channel::{Answer, Ask, Channel, ServiceError};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Returns the path of the native program, which `tests/fetch-native` fetches.
pub fn native() -> Result<PathBuf> {
    let path = std::env::var_os("POSTERN_NATIVE")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/native")), PathBuf::from);
    let program = path.join("bin/dhcp");
    ensure!(program.is_file(), "no {}: `tests/fetch-native` fetches it", program.display());
    Ok(program.canonicalize()?)
}

/// Calls the native program as a runtime does, for a network with these keys in `ipam`.
pub fn call(lab: &Lab, verb: &str, ipam: &Value, args: &str) -> Result<Value> {
    let mut configuration = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge",
        "ipam": {"type": "dhcp", "daemonSocketPath": lab.socket()}});
    let keys = configuration.get_mut("ipam").and_then(Value::as_object_mut);
    if let (Some(all), Some(more)) = (keys, ipam.as_object()) {
        all.extend(more.clone());
    }
    let input = lab.dir.join("input");
    std::fs::write(&input, configuration.to_string())?;
    let text = lab.node.sh(&format!(
        "CNI_COMMAND={verb} CNI_CONTAINERID=c1 CNI_NETNS=/run/netns/c1 CNI_IFNAME=eth0 CNI_PATH=/none CNI_ARGS='{args}' \
         {} < {} || true",
        native()?.display(),
        input.display()
    ))?;
    Ok(if text.trim().is_empty() { Value::Null } else { serde_json::from_str(&text).with_context(|| text)? })
}

/// Our service refuses the native plugin at once, in a line that names the systemd units.
#[test]
fn a_native_client_is_told_whose_service_it_is() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.serve("")?;
    let began = Instant::now();
    for verb in ["ADD", "CHECK", "DEL"] {
        let error = call(&lab, verb, &json!({}), "")?;
        let words = error["msg"].as_str().unwrap_or_default();
        ensure!(words.contains("postern-dhcp.service") && words.contains("cni-dhcp.service"), "{verb}: {error}");
    }
    ensure!(began.elapsed() < Duration::from_secs(5), "the client waited: {:?}", began.elapsed());
    ensure!(lab.leases()?.is_empty());
    Ok(())
}

/// Postern's client recognizes a native daemon at once. It sends no request, and the daemon keeps its lease.
#[test]
fn a_native_daemon_is_known_at_once() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.native_daemon(&native()?)?;
    let theirs = call(&lab, "ADD", &json!({}), "")?;
    ensure!(theirs["ips"][0]["address"].is_string(), "{theirs}");
    let began = Instant::now();
    let refused = Channel::connect(&lab.socket(), began + Duration::from_secs(30));
    ensure!(refused.as_ref().err() == Some(&ServiceError::Native), "{refused:?}");
    ensure!(began.elapsed() < Duration::from_secs(5), "the client waited: {:?}", began.elapsed());
    ensure!(!lab.log("dnsmasq").contains("DHCPRELEASE"), "{}", lab.log("dnsmasq"));
    ensure!(call(&lab, "ADD", &json!({}), "")? == theirs, "the daemon has lost the lease");
    Ok(())
}

/// The node switches from the native daemon to our service and back, while a container lives. Its address stays on the
/// link, and no lease is released before the container's DEL.
#[test]
fn a_living_container_keeps_its_address_over_a_switch() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    let program = native()?;
    lab.native_daemon(&program)?;
    let theirs = call(&lab, "ADD", &json!({}), "")?;
    let address = theirs["ips"][0]["address"].as_str().context("no address")?.to_owned();
    lab.node.sh(&format!("ip -n c1 address add {address} dev eth0"))?;
    let stands = || -> Result<()> {
        ensure!(lab.node.sh("ip -n c1 -o address show dev eth0")?.contains(&address), "the address is gone");
        ensure!(!lab.log("dnsmasq").contains("DHCPRELEASE"), "{}", lab.log("dnsmasq"));
        Ok(())
    };
    lab.kill("native", "TERM")?;
    stands()?;
    lab.serve("")?;
    stands()?;
    // The container's DEL: our service has no such lease, so the release succeeds.
    let until = Instant::now() + Duration::from_secs(30);
    let mut channel = Channel::connect(&lab.socket(), until)?;
    ensure!(channel.ask(&Ask::Release(attachment("c1", &json!({}))), None, until)? == Answer::Done);
    stands()?;
    let Answer::Lease(ours) = channel.ask(&Ask::Acquire(attachment("c1", &json!({}))), None, until)? else {
        bail!("no lease")
    };
    ensure!(crate::lab::address(&ours) == address, "the server gave another address: {ours:?}");
    // The node switches back to the native daemon.
    lab.kill("service", "TERM")?;
    stands()?;
    lab.native_daemon(&program)?;
    stands()?;
    ensure!(call(&lab, "DEL", &json!({}), "")? == Value::Null);
    stands()
}
