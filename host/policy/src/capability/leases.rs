//! `leases`: the directories, and the ranges of addresses.

use super::ipam_text;
use super::prelude::*;
use crate::ranges;
use crate::rules::on;
use postern_cni::NetConf;
use postern_types::LeaseRange;

/// The keys of `[grant.leases]`.
pub const KEYS: &[Key] = &[
    required("directories", ValueKind::Directory, "${config.ipam.dataDir | /var/lib/cni/networks}"),
    required("ranges", ValueKind::Range, "${config.ipam.ranges.*.*}"),
];

/// The directory where the native host-local keeps its networks by default.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/cni/networks";

/// The directory of a network's leases: `ipam.dataDir`, or the default.
pub fn directory(conf: &NetConf) -> String {
    ipam_text(conf, "dataDir").unwrap_or_else(|| DEFAULT_DIRECTORY.to_owned())
}

impl Decide for ops::Leases {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        let directory = directory(input.question.conf);
        let rule = input.one_of(grant, "leases.directories", &directory)?;
        match self {
            Self::Reserve { sets, .. } | Self::Available { sets } => out_of(input, grant, sets),
            Self::Held | Self::Release | Self::Retain => Ok(rule),
        }
    }
}

fn out_of(input: &RuleInput<'_>, grant: &Grant, sets: &[Vec<LeaseRange>]) -> Result<&'static str, OpError> {
    match ranges::check(grant, sets) {
        Ok(()) => Ok("leases.ranges"),
        Err(ranges::RangeRefusal::NotGranted(range)) => {
            let object = ranges::show(&range);
            let subnet = range.subnet.trunc().to_string();
            Err(input.deny(Capability::Leases, &object, &on(&object), vec![line::text("ranges", subnet)]))
        }
        Err(ranges::RangeRefusal::UsedUp(range)) => {
            let object = ranges::show(&range);
            let another = vec![line::text("ranges", range.subnet.trunc().to_string())];
            let hint = format!(
                "each entry of [grant.leases] ranges allows one address of an attachment; {}",
                input.granted.hint(Capability::Leases, another)
            );
            Err(input.refuse(&object, &format!("{} for a second address", on(&object)), hint))
        }
    }
}
