//! Configurations made from the tables of keys: an example that works, one with every key, and many with one fault
//! each. A plugin refuses each configuration with a fault.

use crate::key::{Form, Key, Kind};
use crate::{Plugin, Role};
use serde_json::{Map, Value, json};

/// A configuration with one fault.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The place of the fault: keys and indexes.
    pub path: Vec<Value>,
    /// The configuration.
    pub config: Value,
    /// The configuration without the fault.
    pub sound: Value,
}

/// The place of a key in the configuration of its plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Among the plugin's own keys: at the top, or in `ipam`.
    Own,
    /// In `runtimeConfig`.
    Runtime,
    /// In `args.cni`.
    Args,
}

impl Place {
    /// Returns the keys that lead to the place.
    pub fn path(self, plugin: &Plugin) -> &'static [&'static str] {
        match self {
            Self::Own if plugin.role == Role::Ipam => &["ipam"],
            Self::Own => &[],
            Self::Runtime => &["runtimeConfig"],
            Self::Args => &["args", "cni"],
        }
    }
}

/// Reads a JSON object.
pub fn object(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// Returns the plugin's keys with their places.
pub fn keys(plugin: &Plugin) -> impl Iterator<Item = (Place, &'static Key)> {
    let of = |place, keys: &'static [Key]| keys.iter().map(move |key| (place, key));
    of(Place::Own, plugin.keys).chain(of(Place::Runtime, plugin.runtime)).chain(of(Place::Args, plugin.args))
}

/// Returns a good value of a key.
pub fn value(key: &Key) -> Value {
    key.sample.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| usual(&key.kind))
}

fn usual(kind: &Kind) -> Value {
    match kind {
        Kind::Bool | Kind::Switch => json!(false),
        Kind::Number { least, .. } => json!(least),
        Kind::Text(Form::Mac) => json!("02:00:00:00:00:02"),
        Kind::Text(Form::OneOf(words)) => json!(words.iter().find(|word| !word.is_empty())),
        Kind::Text(Form::Free) => json!("x"),
        Kind::Text(Form::Ip | Form::RequiredIp | Form::IpOrCidr) => json!("10.1.2.3"),
        Kind::Text(Form::Cidr) => json!("10.1.2.0/24"),
        Kind::Text(Form::Version) => json!("1.0.0"),
        Kind::Text(Form::Path) => json!("/"),
        Kind::List(inner) => json!([usual(inner)]),
        Kind::Object(keys) => keys.iter().map(|key| (key.name.to_owned(), value(key))).collect(),
        Kind::Map(inner) => json!({"x": usual(inner)}),
        Kind::Ipam | Kind::Delegate | Kind::Open => json!({}),
    }
}

/// Returns the small configuration that works.
pub fn example(plugin: &Plugin) -> Value {
    let mut config = object(plugin.example).unwrap_or_default();
    config.insert("cniVersion".to_owned(), json!("1.0.0"));
    config.insert("name".to_owned(), json!("net"));
    let kind = if plugin.role == Role::Ipam { "bridge" } else { plugin.name };
    config.insert("type".to_owned(), json!(kind));
    Value::Object(config)
}

/// Returns the example with one more key, and with the keys that this key needs.
pub fn with_key(plugin: &Plugin, place: Place, key: &Key) -> Value {
    let mut config = example(plugin);
    let own = Place::Own.path(plugin);
    for (name, value) in key.with.and_then(object).unwrap_or_default() {
        put(&mut config, if place == Place::Runtime { place.path(plugin) } else { own }, &name, value);
    }
    put(&mut config, place.path(plugin), key.name, value(key));
    config
}

/// Returns a configuration with every key that a plugin reads. It need not work: some keys exclude each other.
pub fn with_all(plugin: &Plugin) -> Value {
    let mut config = example(plugin);
    for (place, key) in keys(plugin) {
        put(&mut config, place.path(plugin), key.name, value(key));
    }
    config
}

fn put(config: &mut Value, path: &[&str], name: &str, value: Value) {
    let mut at = config;
    for key in path {
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(*key).or_insert_with(|| json!({}));
    }
    if let Some(map) = at.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}

/// Returns the configurations with one fault. For each key, the fault is a wrong type or a value out of range. A
/// required key is also left out.
pub fn broken(plugin: &Plugin) -> Vec<Broken> {
    let mut all = Vec::new();
    for (place, key) in keys(plugin) {
        let sound = with_key(plugin, place, key);
        let mut path: Vec<Value> = place.path(plugin).iter().map(|key| json!(key)).collect();
        path.push(json!(key.name));
        for (inner, wrong) in faults(&key.kind, &value(key), key.strict) {
            let path: Vec<Value> = path.iter().cloned().chain(inner).collect();
            let mut config = sound.clone();
            if let Some(at) = find(&mut config, &path) {
                *at = wrong;
                all.push(Broken { path, config, sound: sound.clone() });
            }
        }
        if key.required && place == Place::Own {
            let mut config = sound.clone();
            path.pop();
            if let Some(Value::Object(map)) = find(&mut config, &path) {
                map.remove(key.name);
                all.push(Broken { path, config, sound });
            }
        }
    }
    all
}

fn find<'v>(config: &'v mut Value, path: &[Value]) -> Option<&'v mut Value> {
    path.iter().try_fold(config, |at, step| match step {
        Value::String(key) => at.get_mut(key.as_str()),
        step => at.get_mut(usize::try_from(step.as_u64()?).ok()?),
    })
}

/// Returns faults of a value: the path to each, and the wrong value.
fn faults(kind: &Kind, sample: &Value, strict: bool) -> Vec<(Vec<Value>, Value)> {
    let here = |value| (Vec::new(), value);
    let below = |step: Value, inner: Vec<(Vec<Value>, Value)>| {
        inner.into_iter().map(move |(path, value)| (std::iter::once(step.clone()).chain(path).collect(), value))
    };
    match kind {
        Kind::Bool => vec![here(json!("true")), here(json!(1))],
        Kind::Switch => vec![here(json!(1)), here(json!("yes"))],
        Kind::Number { least, most } => {
            let mut faults = vec![here(json!("7")), here(json!(1.5))];
            let values = [least.checked_sub(1).map(Value::from), most.checked_add(1).map(Value::from)];
            faults.extend(values.into_iter().flatten().filter(|_| strict).map(here));
            faults
        }
        Kind::Text(form) => {
            let mut faults = vec![here(json!(7))];
            faults.extend(Some("!").filter(|text| strict && !form.fits(text)).map(|text| here(json!(text))));
            faults
        }
        Kind::List(inner) => {
            let mut faults = vec![here(json!({})), here(json!("x"))];
            if let Some(first) = sample.get(0) {
                faults.extend(below(json!(0), self::faults(inner, first, strict)));
            }
            faults
        }
        Kind::Object(keys) => {
            let mut faults = vec![here(json!(7))];
            for key in *keys {
                if let Some(value) = sample.get(key.name) {
                    faults.extend(below(json!(key.name), self::faults(&key.kind, value, key.strict)));
                }
            }
            faults
        }
        Kind::Map(inner) => {
            let mut faults = vec![here(json!(7))];
            for (name, value) in sample.as_object().into_iter().flatten() {
                faults.extend(below(json!(name), self::faults(inner, value, strict)));
            }
            faults
        }
        Kind::Ipam | Kind::Delegate | Kind::Open => vec![here(json!(7))],
    }
}
