//! The checks of a guest's output, before it is accepted.

use crate::DENIED;
use crate::attached::{self, UnmetDemand};
use crate::budget::Common;
use crate::context::Context;
use crate::errors::kernel_error;
use crate::native;
use crate::own::OwnAddress;
use crate::request::Request;
use crate::sysfs::pci_of;
use ipnet::IpNet;
use postern_cni::{CniResult, Error, Interface, IpConfig, Json, Verb, code};
use postern_policy::Granted;
use postern_types::OpError;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The greatest size of a guest's output in bytes; the sandbox has the same limit.
const LIMIT: usize = 1 << 20;

/// The facts of a run with which a result is compared.
pub trait RunFacts {
    /// The request.
    fn request(&self) -> &Request;
    /// The attachment's addresses.
    fn own(&self) -> &[OwnAddress];
    /// True if a guest was shown the host's link of this name.
    fn has_shown(&self, link: &str) -> bool;
    /// Returns the current state of the link that a result names. It is in the container if it has a sandbox, and
    /// otherwise on the host.
    fn seen(&self, interface: &Interface) -> Result<Option<LinkAttributes>, OpError>;
    /// Returns the gate's refusals by policy in this run, the latest first.
    fn refusals(&self) -> &VecDeque<Error>;
    /// Returns the demand of policy that the attachment's port does not meet.
    fn unmet_demand(&self, granted: &Granted) -> Result<Option<UnmetDemand>, OpError>;
}

/// The attributes of a link, beside its name and address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkAttributes {
    /// The MTU in bytes.
    pub mtu: u32,
    /// The PCI device that it belongs to.
    pub pci: Option<String>,
}

impl RunFacts for (&Context<'_>, &Common) {
    fn request(&self) -> &Request {
        self.0.request
    }

    fn own(&self) -> &[OwnAddress] {
        &self.0.own.addresses
    }

    fn has_shown(&self, link: &str) -> bool {
        self.1.shown.contains(link)
    }

    fn seen(&self, interface: &Interface) -> Result<Option<LinkAttributes>, OpError> {
        let netlink = match interface.sandbox.is_empty() {
            true => self.0.system.host()?,
            false => self.0.system.container_netlink()?,
        };
        let link = netlink.link_by_name(&interface.name).map_err(kernel_error)?;
        // An alternative name finds it too, but results name links by their own name.
        let link = link.filter(|link| link.name == interface.name);
        Ok(link.map(|link| LinkAttributes { mtu: link.mtu, pci: pci_of(&link) }))
    }

    fn refusals(&self) -> &VecDeque<Error> {
        &self.1.refusals
    }

    fn unmet_demand(&self, granted: &Granted) -> Result<Option<UnmetDemand>, OpError> {
        attached::unmet_demand(self.0, granted)
    }
}

/// Reads a guest's output: a result for a successful ADD, nothing for the other verbs, an error object for a failure.
/// `loopback` is true if `lo` is the plugin's task: its addresses are not a claim then.
///
/// # Errors
/// The guest's own error. Code 999 if it printed something else, or a result with a false claim.
pub fn read(
    run: &impl RunFacts,
    granted: &Granted,
    plugin: &str,
    verb: Verb,
    stdout: &str,
    status: u8,
    loopback: bool,
) -> Result<Option<CniResult>, Error> {
    if status != 0 {
        let parsed = Json::parse(stdout.as_bytes(), LIMIT).and_then(|json| Error::parse(&json));
        return Err(match parsed {
            Ok(error) if error.code == DENIED => refusal(run, plugin, error),
            // A native IPAM program that failed without an error object has code 0, "unknown", in the native library.
            Ok(error) if error.code == 0 && !error.msg.is_empty() => Error { code: code::INTERNAL, ..error },
            Ok(error) if !error.msg.is_empty() => error,
            _ if stdout.trim().is_empty() => {
                Error::internal(format!("plugin \"{plugin}\" failed with status {status} and printed no error"))
            }
            _ => Error::internal(format!(
                "plugin \"{plugin}\" failed with status {status} and printed no CNI error object: {}",
                excerpt(stdout)
            )),
        });
    }
    if verb != Verb::Add {
        return Ok(None);
    }
    if stdout.trim().is_empty() {
        return Err(Error::internal(format!("plugin \"{plugin}\" ended without printing a result")));
    }
    let result =
        CniResult::parse_output(stdout.as_bytes(), LIMIT, &run.request().conf.cni_version).map_err(|error| {
            Error::internal(format!("plugin \"{plugin}\" printed no CNI result: {error}")).with_details(excerpt(stdout))
        })?;
    require(run, granted, plugin)?;
    believe(run, granted, plugin, loopback, &result)?;
    Ok(Some(result))
}

