//! A hostile plugin: the network configuration of a test names its behaviour.
//!
//! | key | meaning |
//! |---|---|
//! | `hostile` | the behaviour: a name of [`endings`] or [`reaches`] |
//! | `on` | the verb of the behaviour, by default `ADD`. Every other verb does nothing and succeeds |
//! | `says` | the output of the behaviour `says` |
//! | `sequence` | random calls before the behaviour: `"SEED CALLS [ADDRESS/LENGTH...]"`, with addresses to claim |
//! | `make` | first make a whole attachment: pair, lease, addresses, masquerading, spoofing protection |
//!
//! A guest can't try a forged handle. Handles are resources of the component model: a guest has no number to forge, and
//! can't pass a handle of another kind. The tests of `postern-gate` forge handle numbers.

mod endings;
mod reaches;
mod sequence;

use postern_guest::cni::{CniResult, Json, NetConf, Version, version_output};
use postern_guest::types::Backend;
use postern_guest::{Error, configure, interface, ipam, mac_guard, masquerade, veth};
use std::io::{Read, Write};
use std::process::ExitCode;

/// The request of the test.
struct TestRequest {
    behaviour: String,
    says: String,
    sequence: String,
    make: bool,
    conf: Json,
}

fn main() -> ExitCode {
    match follow() {
        Ok(status) => status,
        Err(error) => {
            say(error.object().to_json().as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn follow() -> Result<ExitCode, Error> {
    // The answer to VERSION is honest: otherwise `postern add` would refuse the plugin.
    if std::env::var("CNI_COMMAND").is_ok_and(|verb| verb == "VERSION") {
        say(version_output(&Version::ALL).as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(orders) = orders()? else { return Ok(ExitCode::SUCCESS) };
    if let [seed, calls, claimed @ ..] = orders.sequence.split(' ').collect::<Vec<_>>().as_slice() {
        let claimed = claimed.iter().filter_map(|net| net.parse().ok()).collect();
        let conf = NetConf::parse(orders.conf)?;
        sequence::play(seed.parse().unwrap_or_default(), calls.parse().unwrap_or_default(), claimed, conf);
    }
    // Without `make`, the result is empty.
    let made = if orders.make { make()? } else { CniResult::default() };
    if let Some(status) = endings::end(&orders.behaviour, &orders.says, &made) {
        return Ok(status);
    }
    reaches::reach(&orders.behaviour)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the test's request, or `None` if it is for another verb.
fn orders() -> Result<Option<TestRequest>, Error> {
    let mut stdin = Vec::new();
    std::io::stdin().read_to_end(&mut stdin).map_err(|error| Error::new(error.to_string()))?;
    let conf = Json::parse(&stdin, 1 << 20)?;
    let fields = conf.fields("Hostile")?;
    let on = fields.string("on")?.unwrap_or_else(|| "ADD".to_owned());
    if std::env::var("CNI_COMMAND").as_ref() != Ok(&on) {
        return Ok(None);
    }
    let behaviour = fields.string("hostile")?.unwrap_or_default();
    let says = fields.string("says")?.unwrap_or_default();
    let sequence = fields.string("sequence")?.unwrap_or_default();
    let make = fields.bool("make")?.unwrap_or_default();
    Ok(Some(TestRequest { behaviour, says, sequence, make, conf }))
}

/// Makes a whole attachment, with all its effects.
fn make() -> Result<CniResult, Error> {
    let pair = veth::create(&veth::Options::default())?;
    let mut result = ipam::add()?;
    configure::configure(&pair.container, &result.ips, &configure::kernel_routes(&result)?)?;
    masquerade::ensure(Some(Backend::Nftables))?;
    if let Some(mac) = pair.container_attributes.mac {
        mac_guard::ensure(&pair.host, mac)?;
    }
    let netns = std::env::var("CNI_NETNS").unwrap_or_default();
    result.interfaces = vec![interface(&pair.host_attributes, ""), interface(&pair.container_attributes, &netns)];
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
    Ok(result)
}

fn say(bytes: &[u8]) {
    // A failed write can't be reported.
    let _ = std::io::stdout().write_all(bytes);
}
