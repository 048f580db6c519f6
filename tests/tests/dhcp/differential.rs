//! The native client beside ours: the same program, the same server, the same link. The native plugin asks the native
//! daemon and then our service, so the whole answer is compared.

use crate::lab::Lab;
use crate::native::{call, native};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// What the network requests and provides (keys of `ipam`), and `CNI_ARGS`.
type Case = (Value, String);

/// Returns the answers of the native daemon and of our service, for each case.
fn both(lab: &Lab, cases: &[Case]) -> Result<Vec<(Value, Value)>> {
    let answers = || -> Result<Vec<Value>> {
        let add = |(ipam, args): &Case| {
            let answer = call(lab, "ADD", ipam, args)?;
            call(lab, "DEL", ipam, args)?;
            Ok(answer)
        };
        cases.iter().map(add).collect()
    };
    // Other answers only where they are asked for: a class has another router.
    lab.dnsmasq(
        "--dhcp-authoritative --dhcp-option=121,10.8.0.0/16,10.5.0.2,0.0.0.0/0,10.5.0.1,10.9.0.0/24,0.0.0.0 \
         --dhcp-option=33,172.16.3.4,10.5.0.5,10.0.0.0,10.5.0.6 --dhcp-vendorclass=set:ours,postern \
         --dhcp-userclass=set:ours,postern --dhcp-option=tag:ours,3,10.5.0.9,10.5.0.8",
    )?;
    lab.native_daemon(&native()?)?;
    let theirs = answers()?;
    lab.kill("native", "KILL")?;
    std::fs::remove_file(lab.socket())?;
    lab.serve("")?;
    Ok(theirs.into_iter().zip(answers()?).collect())
}

/// Returns a native result with the differences that docs/dhcp.md lists.
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
        // No router then, and no default route.
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
    ensure!(seen.len() == 6, "the cases are to differ, but for the two classes: {seen:#?}");
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
        // Ours says for whom, before the cause.
        let is_same = ours["msg"].as_str().is_some_and(|ours| ours.ends_with(&format!(": {cause}")));
        ensure!(is_same && ours["code"] == theirs["code"], "{case:?}:\nnative: {theirs}\nours:   {ours}");
    }
    Ok(())
}
