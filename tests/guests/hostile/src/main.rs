//! A plugin that does everything wrong: each test names a way.
//!
//! | key | meaning |
//! |---|---|
//! | `hostile` | how to misbehave: a name of [`endings`] or [`reaches`] |
//! | `on` | the verb that it is for; `ADD` unless said. Every other verb does nothing and succeeds |
//! | `says` | what to print, for the behaviour of that name |
//! | `sequence` | instead: random calls, `"SEED CALLS"`; what it ends with is `hostile` all the same |
//! | `make` | first make a whole attachment: pair, lease, addresses, masquerading, spoofing protection |
//!
//! A forged handle can't be tried. Handles are resources of the component model: a guest has no number to forge, and can't
//! pass a handle of another kind. `postern-gate` tests the numbers below.

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
    // Honest here: it would not be added.
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
    // Without `make`, a result that claims nothing.
    let made = if orders.make { make()? } else { CniResult::default() };
    if let Some(status) = endings::end(&orders.behaviour, &orders.says, &made) {
        return Ok(status);
    }
    reaches::reach(&orders.behaviour)?;
    Ok(ExitCode::SUCCESS)
}

/// `None` if this verb is not the one to misbehave in.
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

/// A whole attachment, with everything that outlives the run.
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
    // Who cannot write cannot tell either.
    let _ = std::io::stdout().write_all(bytes);
}
