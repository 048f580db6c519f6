//! The request that one plugin carries out.

use crate::named::OF_RUNTIME;
use postern_cni::{CniResult, Env, Error, Json, Lists, NetConf, Verb, Version, print, unicode};
use postern_firewall::AttachmentKey;
use postern_state::LeaseOwner;
use sha2::{Digest, Sha256};
use std::rc::Rc;
use std::sync::Arc;

/// The request that the protocol reads from environment and standard input, or the request of a delegate.
#[derive(Clone, Debug)]
pub struct Request {
    /// The plugin that the runtime called. Effects of delegates are in this plugin's section of the record, so that DEL
    /// of this plugin also removes these effects.
    pub plugin: String,
    /// The verb.
    pub verb: Verb,
    /// `CNI_CONTAINERID`; empty for GC and STATUS.
    pub container_id: String,
    /// `CNI_NETNS` as given.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_PATH`, for native delegates.
    pub path: String,
    /// The environment that a guest sees: only `CNI_*`, without `CNI_COMMAND`, which each run sets.
    pub env: Vec<(String, String)>,
    /// Standard input, unchanged.
    pub stdin: Arc<String>,
    /// The configuration from standard input.
    pub conf: Rc<NetConf>,
    /// True if the host made this configuration, for the delegate of a flannel network.
    pub is_made_by_host: bool,
    /// The version in which results are printed.
    pub version: Version,
}

impl Request {
    /// Returns the request that the gate works on, from a configuration that is valid for this version.
    ///
    /// # Errors
    /// Code 6: GC's lists have a wrong form.
    pub fn read(
        plugin: &str,
        env: &Env,
        verb: Verb,
        version: Version,
        raw: (Json, Lists),
        stdin: &[u8],
    ) -> Result<Self, Error> {
        let variables = [
            ("CNI_CONTAINERID", &env.container_id),
            ("CNI_NETNS", &env.netns),
            ("CNI_IFNAME", &env.ifname),
            ("CNI_ARGS", &env.args),
            ("CNI_PATH", &env.path),
        ];
        // The lists in the configuration don't influence a DEL.
        if verb != Verb::Del {
            NetConf::check_lists(&raw.0)?;
        }
        // Wrong types of common keys are no error here: the plugin itself refuses them.
        let conf = NetConf::parse_or_unread(raw.0, raw.1);
        Ok(Self {
            plugin: plugin.to_owned(),
            verb,
            container_id: env.container_id.clone(),
            netns: env.netns.clone(),
            ifname: env.ifname.clone(),
            path: env.path.clone(),
            env: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect(),
            stdin: Arc::new(unicode::json(stdin).into_owned()),
            conf: Rc::new(conf),
            is_made_by_host: false,
            version,
        })
    }

    /// Returns the request of an IPAM plugin: this configuration with `verb`.
    pub fn of_delegate(&self, verb: Verb) -> Self {
        Self { verb, ..self.clone() }
    }

    /// Returns the name of the attachment: network, container and interface.
    pub fn attachment(&self) -> String {
        format!("{}/{}/{}", self.conf.name, self.container_id, self.ifname)
    }

    /// Returns the owner of the attachment's leases.
    pub fn owner(&self) -> LeaseOwner {
        LeaseOwner::new(&self.container_id, &self.ifname)
    }

    /// Returns the key that identifies the attachment's masquerading rules.
    pub fn masquerade_key(&self) -> AttachmentKey {
        AttachmentKey {
            network: self.conf.name.clone(),
            container_id: self.container_id.clone(),
            ifname: self.ifname.clone(),
        }
    }

    /// Returns a hash that distinguishes this configuration from another configuration of the same plugin in the list.
    /// Values that the runtime adds for each container are left out.
    pub fn identity(&self) -> String {
        let Json::Object(entries) = self.conf.raw() else { return String::new() };
        let is_own = |key: &str| !OF_RUNTIME.iter().any(|of_runtime| key.eq_ignore_ascii_case(of_runtime));
        let own = entries.iter().filter(|(key, _)| is_own(key)).cloned().collect();
        let mut hex = base16ct::lower::encode_string(&Sha256::digest(print::compact(&Json::Object(own).sorted())));
        hex.truncate(16);
        hex
    }

    /// Returns the result of the earlier plugins; an empty result if the request has no readable result.
    pub fn previous(&self) -> CniResult {
        self.conf.previous_result().ok().flatten().unwrap_or_default()
    }

    /// Returns `CNI_ARGS`; empty if there are none.
    pub fn args(&self) -> &str {
        self.env.iter().find(|(name, _)| name == "CNI_ARGS").map_or("", |(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Request {
        /// Makes the request of a test, for `eth0` of container `c`.
        pub fn of_test(plugin: &str, verb: Verb, conf: &str) -> Self {
            let conf = NetConf::parse_or_unread(Json::parse(conf.as_bytes(), 4096).unwrap(), Lists::default());
            Self {
                plugin: plugin.to_owned(),
                verb,
                container_id: "c".to_owned(),
                netns: "/run/netns/c".to_owned(),
                ifname: "eth0".to_owned(),
                path: String::new(),
                env: Vec::new(),
                stdin: Arc::default(),
                conf: conf.into(),
                is_made_by_host: false,
                version: Version::LATEST,
            }
        }
    }
}
