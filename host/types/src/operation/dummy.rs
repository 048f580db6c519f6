//! `dummy`: the attachment's own link, which leads nowhere.

use super::table;
use serde::{Deserialize, Serialize};

/// `dummy`: the attachment's own link, which leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Dummy {
    /// Make it in the container's namespace, down.
    #[serde(rename = "dummy-create")]
    Create,
}

table! {
    Dummy;
    Create {} => "dummy.create", Container, Link;
}
