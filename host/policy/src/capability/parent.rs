//! `parent`: the links that other links may be stacked on, and whether they are on the host or in the container.

use super::prelude::*;
use crate::grammar::DEFAULT_LINK;

/// The keys of `[grant.parent]`.
pub const KEYS: &[Key] = &[
    required("names", ValueKind::Link, "${config.master | node.default-link}"),
    key("in-container", ValueKind::Flag, Count::One),
];

impl Decide for ops::Parent {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Find { name, in_container } => {
                // A network has its master either in the container or on the host.
                if *in_container != grant.on("in-container") {
                    let place = if *in_container { "in the container" } else { "on the host" };
                    let what = format!("on {name:?} {place}");
                    return Err(input.key(&what, vec![line::text("in-container", format!("{in_container}"))]));
                }
                // The link of the default route has no name in the operation. The gate finds the name.
                if name.is_empty() && !grant.matches("names", "") {
                    let what = "on the link of the default route";
                    return Err(input.key(what, vec![line::text("names", format!("${{{DEFAULT_LINK}}}"))]));
                }
                if name.is_empty() {
                    return Ok("parent.names");
                }
                input.one_of(grant, "parent.names", name)
            }
        }
    }

    fn objects(&self, _: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Find { name, in_container } => {
                let mut objects = line::object("names", name);
                if *in_container {
                    objects.push(line::text("in-container", "true"));
                }
                objects
            }
        }
    }
}
