//! The decision: may this plugin carry out this operation on this object?
//!
//! Policy says which interfaces and which named objects. What holds for every plugin whatever its policy says (a handle
//! is one that this run was given, an address is the attachment's own) is checked where the operation is carried out,
//! in `capability/`.

use super::Granted;
use postern_types::{Backend, ErrorCode, OpError, Operation};

/// The objects that an operation acts on though it does not name them: the gate takes them from the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    /// `ipam.type`.
    pub ipam: &'a str,
    /// `ipam.dataDir`, or its default.
    pub lease_directory: &'a str,
    /// `ipam.resolvConf`.
    pub resolv_conf: &'a str,
}

/// Decides. The rule that allows is returned for the audit log.
///
/// # Errors
/// [`ErrorCode::Denied`], with the policy line that would allow the operation as hint.
pub fn decide(granted: &Granted, operation: &Operation, objects: Objects<'_>) -> Result<&'static str, OpError> {
    let capability = operation.capability();
    let Some(granted_name) = granted.capabilities.iter().find(|name| **name == capability) else {
        return Err(deny(granted, operation, "", format!("[grant.{capability}]")));
    };
    let one_of = |list: &[String], object: &str, key: &str, rule: &'static str| {
        if list.iter().any(|name| name == object) {
            Ok(rule)
        } else {
            Err(deny(granted, operation, object, format!("[grant.{capability}] {key} = [\"{object}\"]")))
        }
    };
    match operation {
        Operation::BridgeEnsure { name, .. } | Operation::BridgeFind { name } => {
            one_of(&granted.bridges, name, "names", "bridge.names")
        }
        Operation::BridgeEnsureGateways { force: true, .. } if !granted.force_address => {
            Err(deny(granted, operation, "", "[grant.bridge] force-address = \"true\"".to_owned()))
        }
        Operation::MasqueradeEnsure { backend } | Operation::MasqueradeCheck { backend } => {
            let backend = match backend.unwrap_or(Backend::Nftables) {
                Backend::Nftables => "nftables",
                Backend::Iptables => "iptables",
            };
            one_of(&granted.backends, backend, "backends", "masquerade.backends")
        }
        Operation::IpamAdd | Operation::IpamDel | Operation::IpamCheck | Operation::IpamStatus | Operation::IpamGc => {
            // Without a type there is nothing to decide on: the operation itself says what is missing.
            if objects.ipam.is_empty() {
                Ok("ipam")
            } else {
                one_of(&granted.ipam_types, objects.ipam, "types", "ipam.types")
            }
        }
        Operation::LeasesReserve { .. }
        | Operation::LeasesHeld
        | Operation::LeasesRelease
        | Operation::LeasesRetain
        | Operation::LeasesAvailable { .. } => {
            one_of(&granted.lease_directories, objects.lease_directory, "directories", "leases.directories")
        }
        Operation::ResolvConfRead => one_of(&granted.resolv_confs, objects.resolv_conf, "files", "resolv-conf.files"),
        _ => Ok(granted_name),
    }
}

fn deny(granted: &Granted, operation: &Operation, object: &str, grant: String) -> OpError {
    let on = if object.is_empty() { String::new() } else { format!(" on \"{object}\"") };
    OpError::new(ErrorCode::Denied, object, format!("policy does not allow {}{on}", operation.name()))
        .hint(format!("an operator can allow it with `{grant}` in {}", granted.operator_file()))
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;
    use postern_cni::Json;
    use postern_types::PortSpec;
    use std::path::Path;

    fn granted(policy: &str) -> Granted {
        Policy::parse(policy, Path::new("bridge.toml")).unwrap().resolve(&Json::parse(b"{}", 4096).unwrap()).unwrap()
    }

    fn ensure(name: &str) -> Operation {
        Operation::BridgeEnsure { name: name.to_owned(), mtu: None, vlan_filtering: false, promisc: false }
    }

    #[test]
    fn names_the_grant_that_is_missing() {
        let denial = decide(&granted(""), &Operation::VethFind, Objects::default()).unwrap_err();
        assert_eq!(denial.code, ErrorCode::Denied);
        assert!(denial.hint.contains("[grant.veth]") && denial.hint.contains("bridge.toml"), "{}", denial.hint);
    }

    #[test]
    fn compares_names_literally() {
        let granted = granted("[grant.bridge]\nnames = [\"br*\"]");
        assert_eq!(decide(&granted, &ensure("br*"), Objects::default()), Ok("bridge.names"));
        assert!(decide(&granted, &ensure("br0"), Objects::default()).unwrap_err().hint.contains("names = [\"br0\"]"));
    }

    #[test]
    fn force_is_a_grant_of_its_own() {
        let granted = granted("[grant.bridge]\nnames = [\"br0\"]");
        let gateways = |force| Operation::BridgeEnsureGateways { bridge: 0, port: PortSpec::default(), force };
        assert!(decide(&granted, &gateways(false), Objects::default()).is_ok());
        assert!(decide(&granted, &gateways(true), Objects::default()).is_err());
    }
}
