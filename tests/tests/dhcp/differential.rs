//! Compares the native DHCP client with ours, with the same server and link. The native plugin calls the native daemon,
//! and the gate's client calls our service.

use crate::lab::{Lab, attachment};
use crate::native::{call, native};
use anyhow::{Context, Result, ensure};
use postern_dhcp_channel::{Answer, Ask};
use serde_json::{Map, Value, json};

/// A case: the keys of `ipam` (such as `request` and `provide`), and `CNI_ARGS`.
type Case = (Value, String);

/// Returns the answers of the native daemon and of our service, for each case.
fn both(lab: &Lab, cases: &[Case]) -> Result<Vec<(Value, Value)>> {
    let natively = |(ipam, args): &Case| {
        let answer = call(lab, "ADD", ipam, args)?;
        call(lab, "DEL", ipam, args)?;
        Ok(answer)
    };
    let ours = |(ipam, args): &Case| {
        let mut keys = json!({"type": "dhcp"});
        if let (Some(keys), Some(more)) = (keys.as_object_mut(), ipam.as_object()) {
            keys.extend(more.clone());
        }
        let mut asked = attachment("c1", &json!({"ipam": keys}));
        asked.args = args.clone();
        let answer = lab.ask(&Ask::Acquire(asked.clone()))?;
        lab.ask(&Ask::Release(asked))?;
        as_native(&answer)
    };
    // A client of the class `postern` gets another router.
    lab.dnsmasq(
        "--dhcp-authoritative --dhcp-option=121,10.8.0.0/16,10.5.0.2,0.0.0.0/0,10.5.0.1,10.9.0.0/24,0.0.0.0 \
         --dhcp-option=33,172.16.3.4,10.5.0.5,10.0.0.0,10.5.0.6 --dhcp-vendorclass=set:ours,postern \
         --dhcp-userclass=set:ours,postern --dhcp-option=tag:ours,3,10.5.0.9,10.5.0.8",
    )?;
    lab.native_daemon(&native()?)?;
    let theirs = cases.iter().map(natively).collect::<Result<Vec<Value>>>()?;
    lab.kill("native", "KILL")?;
    std::fs::remove_file(lab.socket())?;
    lab.serve("")?;
    let ours = cases.iter().map(ours).collect::<Result<Vec<Value>>>()?;
    Ok(theirs.into_iter().zip(ours).collect())
}

/// Returns an answer of our service in the form of a native plugin's result or error.
fn as_native(answer: &Answer) -> Result<Value> {
    let lease = match answer {
        Answer::Lease(lease) => lease,
        Answer::Refused { code, words, .. } => return Ok(json!({"code": code, "msg": words})),
        other => anyhow::bail!("{other:?}"),
    };
    // A native result leaves out empty keys.
    let with = |pairs: Vec<(&str, Value)>| {
        let there = pairs.into_iter().filter(|(_, value)| !value.is_null() && *value != json!([]));
        Value::Object(there.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
    };
    let ips =
        lease.addresses.iter().map(|one| with(vec![("address", json!(one.address)), ("gateway", json!(one.gateway))]));
    let routes = lease.routes.iter().map(|route| {
        let (dst, gw) = (json!(route.dst), json!(route.gw));
        with(vec![("dst", dst), ("gw", gw), ("scope", json!(route.scope)), ("priority", json!(route.priority))])
    });
    let (ips, routes) = (ips.collect::<Vec<_>>(), routes.collect::<Vec<_>>());
    Ok(with(vec![("cniVersion", json!("1.0.0")), ("ips", json!(ips)), ("routes", json!(routes))]))
}

/// Returns a native result with the differences that docs/plugins/dhcp.md lists.
fn as_documented(mut result: Value) -> Value {
    for route in result.get_mut("routes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(route) = route.as_object_mut() {
            if route.get("gw") == Some(&json!("0.0.0.0")) {
                route.remove("gw");
            }
            if route.get("dst") == Some(&json!("172.16.3.4/16")) {
                route.insert("dst".to_owned(), json!("172.16.0.0/16"));
            }
        }
    }
    result
}

fn case(ipam: Value) -> Case {
    (ipam, String::new())
}

#[test]
fn results_are_those_of_the_native_daemon() -> Result<()> {
    let class = json!({"provide": [{"option": "vendor-class-identifier", "value": "x", "fromArg": "CLASS"}]});
    let cases = [
        case(json!({})),
        case(json!({"priority": 7})),
        case(json!({"priority": 7, "request": [{"option": "121"}]})),
        case(json!({"request": [{"option": "33"}]})),
        // This case gets no router and no default route.
        case(json!({"request": [{"option": "subnet-mask", "skipDefault": true}]})),
        (class, "CLASS=postern".to_owned()),
        case(json!({"provide": [{"option": "77", "value": "postern"}, {"option": "host-name", "value": "pod"}]})),
    ];
    let lab = Lab::new(&["c1"])?;
    let mut seen = std::collections::BTreeSet::new();
    for (case, (theirs, ours)) in cases.iter().zip(both(&lab, &cases)?) {
        ensure!(theirs["ips"][0]["address"].is_string(), "{case:?}: the native daemon has no lease: {theirs}");
        ensure!(as_documented(theirs.clone()) == ours, "{case:?}:\nnative: {theirs}\nours:   {ours}");
        seen.insert(format!("{}{}", ours["ips"][0]["gateway"], ours["routes"]));
    }
    ensure!(seen.len() == 6, "only the two cases with a class may have the same result: {seen:#?}");
    Ok(())
}

#[test]
fn errors_are_those_of_the_native_daemon() -> Result<()> {
    let long = "x".repeat(256);
    let cases = [
        case(json!({"request": [{"option": "dns"}]})),
        case(json!({"request": [{"option": "256"}]})),
        case(json!({"provide": [{"option": "300", "value": "x"}]})),
        case(json!({"provide": [{}]})),
        case(json!({"provide": [{"option": "12", "value": long}]})),
        (json!({"provide": [{"option": "12", "fromArg": "A"}]}), format!("A={long}")),
    ];
    let lab = Lab::new(&["c1"])?;
    for (case, (theirs, ours)) in cases.iter().zip(both(&lab, &cases)?) {
        let message = theirs["msg"].as_str().with_context(|| format!("{case:?}: no error: {theirs}"))?;
        let cause = message.strip_prefix("error calling DHCP.Allocate: ").with_context(|| message.to_owned())?;
        // Our message names the attachment before the cause.
        let is_same = ours["msg"].as_str().is_some_and(|ours| ours.ends_with(&format!(": {cause}")));
        ensure!(is_same && ours["code"] == theirs["code"], "{case:?}:\nnative: {theirs}\nours:   {ours}");
    }
    Ok(())
}