/// Returns an error of a guest with the code of the gate's refusals: the refusal, if there was one with these words. They
/// may be part of longer ones. The way out is always the gate's: people copy it into policies.
fn refusal(run: &impl RunFacts, plugin: &str, error: Error) -> Error {
    match run.refusals().iter().find(|refusal| error.msg.contains(&refusal.msg)) {
        Some(refusal) => Error { details: refusal.details.clone(), ..error },
        None => Error::internal(format!(
            "plugin \"{plugin}\" failed with code {DENIED}, which is the gate's alone, and the gate refused nothing in these \
             words: {}",
            excerpt(&error.msg)
        )),
    }
}

/// Checks that a result names only links and addresses that this run was given or found, or that `prevResult` has.
fn believe(
    run: &impl RunFacts,
    granted: &Granted,
    plugin: &str,
    loopback: bool,
    result: &CniResult,
) -> Result<(), Error> {
    let request = run.request();
    let previous = request.previous();
    for interface in &result.interfaces {
        let before = previous
            .interfaces
            .iter()
            .find(|before| (&before.name, &before.sandbox) == (&interface.name, &interface.sandbox));
        let is_own = interface.name == request.ifname;
        let known = previous.interfaces.contains(interface)
            // Whatever an earlier plugin wrote as its sandbox: the attachment's interface may have got another address.
            || (is_own && before.is_some())
            || (interface.sandbox == request.netns && (is_own || interface.name == "lo"))
            || (interface.sandbox.is_empty() && run.has_shown(&interface.name));
        if !known {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" claims interface \"{}\", which it neither made nor was given",
                interface.name
            )));
        }
        believe_details(run, granted, plugin, interface, before)?;
    }
    // An address that only passes through is the earlier plugin's, with whatever that plugin wrote beside it.
    let passes = |ip: &&IpConfig| request.conf.ipam_type != plugin && previous.ips.contains(ip);
    for ip in result.ips.iter().filter(|ip| !passes(ip)) {
        native::one_family(plugin, [ip])?;
        if !(loopback && ip.address.addr().is_loopback() && ip.gateway.is_none()) {
            believe_address(run, granted, plugin, ip)?;
        }
        let is_listed = |index| usize::try_from(index).is_ok_and(|index| index < result.interfaces.len());
        if !ip.interface.is_none_or(is_listed) {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" gives {} to an interface that its result does not have",
                ip.address
            )));
        }
    }
    Ok(())
}

