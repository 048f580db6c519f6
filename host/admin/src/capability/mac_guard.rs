//! `mac-guard`, for people.

use super::{OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use crate::words::{Objects, Switch};
use postern_types::{OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "filter frames",
    always: None,
    groups: &[
        group(&["ensure"], |objects| {
            let must = match objects.switch("required", "false") {
                Switch::On(when) if matches!(objects, Objects::Of(_)) => format!(" (and must{when})"),
                Switch::Off | Switch::On(_) => String::new(),
            };
            Some(format!("drop frames from its own container that have another source address{must}"))
        }),
        group(&["check"], |_| say("compare its spoofing protection")),
        group(&["remove"], |_| say("remove its spoofing protection, once its port is down")),
    ],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::MacGuard {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Ensure { host, mac } => {
                format!("drop frames that come by {} from another address than {mac}", names.link(*host))
            }
            Self::Check { host, mac } => {
                format!("compare the rules by which {} takes frames from {mac} only", names.link(*host))
            }
            Self::Remove => "remove the attachment's spoofing protection".to_owned(),
        }
    }
}
