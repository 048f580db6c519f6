//! Texts of list files.

use crate::net_files::{WORDS, list, object, repeat};
use anyhow::{Context, Result, ensure};
use postern_cni::unicode;
use postern_net::{Attachment, List, Plugin};
use postern_tests::proof::number;
use postern_tests::{Random, damage};
use serde_json::{Map, Value};

/// The beginnings of all errors of list files.
const REFUSALS: [&str; 3] =
    ["error parsing configuration list: ", "error parsing configuration: ", "failed to parse plugin config "];

#[test]
fn list_files_are_read_or_refused() -> Result<()> {
    let (mut read, mut refused) = (0, 0);
    repeat("list files", |random| {
        for _ in 0..20 {
            let text = text(random);
            let shown = || format!("{:?}", String::from_utf8_lossy(&text));
            match List::parse(&text) {
                Ok(list) => {
                    read += 1;
                    judge(random, &list, &text).with_context(shown)?;
                }
                Err(error) => {
                    refused += 1;
                    ensure!(matches!(error.code, 6 | 7), "code {}: {}", error.code, shown());
                    let is_known = REFUSALS.iter().any(|beginning| error.msg.starts_with(beginning));
                    // An error may quote the refused text, as libcni does.
                    ensure!(is_known && error.msg.len() < 1000 + 3 * text.len(), "{}: {}", error.msg, shown());
                }
            }
            if let Ok(plugin) = Plugin::parse(&text) {
                single(&plugin).with_context(shown)?;
            }
        }
        Ok(())
    })?;
    println!("{read} read, {refused} refused");
    ensure!(
        read > 0 && refused > 0 || number("POSTERN_FUZZ_RUNS").is_some(),
        "no list was read, or no list was refused"
    );
    Ok(())
}

fn text(random: &mut Random) -> Vec<u8> {
    let mut list = list(random, "n");
    for _ in 0..random.index(4) {
        WORDS.change(random, &mut list);
    }
    let mut text = list.to_string().into_bytes();
    if random.index(4) == 0 {
        damage(random, &mut text);
    }
    text
}

/// Compares a list with the values that `serde_json` reads from the same text.
fn judge(random: &mut Random, list: &List, text: &[u8]) -> Result<()> {
    let read: Value = serde_json::from_str(&unicode::json(text))?;
    ensure!(read["name"] == list.name.as_str(), "the list's name is {}", list.name);
    let given = read["cniVersion"].as_str().unwrap_or_default();
    let known = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
    let named = |text: &str| {
        text == given || read["cniVersions"].as_array().is_some_and(|all| all.iter().any(|one| one == text))
    };
    ensure!(named(&list.version), "the text does not name version {}", list.version);
    if read.get("cniVersions").is_some() {
        // If the text names known versions, the list's version is not below the highest of them.
        let rank = |text: &str| known.iter().position(|one| *one == text);
        let best = known.iter().rfind(|one| named(one)).and_then(|one| rank(one));
        ensure!(best.is_none() || rank(&list.version).is_none_or(|rank| Some(rank) >= best), "{}", list.version);
    } else {
        ensure!(list.version == given, "version {}", list.version);
    }
    for (key, is_on) in [
        ("disableCheck", list.disable_check),
        ("disableGC", list.disable_gc),
        ("loadOnlyInlinedPlugins", list.only_inlined),
    ] {
        let says = read[key].as_bool() == Some(true)
            || read[key].as_str().is_some_and(|text| text.eq_ignore_ascii_case("true"));
        ensure!(says == is_on, "{key} is {is_on}");
    }
    let plugins = read["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(plugins.len() == list.plugins.len(), "{} plugins", list.plugins.len());
    for (plugin, entry) in list.plugins.iter().zip(plugins) {
        input(random, list, plugin, entry)?;
    }
    ensure!(List::parse(&list.text)? == *list && list.text == text, "the text that was kept is another list");
    Ok(())
}

/// Returns a value with its numbers as libcni reads them: as 64-bit floating point numbers.
fn doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(values) => values.iter().map(doubles).collect(),
        Value::Object(entries) => entries.iter().map(|(key, value)| (key.clone(), doubles(value))).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Checks a plugin's input: the plugin's entry, the list's name and version, and only declared capabilities.
fn input(random: &mut Random, list: &List, plugin: &Plugin, entry: &Value) -> Result<()> {
    ensure!(!plugin.program.is_empty(), "a plugin without a program");
    let spelled = |key: &str| {
        let entry = entry.as_object().context("no object")?;
        Ok::<_, anyhow::Error>(entry.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key)).collect::<Vec<_>>())
    };
    ensure!(spelled("type")?.iter().any(|(_, program)| **program == plugin.program.as_str()), "{}", plugin.program);
    let mut attachment = Attachment::new("c", "/n", "eth0");
    for capability in ["mac", "ips", "portMappings", "bandwidth"] {
        if random.chance(2) {
            attachment.capability_args.insert(capability.to_owned(), WORDS.value(random, 1));
        }
    }
    let input = plugin.input(list, None, Some(&attachment))?;
    ensure!(input["name"] == list.name.as_str() && input["cniVersion"] == list.version.as_str(), "{input:?}");
    let declared = |name: &str| {
        let on = |(_, capabilities): &(&String, &Value)| capabilities[name].as_bool() == Some(true);
        spelled("capabilities").is_ok_and(|spelled| spelled.iter().any(on))
    };
    let runtime = |key: &str| key == "runtimeConfig" && attachment.capability_args.keys().any(|name| declared(name));
    for (key, value) in &input {
        if runtime(key) {
            for (name, value) in &object(value.clone()) {
                ensure!(declared(name), "{name} is not declared");
                let given = attachment.capability_args.get(name).map(doubles);
                ensure!(given == Some(doubles(value)), "{name} is {value}");
            }
        } else if key != "name" && key != "cniVersion" {
            ensure!(entry.get(key).map(doubles) == Some(doubles(value)), "{key} is {value}");
        }
    }
    let lost = object(entry.clone()).keys().find(|key| !input.contains_key(*key)).cloned();
    ensure!(lost.is_none(), "{lost:?} is lost");
    ensure!(
        !input.contains_key("prevResult") || entry.get("prevResult").is_some(),
        "a `prevResult` that the entry lacks"
    );
    Ok(())
}

/// A single plugin becomes a list with only that plugin, or is refused.
fn single(plugin: &Plugin) -> Result<()> {
    let Ok(list) = List::of_single(plugin) else { return Ok(()) };
    ensure!(list.name == plugin.name && list.plugins == [plugin.clone()], "{list:?}");
    let _: Map<String, Value> = plugin.input(&list, None, None)?;
    Ok(())
}
