//! `tap`: with which MTU, for which user and group, with several queues or not, and which bridges it may join.

use super::Decide;
use crate::grammar::{Count, Key, Kind, LOOK_ONLY, key};
use crate::granted::Grant;
use crate::line::{self, Change};
use crate::rules::RuleInput;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use postern_types::{OpError, ops};

/// The keys of its table.
pub const KEYS: &[Key] = &[
    key("mtu", Kind::Mtu, Count::One),
    // Whoever may open a tap has its frames. A tap of no user and no group is for everybody in the container.
    key("owners", Kind::Number, Count::Some),
    key("groups", Kind::Number, Count::Some),
    key("multi-queue", Kind::Flag, Count::One),
    key("bridges", Kind::Link, Count::Some),
    LOOK_ONLY,
];

impl Decide for ops::Tap {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create { settings } => {
                input.mtu(grant, settings.mtu, "")?;
                belongs(input, grant, "owners", settings.owner, "owner")?;
                belongs(input, grant, "groups", settings.group, "group")?;
                if settings.multi_queue && !grant.on("multi-queue") {
                    return Err(input.key("with several queues", vec![line::text("multi-queue", "true")]));
                }
                input.changes(grant)
            }
            Self::Join { bridge, .. } => {
                input.changes(grant)?;
                input.one_of(grant, "bridges", Kind::Link, bridge, "tap.bridges")
            }
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Create { settings } => {
                let owner = settings.owner.map(|owner| line::text("owners", owner.to_string()));
                let group = settings.group.map(|group| line::text("groups", group.to_string()));
                owner.into_iter().chain(group).collect()
            }
            Self::Join { bridge, .. } => line::object("bridges", bridge),
        }
    }

    fn gives_up(&self, _: &RuleInput<'_>) -> bool {
        match self {
            Self::Create { .. } | Self::Join { .. } => false,
        }
    }
}

/// Checks that it belongs to whom the policy names, and to nobody where that names none.
fn belongs(
    input: &RuleInput<'_>,
    grant: &Grant,
    key: &'static str,
    id: Option<u32>,
    noun: &str,
) -> Result<(), OpError> {
    let Some(id) = id else {
        return match grant.texts(key).next() {
            None => Ok(()),
            Some(_) => Err(input.key(&format!("without {noun}"), vec![Change::Without(key)])),
        };
    };
    match grant.texts(key).any(|text| text == id.to_string()) {
        true => Ok(()),
        false => Err(input.key(&format!("with {noun} {id}"), vec![line::text(key, id.to_string())])),
    }
}