/// Checks the attributes of a link in a result: MTU and PCI device. They must equal those of `before`, its entry in
/// `prevResult`, or those of the kernel. A socket must exist, and policy must name it: no guest can make one.
fn believe_details(
    run: &impl RunFacts,
    granted: &Granted,
    plugin: &str,
    interface: &Interface,
    before: Option<&Interface>,
) -> Result<(), Error> {
    let Interface { name, mtu, pci_id, socket_path, .. } = interface;
    let is_new = |is_said: bool, is_same: fn(&Interface, &Interface) -> bool| {
        is_said && !before.is_some_and(|before| is_same(before, interface))
    };
    if is_new(!socket_path.is_empty(), |a, b| a.socket_path == b.socket_path) {
        if !granted.may_name_socket(socket_path) {
            let message = format!("plugin \"{plugin}\" claims socket \"{socket_path}\" for interface \"{name}\"");
            return Err(Error::internal(message).with_details(granted.result_hint("sockets", socket_path)));
        }
        is_socket(socket_path).map_err(|why| {
            Error::internal(format!(
                "plugin \"{plugin}\" claims socket \"{socket_path}\" for interface \"{name}\": {why}"
            ))
        })?;
    }
    let says_mtu = is_new(*mtu != 0, |a, b| a.mtu == b.mtu);
    let says_device = is_new(!pci_id.is_empty(), |a, b| a.pci_id == b.pci_id);
    if !says_mtu && !says_device {
        return Ok(());
    }
    let seen = run.seen(interface).map_err(|error| {
        Error::internal(format!("what plugin \"{plugin}\" says of interface \"{name}\" can't be looked at: {error}"))
    })?;
    let Some(seen) = seen else {
        return Err(Error::internal(format!("plugin \"{plugin}\" claims interface \"{name}\", which is not there")));
    };
    if says_mtu && *mtu != i64::from(seen.mtu) {
        return Err(Error::internal(format!(
            "plugin \"{plugin}\" claims MTU {mtu} for interface \"{name}\", which has {}",
            seen.mtu
        )));
    }
    if says_device && seen.pci.as_ref() != Some(pci_id) {
        let is = seen.pci.map_or_else(|| "belongs to none".to_owned(), |pci| format!("belongs to {pci}"));
        return Err(Error::internal(format!(
            "plugin \"{plugin}\" claims PCI device \"{pci_id}\" for interface \"{name}\", which {is}"
        )));
    }
    Ok(())
}

/// Checks that there is a socket at this path itself. A symbolic link could lead to any other place when it is used.
#[expect(clippy::disallowed_methods, reason = "a path of the result, which is looked at and not opened")]
fn is_socket(path: &str) -> Result<(), String> {
    let found = Path::new(path).symlink_metadata().map_err(|error| error.to_string())?;
    if found.file_type().is_socket() { Ok(()) } else { Err("it is no socket".to_owned()) }
}

/// Checks that the demands of policy on an ADD are met now.
fn require(run: &impl RunFacts, granted: &Granted, plugin: &str) -> Result<(), Error> {
    let unmet_demand = run.unmet_demand(granted).map_err(|error| {
        Error::internal(format!("what plugin \"{plugin}\" made can't be held against its policy: {error}"))
    })?;
    let Some(UnmetDemand { what, line }) = unmet_demand else { return Ok(()) };
    let details = match line.as_str() {
        "[grant.mac-guard] required" => format!("{line} demands it; {}", granted.unguarded_hint()),
        _ => format!("{line} demands it, in its policy or in {}", granted.operator_file()),
    };
    Err(Error::internal(format!("plugin \"{plugin}\" {what}")).with_details(details))
}

/// Checks that an address is the attachment's own: leased in this run, given by IPAM, or made by an earlier plugin.
///
/// Addresses of `prevResult` may be passed on unchanged, whoever made them. Only the plugin that is asked for addresses
/// can add new ones, and only those that its policy names.
fn believe_address(run: &impl RunFacts, granted: &Granted, plugin: &str, ip: &IpConfig) -> Result<(), Error> {
    let address = ip.address;
    let owned = run.own().iter().any(|own| own.net == address);
    let agrees = run.own().iter().any(|own| own.net == address && own.agrees_with(ip.gateway));
    if run.request().conf.ipam_type != plugin {
        let previous = run.request().previous();
        if previous.ips.iter().any(|known| (known.address, known.gateway) == (ip.address, ip.gateway)) {
            return Ok(());
        }
        return match (owned, ip.gateway) {
            (true, _) if agrees => Ok(()),
            (true, Some(gateway)) => Err(Error::internal(format!(
                "plugin \"{plugin}\" claims gateway {gateway} for {address}, which neither IPAM nor prevResult gave"
            ))),
            _ => {
                let error = Error::internal(format!(
                    "plugin \"{plugin}\" claims address {address}, which neither IPAM nor prevResult gave"
                ));
                Err(match run.request().conf.ipam_type.is_empty() {
                    true => error
                        .with_details(format!("`ipam` has no `type`: \"type\": \"{plugin}\" lets it give addresses")),
                    false => error,
                })
            }
        };
    }
    let refused = |what: String, hint: String| {
        Err(Error::internal(format!("plugin \"{plugin}\" hands out {what}, which it neither leased nor may choose"))
            .with_details(hint))
    };
    if !owned && !granted.may_hand_out(&address) {
        return refused(format!("address {address}"), granted.result_addresses_hint(&address));
    }
    match ip.gateway {
        Some(gateway) if !agrees && !granted.may_name_gateway(&address, &gateway) => refused(
            format!("gateway {gateway} for {address}"),
            granted.result_hint("gateways", &gateway_line(&address, &gateway)),
        ),
        _ => Ok(()),
    }
}

