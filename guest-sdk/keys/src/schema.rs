//! The tables of keys as JSON Schemas (2020-12), for editors and other checkers.
//!
//! A schema is stricter than the plugins: a key that no plugin reads, and another spelling of a key, are errors.

use crate::common::{LIST, PLUGIN, SOURCE};
use crate::key::{Form, Key, Kind};
use crate::{ALL, Delegation, Plugin, Role};
use serde_json::{Map, Value, json};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Returns the schema of a plugin's configuration: of a file with this plugin alone, or of an entry of a list. For an IPAM
/// plugin, returns the schema of `ipam`.
pub fn of_plugin(plugin: &Plugin) -> Value {
    let mut schema = match plugin.role {
        Role::Ipam => ipam(plugin, true),
        Role::Main | Role::Chained => entry(plugin),
    };
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("$schema".to_owned(), json!(DIALECT));
        schema.insert("title".to_owned(), json!(format!("CNI plugin {}", plugin.name)));
    }
    schema
}

/// Returns the schema of a network's list. Plugins that are not shipped with Postern may have any keys.
pub fn of_list() -> Value {
    let entries = |plugin: &&&Plugin| plugin.role != Role::Ipam;
    let known: Vec<&str> = ALL.iter().filter(entries).map(|plugin| plugin.name).collect();
    let mut kinds: Vec<Value> = ALL.iter().filter(entries).map(|plugin| entry(plugin)).collect();
    let mut other = properties(PLUGIN);
    other.insert("type".to_owned(), json!({"type": "string", "minLength": 1, "not": {"enum": known}}));
    other.insert("ipam".to_owned(), any_ipam(Delegation::Optional));
    kinds.push(json!({
        "title": "a plugin that is not shipped with Postern",
        "type": "object",
        "properties": other,
        "required": ["type"],
    }));
    let definitions = shared(&mut kinds);
    let mut keys = properties(LIST);
    keys.insert(
        "plugins".to_owned(),
        json!({
            "description": about(LIST, "plugins"),
            "type": "array",
            "minItems": 1,
            "items": {"oneOf": kinds},
        }),
    );
    json!({
        "$schema": DIALECT,
        "title": "CNI network list",
        "$comment": SOURCE,
        "type": "object",
        "properties": keys,
        "required": ["name"],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

/// Moves the `ipam` schemas of all plugins to shared definitions, because nearly all of these schemas are equal.
fn shared(kinds: &mut [Value]) -> Map<String, Value> {
    let mut definitions = Map::new();
    for ipam in kinds.iter_mut().filter_map(|kind| kind.pointer_mut("/properties/ipam")) {
        let known = definitions.iter().find(|(_, one)| *one == ipam).map(|(name, _): (&String, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = format!("ipam-{}", definitions.len() + 1);
            definitions.insert(name.clone(), ipam.take());
            name
        });
        *ipam = json!({"$ref": format!("#/$defs/{name}")});
    }
    definitions
}

fn about(keys: &[Key], name: &str) -> &'static str {
    keys.iter().find(|key| key.name == name).map_or("", |key| key.about)
}

/// Returns the schema of a plugin, with the common keys.
fn entry(plugin: &Plugin) -> Value {
    let mut keys = properties(PLUGIN);
    keys.extend(properties(plugin.keys));
    keys.insert("type".to_owned(), json!({"description": about(PLUGIN, "type"), "const": plugin.name}));
    keys.insert("ipam".to_owned(), any_ipam(plugin.ipam));
    let runtime = json!({
        "description": about(PLUGIN, "runtimeConfig"),
        "type": ["object", "null"],
        "properties": properties(plugin.runtime),
    });
    keys.insert("runtimeConfig".to_owned(), runtime);
    let cni = json!({"type": ["object", "null"], "properties": properties(plugin.args)});
    let args = json!({
        "description": about(PLUGIN, "args"),
        "type": ["object", "null"],
        "properties": {"cni": cni},
    });
    keys.insert("args".to_owned(), args);
    let mut required = vec!["type"];
    required.extend(plugin.keys.iter().filter(|key| key.required).map(|key| key.name));
    required.extend((plugin.ipam == Delegation::Required).then_some("ipam"));
    json!({
        "title": plugin.name,
        "description": plugin.about,
        "$comment": plugin.source,
        "type": "object",
        "properties": keys,
        "required": required,
        "additionalProperties": false,
    })
}

/// Returns the schema of `ipam` for any plugin.
fn any_ipam(delegation: Delegation) -> Value {
    let plugins = || ALL.iter().filter(|plugin| plugin.role == Role::Ipam);
    let known: Vec<&str> = plugins().map(|plugin| plugin.name).collect();
    let about = about(PLUGIN, "ipam");
    if delegation == Delegation::HandedOn {
        // This `ipam` is used only after the plugin has completed it.
        return json!({"description": about, "type": ["object", "null"]});
    }
    let mut kinds: Vec<Value> = plugins().map(|plugin| ipam(plugin, true)).collect();
    kinds.push(json!({
        "title": "a plugin that is not shipped with Postern",
        "type": "object",
        "properties": {"type": {"type": "string", "minLength": 1, "not": {"enum": known}}},
        "required": ["type"],
    }));
    if delegation != Delegation::Required {
        kinds.push(json!({
            "title": "none",
            "type": ["object", "null"],
            "properties": {"type": {"enum": ["", null]}},
        }));
    }
    json!({"description": about, "oneOf": kinds})
}

/// Returns the schema of `ipam` for this plugin.
fn ipam(plugin: &Plugin, needs_type: bool) -> Value {
    let mut keys = properties(plugin.keys);
    keys.insert("type".to_owned(), json!({"description": "Name of the plugin's program", "const": plugin.name}));
    json!({
        "title": plugin.name,
        "description": plugin.about,
        "$comment": plugin.source,
        "type": "object",
        "properties": keys,
        "required": if needs_type { json!(["type"]) } else { json!([]) },
        "additionalProperties": false,
    })
}

fn properties(keys: &[Key]) -> Map<String, Value> {
    keys.iter().map(|key| (key.name.to_owned(), property(key))).collect()
}

fn property(key: &Key) -> Value {
    let mut schema = of_kind(&key.kind);
    schema.insert("description".to_owned(), json!(key.about));
    if let Some(default) = key.default.and_then(|text| serde_json::from_str(text).ok()) {
        schema.insert("default".to_owned(), default);
    }
    Value::Object(schema)
}

fn of_kind(kind: &Kind) -> Map<String, Value> {
    let schema = match kind {
        Kind::Bool => json!({"type": ["boolean", "null"]}),
        Kind::Switch => {
            json!({"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"}]})
        }
        Kind::Number { least, most } => json!({"type": ["integer", "null"], "minimum": least, "maximum": most}),
        Kind::Text(Form::OneOf(words)) => {
            let words: Vec<Value> = words.iter().map(|word| json!(word)).chain([Value::Null]).collect();
            json!({"enum": words})
        }
        Kind::Text(form) => {
            let mut schema = json!({"type": ["string", "null"]});
            if let (Some(pattern), Some(schema)) = (pattern(*form), schema.as_object_mut()) {
                schema.insert("pattern".to_owned(), json!(pattern));
            }
            schema
        }
        Kind::List(inner) => json!({"type": ["array", "null"], "items": of_kind(inner)}),
        Kind::Object(keys) => {
            let required: Vec<&str> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
            json!({
                "type": ["object", "null"],
                "properties": properties(keys),
                "required": required,
                "additionalProperties": false,
            })
        }
        Kind::Map(inner) => json!({"type": ["object", "null"], "additionalProperties": of_kind(inner)}),
        Kind::Delegate => json!({
            "type": ["object", "null"],
            "properties": {"type": {"type": ["string", "null"]}, "name": false, "ipam": false},
        }),
        Kind::Ipam | Kind::Open => json!({"type": ["object", "null"]}),
    };
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// A pattern that every valid text matches. Some invalid texts match too: `postern net validate` finds them.
fn pattern(form: Form) -> Option<&'static str> {
    match form {
        Form::Free | Form::OneOf(_) => None,
        Form::Mac => Some(
            "^$|^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$|^([0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}$|^([0-9A-Fa-f]{4}[.]){2}[0-9A-Fa-f]{4}$",
        ),
        Form::Ip => Some("^[0-9A-Fa-f.:]*$"),
        Form::RequiredIp => Some("^[0-9A-Fa-f.:]+$"),
        Form::Cidr => Some("^[0-9A-Fa-f.:]+/[0-9]+$"),
        Form::IpOrCidr => Some("^[0-9A-Fa-f.:]+(/[0-9]+)?$"),
        Form::Version => Some("^$|^[0-9]+[.][0-9]+[.][0-9]+$"),
        Form::Path => Some("^$|^/"),
    }
}
