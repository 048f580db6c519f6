//! The operator's own part of a network's configuration. Plugins of third parties have their own keys there.

use postern_cni::{Json, NetConf};

/// The keys that a runtime adds to a configuration. The operator writes all other keys.
pub const OF_RUNTIME: [&str; 5] =
    ["prevResult", "runtimeConfig", "args", "cni.dev/valid-attachments", "cni.dev/attachments"];

/// Passes each value of the operator's own part of a configuration to `each`, also values within objects and lists.
pub fn each_value<'c>(conf: &'c NetConf, each: &mut impl FnMut(&'c Json)) {
    each(conf.raw());
    let Json::Object(entries) = conf.raw() else { return };
    for (key, value) in entries {
        if !OF_RUNTIME.iter().any(|of_runtime| key.eq_ignore_ascii_case(of_runtime)) {
            each_within(value, each);
        }
    }
}

fn each_within<'c>(value: &'c Json, each: &mut impl FnMut(&'c Json)) {
    each(value);
    match value {
        Json::Array(values) => values.iter().for_each(|value| each_within(value, each)),
        Json::Object(entries) => entries.iter().for_each(|(_, value)| each_within(value, each)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}
