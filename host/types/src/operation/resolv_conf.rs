//! `resolv-conf`: the file that the operator's `ipam.resolvConf` names.

use super::table;
use serde::{Deserialize, Serialize};

/// `resolv-conf`: the file that the operator's `ipam.resolvConf` names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum ResolvConf {
    /// Read the file, and return it parsed.
    #[serde(rename = "resolv-conf-read")]
    Read,
}

table! {
    ResolvConf;
    Read {} => "resolv-conf.read", Nowhere, Nothing;
}
