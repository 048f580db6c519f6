//! `delegate`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{Group, about, group};
use postern_cni::flannel::{DATA_DIRECTORY, DELEGATE, SUBNET_FILE};
use postern_policy::capability::delegate::named;
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "have another plugin make the attachment",
    always: Some("the host makes the configuration of the plugin that it delegates to"),
    groups: &[
        group(&["subnet-file"], |objects| {
            about(objects, "files", "subnet file", |files| format!("read the subnets (never the text) of {files}"))
        }),
        group(FUNCTIONS, |objects| {
            about(objects, "types", "plugin", |plugins| {
                format!("have {plugins} make the attachment, sandboxed under its own policy")
            })
        }),
        group(&["add", "del"], |objects| {
            about(objects, "directories", "directory", |directories| {
                format!("have the configuration kept in {directories}, as the native plugin does")
            })
        }),
        Group {
            functions: FUNCTIONS,
            with: &[],
            text: |objects| {
                about(objects, "native", "native program", |program| {
                    format!("RUN {program} WITH ALL OF THE HOST'S PRIVILEGES, outside of any sandbox")
                })
            },
            host_privileges: true,
        },
    ],
    keys: &[
        Key::list("types", Source::Value("delegate.type", Some(DELEGATE)), WidestValue::Values(&["*"])),
        Key::list("files", Source::Value("subnetFile", Some(SUBNET_FILE)), WidestValue::Configured),
        Key::list("directories", Source::Value("dataDir", Some(DATA_DIRECTORY)), WidestValue::Configured),
    ],
    objects: |operation| {
        let or = |pointer: &str, default: &str| operation.network.named(pointer).unwrap_or_else(|| default.to_owned());
        let types = ("types", or("/delegate/type", DELEGATE));
        let files = ("files", or("/subnetFile", SUBNET_FILE));
        let directories = ("directories", or("/dataDir", DATA_DIRECTORY));
        match operation.function {
            "subnet-file" => vec![files],
            "add" => vec![types, files, directories],
            _ => vec![types],
        }
    },
};

const FUNCTIONS: &[&str] = &["add", "del", "check", "status", "gc"];

impl OperationTexts for ops::Delegate {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        let [plugin, file, _] = named(&names.request.conf);
        match self {
            Self::SubnetFile => format!("read the subnets of {file}"),
            Self::Add { .. } => format!("have the attachment made by {plugin}"),
            Self::Del => format!("have the attachment removed by {plugin}"),
            Self::Check => format!("have the attachment compared by {plugin}"),
            Self::Status => format!("ask {plugin} whether it is ready"),
            Self::Gc => format!("have leftovers removed by {plugin}"),
        }
    }
}
