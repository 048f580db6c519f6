//! `ipam`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{Group, about, group};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "run an IPAM plugin",
    always: None,
    groups: &[
        group(FUNCTIONS, |objects| {
            about(objects, "types", "IPAM plugin", |plugins| format!("run {plugins}, sandboxed under its own policy"))
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
    keys: &[Key::list("types", Source::Value("ipam.type", None), WidestValue::Values(&["*"]))],
    objects: |operation| operation.network.named("/ipam/type").map(|plugin| ("types", plugin)).into_iter().collect(),
};

const FUNCTIONS: &[&str] = &["add", "del", "check", "status", "gc"];

impl OperationTexts for ops::Ipam {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Add => format!("have addresses given by {}", plugin(names)),
            Self::Del => format!("have addresses taken back by {}", plugin(names)),
            Self::Check => format!("have addresses compared by {}", plugin(names)),
            Self::Status => format!("ask {} whether it is ready", plugin(names)),
            Self::Gc => format!("have leftovers removed by {}", plugin(names)),
        }
    }
}

fn plugin<'n>(names: &Names<'n>) -> &'n str {
    match names.request.conf.ipam_type.as_str() {
        "" => "no IPAM plugin, since the network names none",
        name => name,
    }
}
