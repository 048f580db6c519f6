//! `delegate`: the main plugins that a network of flannel may name, those of them that may be native programs, and the
//! files that count.

use super::Decide;
use crate::grammar::{Count, Key, ValueKind, key, required};
use crate::granted::{Grant, Granted};
use crate::line::{self, Change};
use crate::prelude::*;
use crate::rules::RuleInput;
use postern_cni::{Flannel, NetConf};
use postern_types::{Capability, OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[
    required("types", ValueKind::Plugin, "${config.delegate.type | bridge}"),
    key("native", ValueKind::Plugin, Count::Any),
    required("files", ValueKind::File, "${config.subnetFile | /run/flannel/subnet.env}"),
    required("directories", ValueKind::Directory, "${config.dataDir | /var/lib/cni/flannel}"),
];

/// The objects that a network names: plugin, subnet file, and the directory of the native plugin's files. They are empty
/// if its keys can't be read: the plugin reports that.
pub fn named(conf: &NetConf) -> [String; 3] {
    match Flannel::read(conf) {
        Ok(flannel) => [flannel.delegate, flannel.subnet_file, flannel.data_dir],
        Err(_) => [const { String::new() }; 3],
    }
}

impl Decide for ops::Delegate {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        let [plugin, file, directory] = named(input.question.conf);
        let reads = || input.one_of(grant, "files", ValueKind::File, &file, "delegate.files");
        let runs = || input.one_of(grant, "types", ValueKind::Plugin, &plugin, "delegate.types");
        match self {
            // Without its keys there is nothing to decide on: the operation itself says what is wrong with them.
            _ if plugin.is_empty() => Ok(grant.name),
            Self::SubnetFile => reads(),
            Self::Add { .. } => {
                reads()?;
                input.one_of(grant, "directories", ValueKind::Directory, &directory, "delegate.directories")?;
                runs()
            }
            Self::Del | Self::Check | Self::Status | Self::Gc => runs(),
        }
    }

    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change> {
        let [plugin, file, directory] = named(input.question.conf);
        let all = [("types", plugin), ("files", file), ("directories", directory)];
        match self {
            Self::SubnetFile | Self::Add { .. } | Self::Del | Self::Check | Self::Status | Self::Gc => {
                all.into_iter().flat_map(|(key, object)| line::object(key, &object)).collect()
            }
        }
    }
}

impl Granted {
    /// True if policy lets this main plugin be a delegate.
    pub fn allows_delegate(&self, plugin: &str) -> bool {
        self.grant(Capability::Delegate).is_some_and(|grant| grant.matches("types", plugin))
    }

    /// True if policy lets this subnet file be read.
    pub fn allows_subnet_file(&self, file: &str) -> bool {
        self.grant(Capability::Delegate).is_some_and(|grant| grant.matches("files", file))
    }

    /// True if policy lets the native plugin's files be in this directory.
    pub fn allows_delegations_in(&self, directory: &str) -> bool {
        self.grant(Capability::Delegate).is_some_and(|grant| grant.matches("directories", directory))
    }

    /// True if policy lets this main plugin be a native program.
    pub fn allows_native_delegate(&self, plugin: &str) -> bool {
        let grant = self.grant(Capability::Delegate);
        grant.is_some_and(|grant| grant.matches("types", plugin) && grant.matches("native", plugin))
    }

    /// The way out of a refused main plugin that is a native program.
    pub fn native_delegate_hint(&self, plugin: &str) -> String {
        self.hint(Capability::Delegate, vec![line::text("native", plugin)])
    }
}
