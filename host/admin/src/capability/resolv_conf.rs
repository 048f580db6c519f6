//! `resolv-conf`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group};
use postern_policy::capability::resolv_conf::file;
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "read a resolver file",
    always: None,
    groups: &[group(&["read"], |objects| {
        about(objects, "files", "resolver file", |files| format!("read the name servers (never the text) of {files}"))
    })],
    keys: &[Key::list("files", Source::Value("ipam.resolvConf", None), WidestValue::Configured)],
    objects: |operation| operation.network.named("/ipam/resolvConf").map(|file| ("files", file)).into_iter().collect(),
};

impl OperationTexts for ops::ResolvConf {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Read => format!("read the name servers of {}", file(&names.request.conf)),
        }
    }
}
