//! loopback: sets `lo` of the container up. Runtimes call loopback for every container, so it does little else.
//!
//! | key | meaning |
//! |---|---|
//! | `prevResult` | passed on; without it the result is `lo` and its addresses |
//!
//! loopback has no keys of its own, and ignores `CNI_IFNAME` and `CNI_ARGS`. The kernel adds 127.0.0.1 and ::1.
//!
//! * ADD: sets `lo` up; an address of `lo` that is no loopback address is an error. The result has the shape of the
//!   configuration's version; native plugins print 1.x's shape under every version number.
//! * DEL: sets `lo` down, and succeeds if the container is gone.
//! * CHECK: `lo` must be up. CHECK needs no `prevResult`.
//! * STATUS, GC: nothing to do.

use postern_guest::cni::{CniResult, Interface, IpConfig};
use postern_guest::{Error, Plugin, Request, loopback};
use std::process::ExitCode;

struct Loopback;

impl Plugin for Loopback {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let context = |error: Error| error.context("failed to parse network config");
        let conf = request.conf().map_err(context)?;
        let previous = conf.previous_result().map_err(|error| error.context("failed to parse prevResult"))?;

        loopback::up()?;
        let addresses = loopback::state()?.addresses;
        if let Some(foreign) = addresses.iter().map(|address| address.net.addr()).find(|ip| !ip.is_loopback()) {
            return Err(Error::new(format!("loopback interface found with non-loopback address \"{foreign}\"")));
        }
        if let Some(previous) = previous {
            return Ok(previous);
        }
        let first = |v4: bool| addresses.iter().map(|address| address.net).find(|net| net.addr().is_ipv4() == v4);
        let ip = |address| IpConfig { interface: Some(0), address, gateway: None };
        Ok(CniResult {
            interfaces: vec![Interface {
                name: "lo".to_owned(),
                mac: "00:00:00:00:00:00".to_owned(),
                sandbox: request.env.netns.clone(),
                ..Interface::default()
            }],
            ips: [first(true), first(false)].into_iter().flatten().map(ip).collect(),
            ..CniResult::default()
        })
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        if request.env.netns.is_empty() {
            return Ok(());
        }
        loopback::down()
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        match loopback::state()?.up {
            true => Ok(()),
            false => Err(Error::new("loopback interface is down")),
        }
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Loopback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_guest::fake::{self, Kernel, Subject};
    use postern_guest::types::{Address, ErrorCode};
    use proptest::prelude::*;

    const PLUGIN: Subject<Loopback> = Subject::new(Loopback, "", Kernel::default);

    #[test]
    fn add_sets_lo_up_and_lists_it() {
        assert_eq!(
            PLUGIN.add(""),
            r#"{"cniVersion":"1.1.0","interfaces":[{"mac":"00:00:00:00:00:00","name":"lo","sandbox":"/run/netns/c1"}],"ips":[{"address":"127.0.0.1/8","interface":0},{"address":"::1/128","interface":0}]}"#
        );
        assert_eq!(fake::log(), ["loopback.up", "loopback.addresses"]);
        assert!(fake::with(|kernel| kernel.lo.0));
    }

    #[test]
    fn the_result_has_the_configurations_shape() {
        for (version, mark) in [("0.2.0", "\"ip4\""), ("0.3.1", "\"version\": \"4\""), ("1.0.0", "\"ips\"")] {
            let result = PLUGIN.call_anew("ADD", &format!(r#"{{"cniVersion":"{version}","name":"lo"}}"#)).unwrap();
            assert!(result.contains(mark), "{result}");
        }
    }

    #[test]
    fn add_without_ipv6() {
        fake::install(Kernel { ipv6: false, ..Kernel::default() });
        let result = PLUGIN.call("ADD", "").unwrap();
        assert!(result.contains("127.0.0.1/8") && !result.contains("::1"), "{result}");
    }

    #[test]
    fn add_hands_prev_result_on() {
        let result = PLUGIN.add(r#","prevResult":{"ips":[{"address":"10.1.2.3/24"}]}"#);
        assert!(result.contains("10.1.2.3/24") && !result.contains("127.0.0.1"), "{result}");
        assert!(fake::with(|kernel| kernel.lo.0));
    }

    #[test]
    fn add_refuses_foreign_addresses() {
        let foreign = Address { net: "10.1.2.3/24".parse().unwrap(), scope: 0, tentative: false };
        fake::install(Kernel { lo: (true, vec![foreign]), ..Kernel::default() });
        assert_eq!(PLUGIN.message("ADD", ""), "loopback interface found with non-loopback address \"10.1.2.3\"");
    }

    #[test]
    fn undecodable_configurations() {
        PLUGIN.install();
        assert_eq!(
            PLUGIN.message("ADD", r#","ipam":1"#),
            "failed to parse network config: json: cannot unmarshal number into Go struct field NetConf.ipam of type struct"
        );
        let error = PLUGIN.message("ADD", r#","prevResult":{"cniVersion":"0.2.0"}"#);
        assert!(error.starts_with("failed to parse prevResult: could not parse prevResult: result type"), "{error}");
        assert_eq!(fake::log(), [""; 0]);
    }

    #[test]
    fn del_and_check() {
        PLUGIN.install();
        assert_eq!(PLUGIN.message("CHECK", ""), "loopback interface is down");
        PLUGIN.call("ADD", "").unwrap();
        assert_eq!(PLUGIN.call("CHECK", "").unwrap(), "");
        assert_eq!(PLUGIN.call("DEL", "").unwrap(), "");
        assert!(!fake::with(|kernel| kernel.lo.0));
        fake::install(Kernel { netns: false, ..Kernel::default() });
        assert_eq!(PLUGIN.call("DEL", "").unwrap(), "");
        assert_eq!(PLUGIN.message("CHECK", ""), "the container's network namespace is gone");
        let env = postern_guest::cni::Env { netns: String::new(), ..fake::env("DEL") };
        assert_eq!(fake::call_verb(&Loopback, env, r#"{"cniVersion":"1.0.0","name":"lo"}"#).unwrap(), "");
    }

    #[test]
    fn every_operation_may_fail() {
        assert_eq!(PLUGIN.every_operation_may_fail(), [2, 1, 1, 0, 0]);
        for n in 0..2 {
            PLUGIN.install();
            fake::with(|kernel| kernel.fail_at(n, ErrorCode::Kernel));
            assert_eq!(PLUGIN.message("ADD", ""), format!("operation {n} was made to fail"));
        }
    }

    #[test]
    fn its_keys_are_those_of_the_table() {
        postern_keys::agreement::check("loopback", |verb, conf| PLUGIN.call_anew(verb, conf));
    }

    proptest! {
        #[test]
        fn nothing_in_a_configuration_makes_it_panic(value in "[ -~]{0,40}", verb in 0..5usize) {
            for conf in [format!(r#"{{"cniVersion":"1.1.0","name":"n","prevResult":{value}}}"#), value] {
                let _ = PLUGIN.call_anew(["ADD", "DEL", "CHECK", "STATUS", "GC"][verb], &conf);
            }
        }
    }
}
