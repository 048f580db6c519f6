//! Directories with list files, and files beside these directories.

use crate::net_files::{list, place, repeat};
use anyhow::{Context, Result, ensure};
use postern_net::{List, load};
use postern_tests::proof::number;
use postern_tests::{Random, damage};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Names of networks. Some of them would lead out of the directory.
const NETWORKS: [&str; 9] = ["n", "a", "a-b", "../outside", "..", ".", "/run/net-files/outside", "x/../../outside", ""];

/// The type of plugins that no network may have: their files are outside of the directory, or have another ending.
const OUTSIDE: &str = "outside";

#[test]
fn no_network_has_plugins_of_another_directory() -> Result<()> {
    let root = place("directories")?;
    let (directory, outside) = (root.join("net.d"), root.join("outside"));
    let (mut found, mut refused) = (0, 0);
    repeat("directories of networks", |random| {
        for place in [&directory, &outside] {
            if place.exists() {
                fs::remove_dir_all(place)?;
            }
            fs::create_dir(place)?;
        }
        fs::write(outside.join("10.conf"), json!({"type": OUTSIDE}).to_string())?;
        fs::write(root.join("10.conf"), json!({"type": OUTSIDE, "name": "n"}).to_string())?;
        for at in 0..random.index(5) {
            file(random, &directory, at)?;
        }
        for name in NETWORKS {
            match load(&directory, name) {
                Ok(network) => {
                    found += 1;
                    judge(&network, name, &directory).with_context(|| format!("network {name:?}"))?;
                }
                Err(error) => {
                    refused += 1;
                    ensure!(matches!(error.code, 5..=7) && !error.msg.is_empty(), "{name:?}: {error:?}");
                }
            }
        }
        Ok(())
    })?;
    println!("{found} found, {refused} refused");
    ensure!(
        found > 0 && refused > 0 || number("POSTERN_FUZZ_RUNS").is_some(),
        "no network was found, or no network was refused"
    );
    Ok(())
}

/// Makes a file: a list, a plugin, a directory of plugins, or a directory or symbolic link
/// with the name of a file.
fn file(random: &mut Random, directory: &Path, at: usize) -> Result<()> {
    let name = random.one_of(&NETWORKS);
    let ending = random.one_of(&["conflist", "conf", "json", "txt", "CONFLIST", "conflist.bak"]);
    let path = directory.join(format!("{at}.{ending}"));
    let mut text = match ending {
        "conf" | "json" => json!({"name": name, "type": "single", "cniVersion": "1.0.0"}).to_string().into_bytes(),
        _ => list(random, name).to_string().into_bytes(),
    };
    match random.index(12) {
        0 => fs::create_dir(&path)?,
        1 => symlink("/dev/zero", &path)?,
        2 => symlink(directory.join("nothing"), &path)?,
        3 => damage(random, &mut text),
        _ => {}
    }
    if !path.is_symlink() && !path.exists() {
        fs::write(&path, &text)?;
    }
    if random.chance(1) {
        let plugins = directory.join(random.one_of(&["n", "a", "a-b"]));
        fs::create_dir_all(&plugins)?;
        let plugin = if random.index(8) == 0 { "{".to_owned() } else { json!({"type": "added"}).to_string() };
        fs::write(plugins.join(format!("{at}.conf")), plugin)?;
        fs::write(plugins.join(format!("{at}.json")), json!({"type": OUTSIDE}).to_string())?;
    }
    Ok(())
}

/// A network has the plugins of one file, followed by the plugins of its own directory.
fn judge(network: &List, name: &str, directory: &Path) -> Result<()> {
    ensure!(network.name == name, "the network's name is {}", network.name);
    let programs: Vec<&str> = network.plugins.iter().map(|plugin| plugin.program.as_str()).collect();
    ensure!(!programs.is_empty() && !programs.contains(&OUTSIDE), "{programs:?}");
    let added = programs.iter().filter(|program| **program == "added").count();
    let own = ["n", "a", "a-b"].iter().find(|own| **own == name).map(|own| directory.join(own));
    let there = own.filter(|own| own.is_dir()).map_or(0, |own| {
        let entries = fs::read_dir(own).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "conf")).count()
    });
    // A file of a single plugin, even with a damaged type.
    let is_single = programs.len() == 1 && added == 0 && !["bridge", "portmap", "tuning"].contains(&programs[0]);
    ensure!(is_single || network.only_inlined && added == 0 || added == there, "{added} of {there} were added");
    Ok(())
}
