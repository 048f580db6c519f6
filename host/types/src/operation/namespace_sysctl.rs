//! `namespace-sysctl`: kernel settings of the container's network namespace that the operator's configuration lists.

use super::table;
use serde::{Deserialize, Serialize};

/// `namespace-sysctl`: kernel settings of the container's network namespace.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum NamespaceSysctl {
    /// Write a value: key and value as the configuration has them.
    #[serde(rename = "namespace-sysctl-set")]
    Set { key: String, value: String },
    /// Compare it.
    #[serde(rename = "namespace-sysctl-check")]
    Check { key: String, value: String },
}

table! {
    NamespaceSysctl;
    Set {} => "namespace-sysctl.set", Container, Namespace;
    Check {} => "namespace-sysctl.check", Container, Nothing;
}
