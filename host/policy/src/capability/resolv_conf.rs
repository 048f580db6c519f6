//! `resolv-conf`: the files that may be read.

use super::ipam_text;
use super::prelude::*;
use postern_cni::NetConf;

/// The keys of `[grant.resolv-conf]`.
pub const KEYS: &[Key] = &[required("files", ValueKind::File, "${config.ipam.resolvConf}")];

/// The file with a network's name servers: `ipam.resolvConf`; empty if there is none.
pub fn file(conf: &NetConf) -> String {
    ipam_text(conf, "resolvConf").unwrap_or_default()
}

impl Decide for ops::ResolvConf {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Read => input.one_of(grant, "resolv-conf.files", &file(input.question.conf)),
        }
    }
}
