//! The native program and its daemon: each half works with ours.

use crate::lab::{Lab, address, attachment};
use anyhow::{Context, Result, bail, ensure};
use postern_dhcp_channel::{Answer, Ask, Channel};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The native program, which `tests/fetch-native` fetches.
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

#[test]
fn native_clients_use_our_service() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative --dhcp-option-force=121,10.8.0.0/16,10.5.0.2,0.0.0.0/0,10.5.0.1")?;
    lab.serve("")?;
    let result = call(&lab, "ADD", &json!({}), "")?;
    let held = lab.leases()?;
    let [one] = held.as_slice() else { bail!("{held:?}: {result}") };
    let lease = one.lease.clone().context("no lease")?;
    ensure!(result["ips"][0]["address"] == json!(address(&lease)), "{result}");
    ensure!(result["ips"][0]["gateway"] == json!("10.5.0.1"), "{result}");
    ensure!(result["routes"].to_string().contains("10.8.0.0/16"), "{result}");
    ensure!(call(&lab, "CHECK", &json!({}), "")? == Value::Null);
    ensure!(call(&lab, "DEL", &json!({}), "")? == Value::Null && lab.leases()?.is_empty());
    ensure!(call(&lab, "DEL", &json!({}), "")? == Value::Null);
    lab.until_said("dnsmasq", "DHCPRELEASE")?;
    // An error comes through, in our words.
    lab.node.sh("ip -n c1 link del eth0")?;
    let error = call(&lab, "ADD", &json!({}), "")?;
    ensure!(error["msg"].to_string().contains("has no link"), "{error}");
    Ok(())
}

#[test]
fn our_channel_uses_a_native_daemon() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.native_daemon(&native()?)?;
    let until = Instant::now() + Duration::from_secs(30);
    let mut channel = Channel::connect(&lab.socket(), until)?;
    ensure!(channel.is_native());
    let c1 = attachment("c1", &json!({}));
    ensure!(channel.ask(&Ask::Alive, None, until)? == Answer::Done);
    let Answer::Lease(lease) = channel.ask(&Ask::Acquire(c1.clone()), None, until)? else { bail!("no lease") };
    ensure!(address(&lease).starts_with("10.5.0."), "{lease:?}");
    ensure!(lease.addresses.first().and_then(|one| one.gateway) == Some("10.5.0.1".parse()?), "{lease:?}");
    ensure!(lease.routes.iter().any(|route| route.dst.prefix_len() == 0), "{lease:?}");
    ensure!(matches!(channel.ask(&Ask::Check(c1.clone()), None, until)?, Answer::Lease(same) if same == lease));
    lab.configure("c1", &lease)?;
    ensure!(channel.ask(&Ask::Release(c1.clone()), None, until)? == Answer::Done);
    // The daemon has forgotten the lease: it asks servers anew.
    let asked = || lab.log("dnsmasq").matches("DHCPDISCOVER").count();
    let before = asked();
    ensure!(matches!(channel.ask(&Ask::Acquire(c1.clone()), None, until)?, Answer::Lease(_)));
    ensure!(asked() == before + 1, "{}", lab.log("dnsmasq"));
    ensure!(matches!(channel.ask(&Ask::Leases, None, until)?, Answer::Refused { .. }));
    let mut wrong = c1;
    wrong.ifname = "eth7".to_owned();
    let answer = channel.ask(&Ask::Acquire(wrong), None, until)?;
    ensure!(matches!(&answer, Answer::Refused { .. }), "{answer:?}");
    Ok(())
}
