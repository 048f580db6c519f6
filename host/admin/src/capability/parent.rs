//! `parent`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{about, group};
use postern_types::{OpError, Reply, ops};

/// The placeholder for the link of the default route in a policy.
const DEFAULT: &str = "node.default-link";

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "stack links on other links",
    always: None,
    groups: &[group(&["find", "[method]parent.attributes"], |objects| {
        about(objects, "names", "link", |link| {
            format!("look at {link}, to stack its own link on that link, and not change that link")
        })
    })],
    keys: &[
        Key::list("names", Source::Value("master", Some(DEFAULT)), WidestValue::Values(&["*", "${node.default-link}"])),
        Key::one("in-container", Source::Value("linkInContainer", Some("false")), WidestValue::Configured),
    ],
    objects: |operation| {
        let named = operation.value("/name").filter(|name: &String| !name.is_empty());
        let mut objects = operation.values(&[("in-container", "/in_container")]);
        objects.push(("names", named.unwrap_or_else(|| DEFAULT.to_owned())));
        objects
    },
};

impl OperationTexts for ops::Parent {
    fn words(&self, _: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Find { name, in_container } => {
                let place = if *in_container { "in the container" } else { "on the host" };
                match name.as_str() {
                    "" => format!("look at the link of the default route, {place}"),
                    name => format!("look at {name}, {place}"),
                }
            }
        }
    }
}
