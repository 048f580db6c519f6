//! `postern gc --native` for tests in a user namespace. A process in a user namespace can't inspect all processes of
//! the machine, so `postern gc` rightly refuses to decide.
//!
//! This program uses the real search, which finds all namespaces of the test. It adds one fact that the test knows:
//! nothing else on the machine has the test's addresses. With `remove` it removes the leftovers. It prints a line for
//! each leftover, and then the reasons why other objects stay.

use anyhow::{Error, Result, ensure};
use postern_account::{
    adopt::{Scope, find, remove},
    all_namespaces,
};
use postern_gate::places::Places;
use std::path::PathBuf;

fn main() -> Result<()> {
    ensure!(std::env::var_os("POSTERN_PRIVATE").is_some(), "this program is only for tests in private namespaces");
    let mut arguments = std::env::args().skip(1);
    let act = arguments.next().as_deref() == Some("remove");
    let directories: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let places = Places::find().map_err(Error::msg)?;
    let namespaces = || {
        let mut namespaces = all_namespaces()?;
        namespaces.unseen.clear();
        namespaces.more_unseen = 0;
        namespaces.enclosed = false;
        Ok(namespaces)
    };
    let scope = Scope { places: &places, directories: &directories, namespaces };
    let report = find(scope).map_err(Error::msg)?;
    for leftover in &report.leftovers {
        println!("{} {}: {}", leftover.kind.as_str(), leftover.attachment(), leftover.reason);
    }
    for (object, why) in &report.kept {
        println!("{object} stays: {why}");
    }
    ensure!(report.problems.is_empty(), "{:?}", report.problems);
    if act {
        let (removed, failed) = remove(scope, &report.leftovers).map_err(Error::msg)?;
        ensure!(removed == report.leftovers.len() && failed.is_empty(), "removed {removed}: {failed:?}");
    }
    Ok(())
}
