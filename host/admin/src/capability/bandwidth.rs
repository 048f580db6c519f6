//! `bandwidth`, for people.

use super::{OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{OpError, RateLimit, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "limit the rate of its traffic",
    always: Some(
        "only at this attachment's own host end, and only to the rates that the runtime asks for; the plugin can name \
         no link, queueing discipline or filter",
    ),
    groups: &[
        group(&["limit"], |_| {
            say("limit the rate of its own traffic, and make a link (ifb) on the host for the container's sent traffic")
        }),
        group(&["check"], |_| say("compare the limits of its own traffic")),
        group(&["remove"], |_| say("remove the limits of its own traffic")),
    ],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::Bandwidth {
    fn words(&self, _: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Limit { ingress, egress } => format!("limit the attachment's traffic: {}", limits(*ingress, *egress)),
            Self::Check { ingress, egress } => {
                format!("compare the limits of the attachment's traffic: {}", limits(*ingress, *egress))
            }
            Self::Remove => "remove the limits of the attachment's traffic".to_owned(),
        }
    }
}

fn limits(ingress: Option<RateLimit>, egress: Option<RateLimit>) -> String {
    let words = |direction: &str, limit: Option<RateLimit>| {
        limit.map(|limit| format!("{} bit/s {direction} the container (burst {} bits)", limit.rate, limit.burst))
    };
    super::list([words("to", ingress), words("from", egress)].into_iter().flatten(), "no limit")
}
