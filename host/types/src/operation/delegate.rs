//! `delegate`: the main plugin of a network of flannel, with a configuration that the host makes.

use super::table;
use serde::{Deserialize, Serialize};

/// `delegate`: the main plugin of a network of flannel, with a configuration that the host makes.
#[allow(missing_docs, reason = "a variant's own line describes its fields")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op")]
pub enum Delegate {
    /// The contents of the subnet file.
    #[serde(rename = "delegate-subnet-file")]
    SubnetFile,
    /// The delegate's ADD, with the configuration that the guest has made.
    #[serde(rename = "delegate-add")]
    Add { config: String },
    /// The delegate's DEL.
    #[serde(rename = "delegate-del")]
    Del,
    /// The delegate's CHECK.
    #[serde(rename = "delegate-check")]
    Check,
    /// The delegate's STATUS.
    #[serde(rename = "delegate-status")]
    Status,
    /// The delegate's GC.
    #[serde(rename = "delegate-gc")]
    Gc,
}

table! {
    Delegate;
    SubnetFile {} => "delegate.subnet-file", Nowhere, Nothing;
    Add {} => "delegate.add", Both, Link;
    Del {} => "delegate.del", Both, Release, Allowed;
    Check {} => "delegate.check", Both, Nothing;
    Status {} => "delegate.status", Nowhere, Nothing;
    Gc {} => "delegate.gc", Host, Collection;
}