/// Returns the text of a policy that allows a gateway for all addresses of a network.
fn gateway_line(address: &IpNet, gateway: &IpAddr) -> String {
    match address.contains(gateway) {
        true => gateway.to_string(),
        false => format!("{} via {gateway}", address.trunc()),
    }
}

fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::RunParts;
    use crate::others;
    use crate::own::OwnAddress;
    use postern_cni::Version;
    use postern_policy::Policy;

    fn parts(conf: &str, verb: Verb) -> RunParts {
        RunParts::of_test(Request::of_test("", verb, conf), Path::new("/nonexistent"))
    }

    /// Returns the refusal of this result of `plugin`, in a network with addresses from `ipam`. The attachment has
    /// 10.9.0.2/24 with the gateway 10.9.0.254, and 10.8.0.2/24 without one.
    fn message(plugin: &str, policy: &str, address: &str, gateway: &str) -> String {
        let mut parts = parts(r#"{"cniVersion":"1.0.0","name":"n","ipam":{"type":"ipam"}}"#, Verb::Add);
        let run = parts.context();
        let own = |net: &str, gateway: Option<&str>| OwnAddress {
            net: net.parse().unwrap(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        };
        run.own.addresses = vec![own("10.9.0.2/24", Some("10.9.0.254")), own("10.8.0.2/24", None)];
        let granted = Policy::parse(policy, &format!("{plugin}.toml")).unwrap().resolve(&Json::Null, "").unwrap();
        let gateway = if gateway.is_empty() { String::new() } else { format!(r#","gateway":"{gateway}""#) };
        let stdout = format!(r#"{{"cniVersion":"1.0.0","ips":[{{"address":"{address}"{gateway}}}]}}"#);
        match read(&(&run, &Common::default()), &granted, plugin, Verb::Add, &stdout, 0, false) {
            Ok(_) => String::new(),
            Err(error) => {
                assert_eq!(error.code, 999);
                error.to_string()
            }
        }
    }

    /// A run with these links.
    struct Shown<'a>(Context<'a>, Option<LinkAttributes>, Common);

    impl RunFacts for Shown<'_> {
        fn request(&self) -> &Request {
            self.0.request
        }

        fn own(&self) -> &[OwnAddress] {
            &self.0.own.addresses
        }

        fn has_shown(&self, _: &str) -> bool {
            false
        }

        fn seen(&self, _: &Interface) -> Result<Option<LinkAttributes>, OpError> {
            Ok(self.1.clone())
        }

        fn refusals(&self) -> &VecDeque<Error> {
            &self.2.refusals
        }

        fn unmet_demand(&self, _: &Granted) -> Result<Option<UnmetDemand>, OpError> {
            Ok(None)
        }
    }

    #[test]
    fn what_is_said_of_a_link_is_what_there_is() {
        let directory = std::env::temp_dir().join(format!("postern-sockets-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("vhost.sock");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, directory.join("link.sock")).unwrap();
        let place = directory.to_str().unwrap();
        let message = |key: &str, seen: Option<LinkAttributes>, previous: &str| {
            let conf = format!(
                r#"{{"cniVersion":"1.1.0","name":"n","prevResult":{{"cniVersion":"1.1.0","interfaces":[{previous}]}}}}"#
            );
            let mut parts = parts(&conf, Verb::Add);
            let run = Shown(parts.context(), seen, Common::default());
            let policy = format!("[result]\nsockets = [\"{place}/*.sock\"]");
            let granted = Policy::parse(&policy, "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
            let stdout =
                format!(r#"{{"cniVersion":"1.1.0","interfaces":[{{"name":"eth0","sandbox":"/run/netns/c",{key}}}]}}"#);
            let read = read(&run, &granted, "x", Verb::Add, &stdout, 0, false);
            read.map_or_else(|error| error.to_string(), |_| String::new())
        };
        let device = "0000:3b:00.1";
        let seen = || Some(LinkAttributes { mtu: 9000, pci: Some(device.to_owned()) });
        let plain = || Some(LinkAttributes { mtu: 9000, pci: None });
        let pci = format!(r#""pciID":"{device}""#);
        let before = format!(r#"{{"name":"eth0","sandbox":"/run/netns/c",{pci},"mtu":1,"socketPath":"/run/x"}}"#);
        let at = |file: &str| format!(r#""socketPath":"{place}/{file}""#);
        for (key, seen, previous, expected) in [
            (r#""mtu":9000"#, seen(), "", ""),
            (pci.as_str(), seen(), "", ""),
            // The values of an earlier plugin, which had more information.
            (&pci, plain(), before.as_str(), ""),
            (r#""socketPath":"/run/x","mtu":1"#, None, &before, ""),
            (&at("vhost.sock"), None, "", ""),
            (r#""mtu":1500"#, seen(), "", r#"plugin "x" claims MTU 1500 for interface "eth0", which has 9000"#),
            (r#""mtu":-1"#, seen(), "", r#"plugin "x" claims MTU -1 for interface "eth0", which has 9000"#),
            (r#""mtu":1500"#, None, "", r#"plugin "x" claims interface "eth0", which is not there"#),
            (&pci, plain(), "", r#"claims PCI device "0000:3b:00.1" for interface "eth0", which belongs to none"#),
            (r#""pciID":"0000:3b:00.2""#, seen(), &before, "which belongs to 0000:3b:00.1"),
            (r#""socketPath":"/run/y""#, seen(), &before, "sockets = [\""),
            (&at("missing.sock"), None, "", "No such file or directory"),
            (&at("link.sock"), None, "", "it is no socket"),
        ] {
            let message = message(key, seen, previous);
            assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{key}: {message}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// Code 110 is the gate's: a guest has it for a refusal of this run, with that refusal's way out.
    #[test]
    fn a_refusal_is_the_gates() {
        let mut parts = parts(r#"{"cniVersion":"1.0.0","name":"n"}"#, Verb::Add);
        let (run, mut common) = (parts.context(), Common::default());
        let granted = Policy::parse("", "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
        let says = |common: &Common, msg: &str| {
            let stdout =
                format!(r#"{{"cniVersion":"1.0.0","code":110,"msg":"{msg}","details":"[grant.bridge] names = *"}}"#);
            read(&(&run, common), &granted, "x", Verb::Add, &stdout, 1, false).unwrap_err()
        };
        let own = says(&common, "policy does not allow x to have bridge cni0");
        assert_eq!((own.code, own.details.as_str()), (999, ""));
        assert!(own.msg.starts_with("plugin \"x\" failed with code 110, which is the gate's alone"), "{}", own.msg);
        for words in ["no", "other"] {
            common.note(&OpError::new(postern_types::ErrorCode::Denied, "br0", words).hint("the gate's"));
        }
        common.note(&OpError::new(postern_types::ErrorCode::Exists, "br0", "there already"));
        let refused = says(&common, "cmdAdd failed: other");
        assert_eq!((refused.code, refused.details.as_str()), (110, "br0; the gate's"));
        assert_eq!(says(&common, "there already").code, 999);
        assert_eq!(crate::errors::of_program(Error::new(110, "m")), Error::internal("m"));
        assert_eq!(crate::errors::of_program(Error::new(111, "m")), Error::new(111, "m"));
    }

    /// What an earlier plugin wrote passes through, and the attachment's interface may get another address.
    #[test]
    fn what_only_passes_through_is_the_earlier_plugins() {
        let conf = r#"{"cniVersion":"1.0.0","name":"n","prevResult":{"cniVersion":"1.0.0","interfaces":[null,
            {"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"0af3"},{"name":"veth1","mac":"02:00:00:00:00:02"}],"ips":[
            {"address":"10.9.0.2/24","gateway":"fd00::1","interface":-1},{"address":"10.8.0.2/24","interface":9}]}}"#;
        let mut parts = parts(conf, Verb::Add);
        let run = parts.context();
        let granted = Policy::parse("", "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
        let same = run.request.conf.previous_result().unwrap().unwrap();
        let passes = |change: &dyn Fn(&mut CniResult)| {
            let mut result = same.clone();
            change(&mut result);
            let stdout = result.to_json(Version::V1_0_0).unwrap();
            read(&(&run, &Common::default()), &granted, "x", Verb::Add, &stdout, 0, false).is_ok()
        };
        assert!(passes(&|_| {}));
        assert!(passes(&|result| "02:00:00:00:00:09".clone_into(&mut result.interfaces[1].mac)));
        assert!(passes(&|result| result.ips.truncate(1)));
        for refused in [
            &(|result: &mut CniResult| "02:00:00:00:00:09".clone_into(&mut result.interfaces[2].mac))
                as &dyn Fn(&mut CniResult),
            &|result| "/run/netns/d".clone_into(&mut result.interfaces[1].sandbox),
            &|result| result.ips[0].gateway = Some("fd00::2".parse().unwrap()),
            &|result| result.ips[1].interface = Some(8),
            &|result| result.ips[1].interface = Some(-1),
            &|result| result.ips[1].address = "10.8.0.3/24".parse().unwrap(),
        ] {
            assert!(!passes(refused));
        }
    }

    /// The parts of this `prevResult` that count without a record.
    #[test]
    fn an_earlier_result_counts_by_record_or_policy() {
        let conf = r#"{"cniVersion":"1.0.0","name":"n","prevResult":{"cniVersion":"1.0.0","ips":[
            {"address":"10.9.0.2/24","gateway":"10.9.0.7"},{"address":"10.8.0.2/24"}]}}"#;
        for (verb, policy, expected) in [
            (Verb::Add, "", &[][..]),
            (Verb::Add, "[previous]\naddresses = [\"10.9.0.0/16\"]", &["10.9.0.2/24"]),
            (Verb::Add, "[previous]\naddresses = [\"${config.x | 10.8.0.2/24}\"]", &["10.8.0.2/24"]),
            (Verb::Check, "", &["10.9.0.2/24", "10.8.0.2/24"]),
        ] {
            let mut parts = parts(conf, verb);
            let mut run = parts.context();
            let previous = run.request.conf.previous_result().unwrap().unwrap();
            let granted = Policy::parse(policy, "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
            others::take_over(&mut run, &previous, Some(&granted)).unwrap();
            let own: Vec<String> = run.own.addresses.iter().map(|own| own.net.to_string()).collect();
            assert_eq!(own, expected, "{policy}");
            // The result may be passed on unchanged, whichever parts count.
            let same = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24","gateway":"10.9.0.7"}]}"#;
            assert!(read(&(&run, &Common::default()), &granted, "x", Verb::Add, same, 0, false).is_ok());
            let other = same.replace("10.9.0.7", "10.9.0.8");
            assert!(read(&(&run, &Common::default()), &granted, "x", Verb::Add, &other, 0, false).is_err());
        }
    }

    #[test]
    fn an_interface_plugin_has_what_the_attachment_has() {
        for (address, gateway, expected) in [
            ("10.9.0.2/24", "10.9.0.254", ""),
            ("10.9.0.2/24", "", ""),
            // Without a gateway the first address of the network is used, and bridge prints it.
            ("10.8.0.2/24", "10.8.0.1", ""),
            ("10.9.0.2/24", "10.9.0.1", "plugin \"bridge\" claims gateway 10.9.0.1 for 10.9.0.2/24"),
            ("10.9.0.2/16", "", "plugin \"bridge\" claims address 10.9.0.2/16"),
            ("10.9.0.3/24", "", "plugin \"bridge\" claims address 10.9.0.3/24"),
        ] {
            // Only the plugin that is asked for addresses may say this.
            for policy in ["", "[result]\naddresses = [\"0.0.0.0/0\"]\ngateways = [\"0.0.0.0/0\"]"] {
                let message = message("bridge", policy, address, gateway);
                assert!(
                    message.starts_with(expected) && message.is_empty() == expected.is_empty(),
                    "{address}: {message}"
                );
            }
        }
    }

    #[test]
    fn an_ipam_plugin_hands_out_what_it_leased_and_what_policy_names() {
        let result = "[result]\naddresses = [\"10.7.0.0/16\"]\ngateways = [\"10.7.0.1\"]";
        for (policy, address, gateway) in [
            ("", "10.9.0.2/24", "10.9.0.254"),
            ("", "10.9.0.2/24", ""),
            (result, "10.7.0.9/24", "10.7.0.1"),
            (result, "10.7.0.9/24", ""),
            // The gateway of an operator's entry may be outside of the network.
            ("[result]\ngateways = [\"10.9.0.2/24 via 10.7.0.1\"]", "10.9.0.2/24", "10.7.0.1"),
        ] {
            assert_eq!(message("ipam", policy, address, gateway), "", "{address} {gateway}");
        }
        for (policy, address, gateway, what, line) in [
            ("", "10.7.0.9/24", "", "address 10.7.0.9/24", "addresses = [\"10.7.0.0/24\"]"),
            (
                result,
                "10.6.0.9/24",
                "10.7.0.1",
                "address 10.6.0.9/24",
                "addresses = [\"10.7.0.0/16\", \"10.6.0.0/24\"], gateways = [\"10.7.0.1\"]",
            ),
            (
                result,
                "10.7.0.9/8",
                "",
                "address 10.7.0.9/8",
                "addresses = [\"10.7.0.0/16\", \"10.0.0.0/8\"], gateways = [\"10.7.0.1\"]",
            ),
            (
                result,
                "10.7.0.9/24",
                "10.7.0.2",
                "gateway 10.7.0.2 for 10.7.0.9/24",
                "addresses = [\"10.7.0.0/16\"], gateways = [\"10.7.0.1\", \"10.7.0.2\"]",
            ),
            ("", "10.9.0.2/24", "10.9.0.1", "gateway 10.9.0.1 for 10.9.0.2/24", "gateways = [\"10.9.0.1\"]"),
            // The gateway is outside of the network of its address.
            (
                result,
                "10.9.0.2/24",
                "10.7.0.1",
                "gateway 10.7.0.1 for 10.9.0.2/24",
                "addresses = [\"10.7.0.0/16\"], gateways = [\"10.7.0.1\", \"10.9.0.0/24 via 10.7.0.1\"]",
            ),
        ] {
            let expected = format!(
                "plugin \"ipam\" hands out {what}, which it neither leased nor may choose; an operator can allow it with \
                 `result = {{ {line} }}` in /etc/postern/policy/ipam.toml, before its first table"
            );
            assert_eq!(message("ipam", policy, address, gateway), expected);
        }
    }

    #[test]
    fn gateways_of_another_ip_version_are_nobodys() {
        let policy = "[result]\naddresses = [\"10.9.0.2/16\"]\ngateways = [\"10.9.0.2/16 via 2001:db8:1::1\"]";
        for plugin in ["bridge", "ipam"] {
            assert_eq!(
                message(plugin, policy, "10.9.0.2/16", "2001:db8:1::1"),
                format!(
                    "plugin \"{plugin}\" says gateway 2001:db8:1::1 for 10.9.0.2/16: they are of different IP versions"
                )
            );
        }
    }
}
