//! The runtime's data about an attachment.

use serde_json::{Map, Value};

/// One interface of one container in one network, and the runtime's arguments for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attachment {
    /// `CNI_CONTAINERID`: the container's ID.
    pub container_id: String,
    /// `CNI_NETNS`: the path of the container's network namespace. Empty if it is gone.
    pub netns: String,
    /// `CNI_IFNAME`: the name of the interface in the container.
    pub ifname: String,
    /// `CNI_ARGS`: pairs of key and value.
    pub args: Vec<(String, String)>,
    /// Values for `runtimeConfig`, by capability. A plugin gets only the values of capabilities that its entry
    /// declares.
    pub capability_args: Map<String, Value>,
}

impl Attachment {
    /// Makes an attachment without arguments.
    pub fn new(container_id: &str, netns: &str, ifname: &str) -> Self {
        Self { container_id: container_id.into(), netns: netns.into(), ifname: ifname.into(), ..Self::default() }
    }

    /// Returns the value of `CNI_ARGS`: pairs `KEY=VALUE`, with semicolons between them.
    pub fn args_text(&self) -> String {
        let pairs: Vec<String> = self.args.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(";")
    }
}
