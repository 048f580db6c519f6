//! static: assigns the addresses of the configuration. It keeps no state and imports no capability.
//!
//! | key | meaning |
//! |---|---|
//! | `ipam.addresses` | list of `{address, gateway}`; `address` with prefix length |
//! | `ipam.routes` | routes, passed on unchanged, attributes of 1.1.0 included |
//! | `ipam.dns` | name resolution, passed on |
//! | `args.cni.ips` | addresses with prefix length that **replace** `ipam.addresses`; `CNI_ARGS` is then ignored |
//! | `runtimeConfig.ips` (capability `ips`) | addresses with prefix length that also replace the addresses of `args` |
//! | `CNI_ARGS` `IP` | addresses with prefix length, separated by commas, **added** to `ipam.addresses` |
//! | `CNI_ARGS` `GATEWAY` | gateways, separated by commas, each for every address of `IP` whose network contains the gateway |
//!
//! * ADD: returns the addresses with their gateways, routes and DNS. A result without addresses is no error of static:
//!   the calling plugin reports the missing addresses.
//! * DEL: nothing to do; the configuration isn't even read.
//! * CHECK: an address of the configuration that `prevResult` has with another gateway is an error.
//! * STATUS, GC: nothing to do.

mod config;

use config::Config;
use postern_guest::cni::CniResult;
use postern_guest::{Error, Plugin, Request, check};
use std::process::ExitCode;

struct Static;

