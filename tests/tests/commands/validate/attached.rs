//! A policy change is checked against the list that made a living attachment. The runtimes' cache has this list.

use super::Place;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

fn list(bridge: &str) -> String {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.63.0.0/24"}]]});
    let bridge = json!({"type": "bridge", "bridge": bridge, "ipam": ipam});
    json!({"cniVersion": "1.0.0", "name": "valnet", "plugins": [bridge]}).to_string()
}

/// Attaches `c1`, as a runtime does.
fn attached() -> Result<Place> {
    let place = Place::new()?;
    place.node.add_container("c1")?;
    place.write("/etc/cni/net.d/10-val.conflist", &list("valbr"))?;
    place.net("add", "valnet", "")?.printed()?;
    Ok(place)
}

/// Returns each refused verb with its refused operation, for the only attachment.
fn refused(report: &Value) -> Result<Vec<(String, String)>> {
    let attachments = report["attachments"].as_array().context("attachments")?;
    ensure!(attachments.len() == 1, "{report}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let refused = attachments[0]["refused"].as_array().context("refused")?;
    Ok(refused.iter().map(|one| (text(&one["verb"]), text(&one["operation"]))).collect())
}

/// The network's file was changed or removed. The cache has the list that made the attachment.
#[test]
fn an_attachment_is_judged_by_the_list_that_made_it() -> Result<()> {
    let place = attached()?;
    place.write("/run/bridge.toml", "[grant.bridge]\nnames = [\"newbr\"]\n")?;
    let is_by_cache = |report: &Value| report["notes"].to_string().contains("in the runtimes' cache was checked");
    for change in [Some(list("newbr")), None] {
        match &change {
            Some(list) => place.write("/etc/cni/net.d/10-val.conflist", list)?,
            None => drop(place.node.sh("rm /etc/cni/net.d/*")?),
        }
        let (status, report) = place.object("--policy /run/bridge.toml")?;
        ensure!(status == 1 && is_by_cache(&report), "{report}");
        let refused = refused(&report)?;
        ensure!(
            refused.iter().any(|(verb, operation)| (verb.as_str(), operation.as_str()) == ("CHECK", "bridge.find")),
            "{report}"
        );
        // The new policy refuses no ADD to the present network.
        ensure!(report["errors"] == 0, "{report}");
    }
    // A file that contains the same list in another notation is checked only once.
    let same: Value = serde_json::from_str(&list("valbr"))?;
    place.write("/etc/cni/net.d/10-val.conflist", &serde_json::to_string_pretty(&same)?)?;
    let (_, report) = place.object("--policy /run/bridge.toml")?;
    ensure!(!is_by_cache(&report) && !refused(&report)?.is_empty(), "{report}");
    Ok(())
}
