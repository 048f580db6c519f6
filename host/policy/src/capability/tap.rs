//! `tap`: the MTU of a tap, its user and group, whether it may have several queues, and the bridges that it may join.

use super::prelude::*;

/// The key of the SELinux context.
pub const CONTEXT: &str = "selinux-context";

/// The keys of `[grant.tap]`.
pub const KEYS: &[Key] = &[
    key("mtu", ValueKind::Mtu, Count::One),
    // A process that may open a tap gets its frames. Every process in the container may open a tap without user and
    // group.
    key("owners", ValueKind::Number, Count::Some),
    key("groups", ValueKind::Number, Count::Some),
    // The key takes a single context, because the process that makes the tap is started in this context before the
    // plugin runs.
    key(CONTEXT, ValueKind::SelinuxContext, Count::One),
    key("multi-queue", ValueKind::Flag, Count::One),
    key("bridges", ValueKind::Link, Count::Some),
    LOOK_ONLY,
];

impl Decide for ops::Tap {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Create { settings } => {
                input.mtu(grant, settings.mtu, "")?;
                let id = |id: Option<u32>| id.map(|id| id.to_string());
                belongs(input, grant, "owners", id(settings.owner), "owner")?;
                belongs(input, grant, "groups", id(settings.group), "group")?;
                belongs(input, grant, CONTEXT, settings.selinux_context.clone(), "SELinux context")?;
                if settings.multi_queue {
                    input.says(grant, "multi-queue", "true", "with several queues")?;
                }
                input.changes(grant)
            }
            Self::Join { bridge, .. } => {
                input.changes(grant)?;
                input.one_of(grant, "tap.bridges", bridge)
            }
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Create { settings } => {
                let owner = settings.owner.map(|owner| line::text("owners", owner.to_string()));
                let group = settings.group.map(|group| line::text("groups", group.to_string()));
                let context = settings.selinux_context.as_ref().map(|context| line::text(CONTEXT, context.as_str()));
                owner.into_iter().chain(group).chain(context).collect()
            }
            Self::Join { bridge, .. } => line::object("bridges", bridge),
        }
    }
}

impl Granted {
    /// True if the plugin may make a tap at all.
    pub fn makes_taps(&self) -> bool {
        self.grant(Capability::Tap).is_some_and(|grant| !grant.on(LOOK_ONLY.name))
    }

    /// Returns the SELinux context of the taps that may be made.
    pub fn tap_context(&self) -> Option<String> {
        self.grant(Capability::Tap)?.texts(CONTEXT).next()
    }
}

/// Checks one setting of the tap: owner, group or context. The policy must name the setting's value. If the policy names no
/// value, the tap must not have the setting.
fn belongs(
    input: &RuleInput<'_>,
    grant: &Grant,
    key: &'static str,
    id: Option<String>,
    noun: &str,
) -> Result<(), OpError> {
    match id {
        Some(id) => input.says(grant, key, &id, &format!("with {noun} {id}")),
        None if grant.texts(key).next().is_none() => Ok(()),
        None => Err(input.key(&format!("without {noun}"), vec![Change::Without(key)])),
    }
}
