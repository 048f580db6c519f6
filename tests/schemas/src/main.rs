//! Tests the JSON Schemas with another project's validator: correct configurations are valid, and broken ones are not.
//!
//! `cargo run --manifest-path tests/schemas/Cargo.toml [CORPUS]`. CORPUS is a file with a configuration per line, each
//! without findings of `postern net validate`. The differential test writes this file (`POSTERN_CORPUS`).

use jsonschema::Validator;
use postern_keys::schema::{of_list, of_plugin};
use postern_keys::{ALL, Plugin, Role, plugin, sample};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Returns the part of a configuration that the plugin's schema describes.
fn part(plugin: &Plugin, config: &Value) -> Value {
    if plugin.role == Role::Ipam { config["ipam"].clone() } else { config.clone() }
}

fn listed(config: &Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [config]})
}

fn compiled(schema: &Value) -> Validator {
    jsonschema::meta::validate(schema).expect("a schema of 2020-12");
    jsonschema::validator_for(schema).expect("a schema")
}

fn main() -> ExitCode {
    let list = compiled(&of_list());
    let (mut count, mut faults) = (0, Vec::new());
    for plugin in ALL {
        let schema = compiled(&of_plugin(plugin));
        let mut good = vec![sample::example(plugin)];
        good.extend(sample::keys(plugin).map(|(place, key)| sample::with_key(plugin, place, key)));
        for config in good {
            count += 1;
            faults.extend(schema.iter_errors(&part(plugin, &config)).map(|error| format!("{error}: {config}")));
            faults.extend((!list.is_valid(&listed(&config))).then(|| format!("not valid in a list: {config}")));
        }
        for broken in sample::broken(plugin) {
            let is_ours = broken.path.first().is_none_or(|key| key != "runtimeConfig" && key != "args");
            if plugin.role == Role::Ipam && !is_ours {
                continue;
            }
            count += 1;
            let config = &broken.config;
            faults.extend(schema.is_valid(&part(plugin, config)).then(|| format!("valid: {config}")));
            faults.extend(list.is_valid(&listed(config)).then(|| format!("valid in a list: {config}")));
        }
    }
    for (config, is_good) in [
        (json!({"type": "bridge", "isGatway": true}), false),
        (json!({"type": "bridge", "isgateway": true}), false),
        (json!({"type": "bridge", "ipam": {"type": "static", "adresses": []}}), false),
        (json!({"type": "other", "isGatway": true, "ipam": {"type": "x", "y": 1}}), true),
        (json!({"type": "other", "capabilities": {"mac": 1}}), false),
    ] {
        count += 1;
        faults.extend((list.is_valid(&listed(&config)) != is_good).then(|| format!("wrong in a list: {config}")));
    }
    for line in
        std::env::args().nth(1).map(|path| std::fs::read_to_string(path).expect("a corpus")).unwrap_or_default().lines()
    {
        let config: Value = serde_json::from_str(line).expect("JSON");
        let Some(table) = config["type"].as_str().and_then(plugin).filter(|table| table.role != Role::Ipam) else {
            continue;
        };
        count += 1;
        faults.extend(compiled(&of_plugin(table)).iter_errors(&config).map(|error| format!("{error}: {config}")));
    }
    for fault in &faults {
        println!("{fault}");
    }
    println!("{count} configurations, {} faults", faults.len());
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
