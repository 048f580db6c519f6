//! loopback: sets `lo` of the container up. Runtimes call it for every container, so it does little else.
//!
//! | key | meaning |
//! |---|---|
//! | `prevResult` | passed on; without it the result is `lo` and its addresses |
//!
//! It has no keys of its own, and ignores `CNI_IFNAME` and `CNI_ARGS`. The kernel adds 127.0.0.1 and ::1.
//!
//! * ADD: sets `lo` up; an address on it that is no loopback address is an error. The result has the shape of the
//!   configuration's version; native plugins print 1.x's shape under every version number.
//! * DEL: sets `lo` down; it succeeds if the container is gone.
//! * CHECK: `lo` must be up; needs no `prevResult`.
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
    use postern_guest::fake::{self, Kernel};
    use postern_guest::types::{Address, ErrorCode};
    use proptest::prelude::*;

    fn call(verb: &str, conf: &str) -> Result<String, Error> {
        fake::call_verb(&Loopback, fake::env(verb), conf)
    }

    fn message(verb: &str, conf: &str) -> String {
        call(verb, conf).unwrap_err().object().msg.clone()
    }

    #[test]
    fn add_sets_lo_up_and_lists_it() {
        fake::install(Kernel::default());
        let result = call("ADD", r#"{"cniVersion":"1.1.0","name":"lo"}"#).unwrap();
        assert_eq!(
            result.replace([' ', '\n'], ""),
            r#"{"cniVersion":"1.1.0","interfaces":[{"mac":"00:00:00:00:00:00","name":"lo","sandbox":"/run/netns/c1"}],"ips":[{"address":"127.0.0.1/8","interface":0},{"address":"::1/128","interface":0}]}"#
        );
        assert_eq!(fake::log(), ["loopback.up", "loopback.addresses"]);
        assert!(fake::with(|kernel| kernel.lo.0));
    }

    #[test]
    fn the_result_has_the_configurations_shape() {
        for (version, mark) in [("0.2.0", "\"ip4\""), ("0.3.1", "\"version\": \"4\""), ("1.0.0", "\"ips\"")] {
            fake::install(Kernel::default());
            let result = call("ADD", &format!(r#"{{"cniVersion":"{version}","name":"lo"}}"#)).unwrap();
            assert!(result.contains(mark), "{result}");
        }
    }

    #[test]
    fn add_without_ipv6() {
        fake::install(Kernel { ipv6: false, ..Kernel::default() });
        let result = call("ADD", r#"{"cniVersion":"1.0.0","name":"lo"}"#).unwrap();
        assert!(result.contains("127.0.0.1/8") && !result.contains("::1"), "{result}");
    }

    #[test]
    fn add_hands_prev_result_on() {
        fake::install(Kernel::default());
        let conf = r#"{"cniVersion":"1.0.0","name":"lo","prevResult":{"ips":[{"address":"10.1.2.3/24"}]}}"#;
        let result = call("ADD", conf).unwrap();
        assert!(result.contains("10.1.2.3/24") && !result.contains("127.0.0.1"), "{result}");
        assert!(fake::with(|kernel| kernel.lo.0));
    }

    #[test]
    fn add_refuses_foreign_addresses() {
        let foreign = Address { net: "10.1.2.3/24".parse().unwrap(), scope: 0, tentative: false };
        fake::install(Kernel { lo: (true, vec![foreign]), ..Kernel::default() });
        let conf = r#"{"cniVersion":"1.0.0","name":"lo"}"#;
        assert_eq!(message("ADD", conf), "loopback interface found with non-loopback address \"10.1.2.3\"");
    }

    #[test]
    fn undecodable_configurations() {
        fake::install(Kernel::default());
        assert_eq!(
            message("ADD", r#"{"cniVersion":"1.0.0","name":"lo","ipam":1}"#),
            "failed to parse network config: json: cannot unmarshal number into Go struct field NetConf.ipam of type struct"
        );
        let error = message("ADD", r#"{"cniVersion":"1.0.0","name":"lo","prevResult":{"cniVersion":"0.2.0"}}"#);
        assert!(error.starts_with("failed to parse prevResult: could not parse prevResult: result type"), "{error}");
        assert_eq!(fake::log(), [""; 0]);
    }

    #[test]
    fn del_and_check() {
        let conf = r#"{"cniVersion":"1.0.0","name":"lo"}"#;
        fake::install(Kernel::default());
        assert_eq!(message("CHECK", conf), "loopback interface is down");
        call("ADD", conf).unwrap();
        assert_eq!(call("CHECK", conf).unwrap(), "");
        assert_eq!(call("DEL", conf).unwrap(), "");
        assert!(!fake::with(|kernel| kernel.lo.0));
        fake::install(Kernel { netns: false, ..Kernel::default() });
        assert_eq!(call("DEL", conf).unwrap(), "");
        assert_eq!(message("CHECK", conf), "the container's network namespace is gone");
        let env = postern_guest::cni::Env { netns: String::new(), ..fake::env("DEL") };
        assert_eq!(fake::call_verb(&Loopback, env, conf).unwrap(), "");
    }

    #[test]
    fn every_operation_may_fail() {
        for n in 0..2 {
            let mut kernel = Kernel::default();
            kernel.fail_at(n, ErrorCode::Kernel);
            fake::install(kernel);
            let error = call("ADD", r#"{"cniVersion":"1.0.0","name":"lo"}"#).unwrap_err();
            assert_eq!(
                (error.object().code, error.object().msg.as_str()),
                (999, &*format!("operation {n} was made to fail"))
            );
        }
    }

    #[test]
    fn its_keys_are_those_of_the_table() {
        postern_keys::agreement::check("loopback", |verb, conf| {
            fake::install(fake::Kernel::default());
            fake::call_verb(&Loopback, fake::env(verb), conf).map_err(|error| error.to_string())
        });
    }

    proptest! {
        #[test]
        fn nothing_in_a_configuration_makes_it_panic(value in "[ -~]{0,40}", verb in 0..5usize) {
            fake::install(Kernel::default());
            for conf in [format!(r#"{{"cniVersion":"1.1.0","name":"n","prevResult":{value}}}"#), value] {
                let _ = call(["ADD", "DEL", "CHECK", "STATUS", "GC"][verb], &conf);
            }
        }
    }
}
