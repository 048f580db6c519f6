//! `firewall`: the packet filters that may be used, and the zones and chains that the operator's configuration may
//! name.

use super::prelude::*;
use crate::rules::on;
use postern_cni::NetConf;
use postern_types::{ErrorCode, FirewallBackend, IngressPolicy};

/// The keys of `[grant.firewall]`.
pub const KEYS: &[Key] = &[
    required("backends", ValueKind::Filter, "${config.backend | iptables}"),
    required("admin-chains", ValueKind::Chain, "${config.iptablesAdminChainName | CNI-ADMIN}"),
    key("zones", ValueKind::Zone, Count::Any),
    key("ingress", ValueKind::Ingress, Count::Any),
    key("required", ValueKind::Ingress, Count::One),
];

/// The default zone and the default admin chain, as in the native plugin.
const ZONE: &str = "trusted";
const ADMIN_CHAIN: &str = "CNI-ADMIN";

/// The values that a network's configuration has for the packet filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `backend`; `None` if it is absent or unknown. The gate then takes firewalld if firewalld runs, and otherwise
    /// iptables.
    pub backend: Option<FirewallBackend>,
    /// `firewalldZone`.
    pub zone: String,
    /// `iptablesAdminChainName`.
    pub admin_chain: String,
    /// `ingressPolicy`, as written; empty if there is none.
    pub ingress: String,
}

impl Named {
    /// Reads the keys. A key of the wrong type counts as absent, because the plugin refuses such a key.
    pub fn of(conf: &NetConf) -> Self {
        let fields = conf.fields();
        let text = |key| fields.string(key).ok().flatten().unwrap_or_default();
        let or = |text: String, default: &str| if text.is_empty() { default.to_owned() } else { text };
        Self {
            backend: FirewallBackend::parse(&text("backend")),
            zone: or(text("firewalldZone"), ZONE),
            admin_chain: or(text("iptablesAdminChainName"), ADMIN_CHAIN),
            ingress: text("ingressPolicy"),
        }
    }
}

impl Decide for ops::Firewall {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Admit { .. } => {
                let named = Named::of(input.question.conf);
                // The gate asks again when it knows which backend runs ([`Granted::allows_filter`]).
                let Some(backend) = named.backend else { return Ok(grant.name) };
                allowed(input.granted, grant, backend, &named)
                    .map_err(|(object, hint)| input.refuse(&object, &on(&object), hint))?;
                Ok("firewall.backends")
            }
            Self::Isolate { ingress } => input.one_of(grant, "firewall.ingress", ingress.name()),
            // The operation chooses no object: the rules are the attachment's own.
            Self::Check { .. } | Self::Remove => Ok(grant.name),
        }
    }

    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Admit { .. } => {
                let named = Named::of(input.question.conf);
                if named.backend != Some(FirewallBackend::Firewalld) {
                    return Vec::new();
                }
                [line::object("backends", "firewalld"), line::object("zones", &named.zone)].concat()
            }
            Self::Isolate { ingress } => line::object("ingress", ingress.name()),
            Self::Check { .. } | Self::Remove => Vec::new(),
        }
    }
}

/// Checks a backend together with its object: the zone, or the admin chain.
///
/// # Errors
/// The refused object, and a hint how to allow it.
fn allowed(granted: &Granted, grant: &Grant, backend: FirewallBackend, named: &Named) -> Result<(), (String, String)> {
    let (key, kind, object) = match backend {
        FirewallBackend::Iptables => ("admin-chains", ValueKind::Chain, &named.admin_chain),
        FirewallBackend::Firewalld => ("zones", ValueKind::Zone, &named.zone),
    };
    // Chains and zones that no policy can grant are refused first.
    if let Err(impossible) = kind.check_text(object) {
        return Err((object.clone(), format!("no policy can allow it: {impossible}")));
    }
    let mut changes = Vec::new();
    if !grant.matches("backends", backend.name()) {
        changes.push(line::text("backends", backend.name()));
    }
    if !grant.matches(key, object) {
        changes.push(line::text(key, object.clone()));
    }
    if changes.is_empty() {
        return Ok(());
    }
    let refused = if grant.matches("backends", backend.name()) { object.clone() } else { backend.name().to_owned() };
    Err((refused, granted.hint(Capability::Firewall, changes)))
}

impl Granted {
    /// Checks that policy allows the packet filter that the gate has chosen, with the object that it acts on.
    ///
    /// # Errors
    /// [`ErrorCode::Denied`]. The hint is the policy line that would allow the packet filter.
    pub fn allows_filter(&self, backend: FirewallBackend, named: &Named) -> Result<(), OpError> {
        let denied = |object: &str, hint: String| {
            let message = format!("policy does not allow plugin \"{}\" firewall.admit on \"{object}\"", self.plugin());
            OpError::new(ErrorCode::Denied, object, message).hint(hint)
        };
        match self.grant(Capability::Firewall) {
            None => Err(denied(backend.name(), self.hint(Capability::Firewall, Vec::new()))),
            Some(grant) => allowed(self, grant, backend, named).map_err(|(object, hint)| denied(&object, hint)),
        }
    }

