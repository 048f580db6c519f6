//! `leases`, for people.

use super::{OperationTexts, Page, list};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group};
use postern_policy::capability::leases::{DEFAULT_DIRECTORY, directory};
use postern_types::{LeaseGrant, LeaseRange, OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "take leases",
    always: Some("only with its own leases: leases of other attachments can't be taken, seen or released"),
    groups: &[
        group(&["reserve"], |objects| {
            about(objects, "directories", "directory", |directories| {
                let ranges = objects.words("ranges", "range");
                format!("take leases of this network in {directories}, for this attachment only, out of {ranges}")
            })
        }),
        group(&["held", "available"], |objects| {
            about(objects, "directories", "directory", |directories| {
                format!("look at its own leases in {directories}, and whether an address is free")
            })
        }),
        group(&["release"], |objects| {
            about(objects, "directories", "directory", |directories| {
                format!("give its own leases in {directories} back, once the attachment's pair and rules are gone")
            })
        }),
        group(&["retain"], |objects| {
            about(objects, "directories", "directory", |directories| {
                format!("free this network's leases in {directories} whose owners the runtime no longer lists")
            })
        }),
    ],
    keys: &[
        Key::list("directories", Source::Value("ipam.dataDir", Some(DEFAULT_DIRECTORY)), WidestValue::Configured),
        Key::list(
            "ranges",
            Source::Parts(&[
                ("/ipam/subnet", "${config.ipam}"),
                ("/ipam/ranges", "${config.ipam.ranges.*.*}"),
                ("/runtimeConfig/ipRanges", "${config.runtimeConfig.ipRanges.*.*}"),
            ]),
            // Each entry allows one address for an attachment.
            WidestValue::Values(&["0.0.0.0/0", "0.0.0.0/0", "0.0.0.0/0", "0.0.0.0/0", "::/0", "::/0", "::/0", "::/0"]),
        ),
    ],
    objects: |operation| {
        let directory = operation.network.named("/ipam/dataDir").unwrap_or_else(|| DEFAULT_DIRECTORY.to_owned());
        let sets: Vec<Vec<LeaseRange>> = operation.value("/sets").unwrap_or_default();
        let ranges = sets.iter().flatten().map(|range| ("ranges", range.subnet.to_string()));
        std::iter::once(("directories", directory)).chain(ranges).collect()
    },
};

impl OperationTexts for ops::Leases {
    fn words(&self, names: &Names<'_>, outcome: &Result<Reply, OpError>) -> String {
        let network = || {
            let conf = &names.request.conf;
            format!("{}/{}", directory(conf), conf.name)
        };
        match self {
            Self::Reserve { sets, .. } => match outcome.as_ref().map(Reply::read::<Vec<LeaseGrant>>) {
                Ok(Ok(grants)) => {
                    let taken = list(grants.iter().map(|grant| grant.address), "no address");
                    format!("take {taken}, in {}", network())
                }
                Ok(Err(_)) | Err(_) => format!("take an address out of {}, in {}", all(sets), network()),
            },
            Self::Held => format!("look at the attachment's leases in {}", network()),
            Self::Release => format!("give the attachment's leases in {} back", network()),
            Self::Retain => format!("free leases in {} whose owners are gone", network()),
            Self::Available { sets } => format!("look whether an address of {} is free", all(sets)),
        }
    }
}

fn all(sets: &[Vec<LeaseRange>]) -> String {
    list(sets.iter().map(|set| ranges(set)), "no range")
}

fn ranges(set: &[LeaseRange]) -> String {
    let range = |range: &LeaseRange| match (range.start, range.end) {
        (None, None) => range.subnet.to_string(),
        (start, end) => {
            let text = |ip: Option<std::net::IpAddr>| ip.map(|ip| ip.to_string()).unwrap_or_default();
            format!("{} ({}-{})", range.subnet, text(start), text(end))
        }
    };
    list(set.iter().map(range), "no range")
}
