use super::*;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes a file or another object, and reads it.
fn with<T>(make: impl FnOnce(&Path), read: impl FnOnce(&Path) -> T) -> T {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("postern-lists-{}-{number}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let path = directory.join("net.conflist");
    make(&path);
    let result = read(&path);
    fs::remove_dir_all(&directory).unwrap();
    result
}

fn list(text: &Value) -> Result<List, String> {
    with(|path| fs::write(path, text.to_string()).unwrap(), List::read)
}

fn network(text: &str, plugin: &str) -> Result<Network> {
    with(|path| fs::write(path, text).unwrap(), |path| Network::read(path, plugin))
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

#[test]
fn a_plugin_gets_its_entry_with_what_is_the_lists() {
    let list = list(&json!({
        "cniVersion": "1.0.0", "name": "net", "disableCheck": true, "disableGC": true, "other": 1,
        "plugins": [
            {"type": "bridge", "bridge": "br0", "name": "mine", "cniVersion": "0.1.0", "args": {"a": 1}},
            {"type": "portmap", "capabilities": {"portMappings": true, "mac": false, "ips": "true"}},
        ],
    }))
    .unwrap();
    assert_eq!(list.plugins().collect::<Vec<_>>(), ["bridge", "portmap"]);
    assert_eq!(
        list.request(0, None, &Map::new()),
        json!({"type": "bridge", "bridge": "br0", "name": "net", "cniVersion": "1.0.0", "args": {"a": 1}})
    );
    let given = arguments(json!({"portMappings": [{"hostPort": 80}], "mac": "x", "ips": ["y"], "dns": {}}));
    assert_eq!(
        list.request(1, Some(&json!({"ips": []})), &given),
        json!({
            "type": "portmap", "name": "net", "cniVersion": "1.0.0", "prevResult": {"ips": []},
            "runtimeConfig": {"portMappings": [{"hostPort": 80}]},
        })
    );
    // A capability without an argument adds no key.
    let bare = list.request(1, None, &Map::new());
    assert!(bare.get("runtimeConfig").is_none() && bare.get("capabilities").is_none(), "{bare}");
}

#[test]
fn a_single_configuration_is_a_list_of_one() {
    let single = json!({"name": "n", "type": "loopback"});
    let list = list(&single).unwrap();
    assert_eq!(list.plugins().collect::<Vec<_>>(), ["loopback"]);
    assert_eq!(list.request(0, None, &Map::new()), single);
    assert_eq!(list.request(7, None, &Map::new()), json!({"name": "n"}));
}

#[test]
fn the_highest_version_that_is_known_is_taken() {
    let chosen = |version: Value, versions: Value| {
        let plugins = json!([{"type": "x"}]);
        list(&json!({"name": "n", "cniVersion": version, "cniVersions": versions, "plugins": plugins}))
            .map(|list| list.version.unwrap_or_default())
    };
    assert_eq!(chosen("0.4.0".into(), json!(["1.0.0", "0.3.1"])).unwrap(), "1.0.0");
    assert_eq!(chosen("0.4.0".into(), json!(["1.0.0", "1.1.0", "9.0.0"])).unwrap(), "1.1.0");
    assert_eq!(chosen("0.4.0".into(), json!([])).unwrap(), "0.4.0");
    assert_eq!(chosen("9.0.0".into(), json!(["8.0.0"])).unwrap(), "9.0.0");
    for bad in [json!("1.0.0"), json!([1]), json!(["x"])] {
        assert!(chosen("0.4.0".into(), bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn what_is_no_network_is_an_error() {
    for bad in [
        json!([]),
        json!({"name": "n"}),
        json!({"name": "n", "type": ""}),
        json!({"name": "n", "plugins": {}}),
        json!({"name": "n", "plugins": []}),
        json!({"name": "n", "plugins": [1]}),
        json!({"name": "n", "plugins": [{"type": "a"}, {}]}),
        json!({"name": "n", "plugins": [{"type": "a"}], "other": "x".repeat(LONGEST as usize)}),
    ] {
        assert!(list(&bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let pipe = |path: &Path| mkfifo(path, Mode::S_IRWXU).unwrap();
    assert_eq!(with(pipe, List::read).unwrap_err(), "is no regular file");
    assert_eq!(with(|path| fs::create_dir(path).unwrap(), List::read).unwrap_err(), "is no regular file");
    assert!(with(|_| {}, List::read).unwrap_err().starts_with("can't be read: "));
}

#[test]
fn a_directory_has_what_ends_like_a_network() {
    let make = |path: &Path| {
        for (file, name) in [("b.conf", "b"), ("a.json", "a"), ("a.conflist.old", "old"), ("none", "none")] {
            fs::write(path.with_file_name(file), json!({"name": name, "type": "x"}).to_string()).unwrap();
        }
        fs::write(path, "").unwrap();
    };
    let found = with(make, |path| of_directory(path.parent().unwrap()));
    let names: Vec<_> = found.iter().map(|(_, list)| list.as_ref().map(List::name).unwrap_or("-")).collect();
    assert_eq!(names, ["a", "b", "-"]);
    assert!(found[2].1.as_ref().unwrap_err().starts_with("is no JSON"));
    assert!(of_directory(Path::new("/nowhere")).is_empty());
}

#[test]
fn takes_the_plugins_entry_of_a_list() {
    let list = r#"{"cniVersion":"1.0.0","name":"net","plugins":[
        {"type":"bridge","bridge":"br1","ipam":{"type":"host-local"}},{"type":"portmap"}]}"#;
    for plugin in ["bridge", "host-local"] {
        let network = network(list, plugin).unwrap();
        assert_eq!((network.text("/name"), network.text("/cniVersion")), ("net", "1.0.0"));
        assert_eq!((network.text("/bridge"), network.text("/absent")), ("br1", ""));
    }
    assert!(network(list, "ptp").unwrap_err().to_string().contains("only bridge, portmap"));
}

#[test]
fn takes_a_single_configuration_as_it_is() {
    assert_eq!(network(r#"{"name":"net","type":"other"}"#, "bridge").unwrap().text("/type"), "other");
    for bad in ["", "[]", "{}", r#"{"name":"n","plugins":{}}"#, r#"{"type":"bridge"}"#] {
        assert!(network(bad, "bridge").is_err(), "{bad}");
    }
}