    /// Returns the isolation that policy requires. An ADD without this isolation is refused.
    pub fn required_ingress(&self) -> Option<IngressPolicy> {
        let grant = self.written(Capability::Firewall)?;
        grant.texts("required").find_map(|text| IngressPolicy::parse(&text))
    }

    /// Returns the network's zone, if policy lets addresses be put into it.
    pub fn zone(&self, named: &Named) -> Option<String> {
        self.allows_filter(FirewallBackend::Firewalld, named).is_ok().then(|| named.zone.to_string())
    }
}

/// Chains that the kernel has, and names that iptables takes for targets, separated by blanks.
const TAKEN: &str = "INPUT FORWARD OUTPUT PREROUTING POSTROUTING \
    ACCEPT AUDIT CHECKSUM CLASSIFY CLUSTERIP CONNMARK CONNSECMARK CT DNAT DNPT DROP DSCP ECN HL HMARK IDLETIMER LED \
    LOG MARK MASQUERADE NETMAP NFLOG NFQUEUE NOTRACK QUEUE RATEEST REDIRECT REJECT RETURN SECMARK SET SNAT SNPT \
    SYNPROXY TCPMSS TCPOPTSTRIP TEE TOS TPROXY TRACE TTL ULOG";

/// Chains that programs have for their own rules. Any other chain may be for an administrator's rules. Some programs
/// leave a chain to the administrator (`DOCKER-USER`, `ufw-user-forward`).
const OF_PROGRAMS: &[&str] = &["CNI-FORWARD", "DOCKER"];

/// The prefixes of chains that a program makes in large numbers. A longer name with such a prefix belongs to the
/// program.
const MADE_BY_PROGRAMS: &[&str] = &["CNI-HOSTPORT-", "CNI-DN-", "CNI-ISOLATION-STAGE-", "DOCKER-ISOLATION-", "KUBE-"];

/// True for the name of a chain of the kernel, and for a name that iptables takes for a target.
pub fn is_taken(name: &str) -> bool {
    TAKEN.split(' ').any(|taken| taken == name)
}

/// True for the name of a chain that a program or a plugin has for its own rules.
fn is_of_program(name: &str) -> bool {
    // ipMasq makes a chain for each container, named by a hash.
    let digits = name.strip_prefix("CNI-").unwrap_or_default();
    let is_hash = digits.len() == 24 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let is_made = |beginning: &&str| name.len() > beginning.len() && name.starts_with(*beginning);
    is_hash || OF_PROGRAMS.contains(&name) || MADE_BY_PROGRAMS.iter().any(is_made)
}

/// True if an administrator's chain can have this name. Names of chains of the kernel, of programs and of plugins can't
/// be used.
pub fn is_admin_chain(name: &str) -> bool {
    // XT_EXTENSION_MAXNAMELEN, with its final NUL.
    let is_name = name.len() < 29
        && name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:+".contains(&byte));
    is_name && !is_taken(name) && !is_of_program(name)
}

/// True for the name of a zone of firewalld.
pub fn is_zone(name: &str) -> bool {
    // A name that begins with `-` would be an option of the program that gets it as an argument.
    (1..=64).contains(&name.len())
        && !name.starts_with('-')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_chain_is_an_administrators() {
        for good in [
            "CNI-ADMIN",
            "CNI-ADMIN-2",
            "CNI-ADMINS",
            "CNI-CUSTOM",
            "CNI-a631aa8e1549a3b129110fd",
            "CNI-FORWARD-ADMIN",
            "DOCKER-USER",
            "DOCKERS",
            "LIBVIRT_ADMIN",
            "cali-admin",
            "f2b-site",
            "nixos-fw-custom",
            "ufw-user-forward",
            "KUBERNETES",
            "MY_RULES",
            "site.admin",
            "a",
        ] {
            assert!(is_admin_chain(good), "{good}");
        }
        for bad in [
            "",
            "INPUT",
            "FORWARD",
            "POSTROUTING",
            "ACCEPT",
            "DROP",
            "LOG",
            "KUBE-FORWARD",
            "KUBE-ROUTER-FORWARD",
            "DOCKER",
            "DOCKER-ISOLATION-STAGE-1",
            "CNI-FORWARD",
            "CNI-ISOLATION-STAGE-1",
            "CNI-HOSTPORT-DNAT",
            "CNI-DN-0123",
            "CNI-a631aa8e1549a3b129110fd2",
            "-j",
            "a b",
            "a\nCOMMIT",
            "!x",
            "x\"",
            "twenty-nine-characters-in-all",
            "é",
        ] {
            assert!(!is_admin_chain(bad), "{bad}");
        }
    }

    #[test]
    fn a_zone_has_a_plain_name() {
        assert!(is_zone("trusted") && is_zone("my_zone-2"));
        for bad in ["", "a b", "a/b", "tru\nsted", "é", "-zone"] {
            assert!(!is_zone(bad), "{bad}");
        }
    }
}
