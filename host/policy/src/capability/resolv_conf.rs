//! `resolv-conf`: the files that may be read.

use super::{Decide, ipam_text};
use crate::grammar::{Key, ValueKind, required};
use crate::granted::{Grant, Granted};
use crate::line::{self, Change};
use crate::prelude::*;
use crate::rules::RuleInput;
use postern_cni::NetConf;
use postern_types::{Capability, OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[required("files", ValueKind::File, "${config.ipam.resolvConf}")];

/// The file with a network's name servers: `ipam.resolvConf`; empty if there is none.
pub fn file(conf: &NetConf) -> String {
    ipam_text(conf, "resolvConf").unwrap_or_default()
}

impl Decide for ops::ResolvConf {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Read => {
                input.one_of(grant, "files", ValueKind::File, &file(input.question.conf), "resolv-conf.files")
            }
        }
    }

    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Read => line::object("files", &file(input.question.conf)),
        }
    }
}

impl Granted {
    /// True if policy lets this resolver file be read.
    pub fn allows_file(&self, file: &str) -> bool {
        self.grant(Capability::ResolvConf).is_some_and(|grant| grant.matches("files", file))
    }
}
