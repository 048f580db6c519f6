//! `delegate`: the main plugins that a network of flannel may name, and the files that flannel may use. A further key
//! names the plugins that may be native programs.

use super::prelude::*;
use postern_cni::{Flannel, NetConf};

/// The keys of `[grant.delegate]`.
pub const KEYS: &[Key] = &[
    required("types", ValueKind::Plugin, "${config.delegate.type | bridge}"),
    key("native", ValueKind::Plugin, Count::Any),
    required("files", ValueKind::File, "${config.subnetFile | /run/flannel/subnet.env}"),
    required("directories", ValueKind::Directory, "${config.dataDir | /var/lib/cni/flannel}"),
];

/// The objects that a network names: plugin, subnet file, and the directory of the native plugin's files. The names are
/// empty if the network's keys can't be read. The plugin reports the error.
pub fn named(conf: &NetConf) -> [String; 3] {
    match Flannel::read(conf) {
        Ok(flannel) => [flannel.delegate, flannel.subnet_file, flannel.data_dir],
        Err(_) => [const { String::new() }; 3],
    }
}

impl Decide for ops::Delegate {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        let [plugin, file, directory] = named(input.question.conf);
        let reads = || input.one_of(grant, "delegate.files", &file);
        let runs = || input.one_of(grant, "delegate.types", &plugin);
        match self {
            // If the keys can't be read, policy decides nothing. The operation itself reports the error.
            _ if plugin.is_empty() => Ok(grant.name),
            Self::SubnetFile => reads(),
            Self::Add { .. } => {
                reads()?;
                input.one_of(grant, "delegate.directories", &directory)?;
                runs()
            }
            Self::Del | Self::Check | Self::Status | Self::Gc => runs(),
        }
    }

    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change> {
        let [plugin, file, directory] = named(input.question.conf);
        let all = [("types", plugin), ("files", file), ("directories", directory)];
        all.into_iter().flat_map(|(key, object)| line::object(key, &object)).collect()
    }
}

impl Granted {
    /// True if policy lets this main plugin be a native program.
    pub fn allows_native_delegate(&self, plugin: &str) -> bool {
        self.has_object("delegate.types", plugin) && self.has_object("delegate.native", plugin)
    }
}