impl Plugin for Static {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        let Config { ips, routes, dns } = Config::read(request)?;
        Ok(CniResult { ips, routes, dns, ..CniResult::default() })
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let config = Config::read(request)?;
        let result = check::previous_result(&request.conf()?, "Required prevResult missing")?;
        for ip in config.ips.iter().filter(|ip| ip.gateway.is_some()) {
            let address = ip.address.addr();
            let printed = result.ips.iter().find(|printed| printed.address.addr() == address);
            if printed.is_some_and(|printed| printed.gateway != ip.gateway) {
                let ifname = &request.env.ifname;
                return Err(Error::new(format!("static: Failed to match addr {address} on interface {ifname}")));
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Static)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_guest::cni::Env;
    use postern_guest::fake::{self, Kernel, Subject};
    use proptest::prelude::*;

    const PLUGIN: Subject<Static> = Subject::new(Static, r#","type":"bridge""#, Kernel::default);

    /// Returns the result on one line, without its version.
    fn add(args: &str, keys: &str) -> String {
        let result = PLUGIN.call_with_args("ADD", args, keys).unwrap();
        result.replace([' ', '\n'], "").replace(r#""cniVersion":"1.1.0""#, "")
    }

    fn message(args: &str, keys: &str) -> String {
        PLUGIN.call_with_args("ADD", args, keys).unwrap_err().object().msg.clone()
    }

    #[test]
    fn addresses_routes_and_dns_are_handed_on() {
        assert_eq!(
            add(
                "",
                r#","ipam":{"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::3/64"}],
                   "routes":[{"dst":"0.0.0.0/0","mtu":1400,"scope":0}],"dns":{"nameservers":["10.0.0.1"]}}"#
            ),
            r#"{,"dns":{"nameservers":["10.0.0.1"]},"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"fd00::3/64"}],"routes":[{"dst":"0.0.0.0/0","mtu":1400,"scope":0}]}"#
        );
        assert_eq!(add("", r#","ipam":{}"#), "{}");
    }

    #[test]
    fn arguments_add_and_the_conventional_keys_replace() {
        let ipam = r#","ipam":{"addresses":[{"address":"10.1.2.3/24"}]}"#;
        assert_eq!(
            add("IP=10.1.3.3/24, fd00::3/64;GATEWAY=10.1.3.1,fd00::1,10.1.2.1,10.1.3.2", ipam),
            r#"{,"ips":[{"address":"10.1.2.3/24"},{"address":"10.1.3.3/24","gateway":"10.1.3.2"},{"address":"fd00::3/64","gateway":"fd00::1"}]}"#
        );
        let args = r#","args":{"cni":{"ips":["10.1.4.3/24"]}}"#;
        assert_eq!(add("IP=10.1.3.3/24", &format!("{ipam}{args}")), r#"{,"ips":[{"address":"10.1.4.3/24"}]}"#);
        // Ignored addresses are not checked, but the text must have the form of arguments.
        assert_eq!(add("IP=x;GATEWAY=y", &format!("{ipam}{args}")), r#"{,"ips":[{"address":"10.1.4.3/24"}]}"#);
        assert_eq!(message("FOO=x", &format!("{ipam}{args}")), r#"ARGS: unknown args ["FOO=x"]"#);
        let runtime = r#","runtimeConfig":{"ips":["10.1.5.3/24"]}"#;
        assert_eq!(add("", &format!("{ipam}{args}{runtime}")), r#"{,"ips":[{"address":"10.1.5.3/24"}]}"#);
        // Empty lists replace nothing.
        let empty = r#","args":{"cni":{"ips":[]}},"runtimeConfig":{"ips":[]}"#;
        assert_eq!(add("", &format!("{ipam}{empty}")), r#"{,"ips":[{"address":"10.1.2.3/24"}]}"#);
    }

    #[test]
    fn everything_that_is_refused() {
        for (args, keys, expected) in [
            ("", r#","x":1"#, "IPAM config missing 'ipam' key"),
            ("", r#","ipam":7"#, "json: cannot unmarshal number into Go struct field NetConf.ipam of type struct"),
            (
                "",
                r#","ipam":{"addresses":[{"address":"10.1.2.3"}]}"#,
                "the 'address' field is expected to be in CIDR notation, got: '10.1.2.3'",
            ),
            ("", r#","ipam":{"addresses":[{}]}"#, "the 'address' field is expected to be in CIDR notation, got: ''"),
            ("", r#","ipam":{"addresses":[{"address":"10.1.2.3/24","gateway":"x"}]}"#, "invalid IP address: x"),
            ("", r#","ipam":{"routes":[{"dst":"10.1.0.0"}]}"#, "invalid CIDR address: 10.1.0.0"),
            ("IP=10.1.2.3", r#","ipam":{}"#, "the 'ip' field is expected to be in CIDR notation, got: '10.1.2.3'"),
            ("IP=10.1.2.3/24;GATEWAY= x", r#","ipam":{}"#, "invalid gateway address:  x"),
            ("MAC=1", r#","ipam":{}"#, r#"ARGS: unknown args ["MAC=1"]"#),
            (
                "",
                r#","ipam":{},"runtimeConfig":{"ips":["10.1.2.3"]}"#,
                "an entry in the 'ips' field is NOT in CIDR notation, got: '10.1.2.3'",
            ),
        ] {
            assert_eq!(message(args, keys), expected, "{keys}");
        }
    }

    #[test]
    fn old_versions_have_one_address_per_family() {
        let two = r#"{"cniVersion":"0.2.0","name":"n","ipam":{"addresses":[{"address":"10.1.2.3/24"},{"address":"10.1.3.3/24"}]}}"#;
        assert_eq!(
            PLUGIN.call_anew("ADD", two).unwrap_err().object().msg,
            "CNI version 0.2.0 does not support more than 1 address per family"
        );
        let pair = r#"{"cniVersion":"0.2.0","name":"n","ipam":{"addresses":[{"address":"10.1.2.3/24"},{"address":"fd00::3/64"}]}}"#;
        assert!(PLUGIN.call_anew("ADD", pair).unwrap().contains("ip6"));
    }

    #[test]
    fn del_reads_nothing() {
        let env = Env { args: "garbage".to_owned(), ..fake::env("DEL") };
        assert_eq!(fake::call_verb(&Static, env, r#"{"ipam":7}"#).unwrap(), "");
    }

    #[test]
    fn check_compares_gateways() {
        let keys =
            r#","ipam":{"addresses":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"10.1.3.3/24"}]}"#;
        let check = |previous: &str| PLUGIN.call("CHECK", &format!(r#"{keys},"prevResult":{previous}"#));
        assert_eq!(check(r#"{"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}]}"#).unwrap(), "");
        assert_eq!(check(r#"{"ips":[]}"#).unwrap(), "");
        for previous in
            [r#"{"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.9"}]}"#, r#"{"ips":[{"address":"10.1.2.3/24"}]}"#]
        {
            let error = check(previous).unwrap_err().object().msg.clone();
            assert_eq!(error, "static: Failed to match addr 10.1.2.3 on interface eth0");
        }
        assert_eq!(PLUGIN.call("CHECK", keys).unwrap_err().object().msg, "Required prevResult missing");
    }

    #[test]
    fn status_and_gc_succeed() {
        assert_eq!(PLUGIN.call("STATUS", r#","ipam":{}"#).unwrap(), "");
        assert_eq!(PLUGIN.call("GC", r#","ipam":{}"#).unwrap(), "");
    }

    #[test]
    fn its_keys_are_those_of_the_table() {
        postern_keys::agreement::check("static", |verb, conf| PLUGIN.call_anew(verb, conf));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(args in "[A-Z0-9=;,./]{0,30}", address in "[0-9a-f.:/]{0,20}", keys in "[ -~]{0,40}") {
            for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
                let ipam = format!(r#","ipam":{{"addresses":[{{"address":"{address}","gateway":"{address}"}}]}}"#);
                let _ = PLUGIN.call_with_args(verb, &args, &ipam);
                let _ = PLUGIN.call_with_args(verb, &args, &format!(",{keys}"));
            }
        }
    }
}
