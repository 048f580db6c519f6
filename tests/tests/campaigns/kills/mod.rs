//! Runs are killed at random instants while many containers come and go. Workers attach, check, collect and detach at
//! the same time. Whenever no run is active, no two attachments have the same address, living attachments are unharmed,
//! and every object has an owner. At the end the node is as before.
//!
//! `POSTERN_KILLS` sets the number of kills, and `POSTERN_KILL_SEED` sets the seed. `make kills` runs a campaign.

mod test_node;
mod worker;

use anyhow::{Result, anyhow, ensure};
use postern_tests::kernel::has_or_skips;
use postern_tests::proof::{number, same_picture};
use std::time::Instant;
use test_node::TestNode;
use worker::{Figures, Worker};

/// The number of kills in `make test`.
const KILLS: u64 = 500;
/// The number of kills in `make test` for links without a host end.
const KILLS_OF_LINKS: u64 = 200;
/// The number of concurrent workers.
const WORKERS: usize = 8;
/// The number of containers of each worker.
const CONTAINERS: usize = 3;
/// The number of acts of each worker between two looks at the node.
const ACTIONS: usize = 12;

#[test]
fn random_kills_lose_and_harm_nothing() -> Result<()> {
    campaign(number("POSTERN_KILLS").unwrap_or(KILLS), TestNode::of_lists, TestNode::ports_are_free)
}

/// Links without a host end, and devices. The kernel of `tests/vm/kernel` has all kinds.
#[test]
fn random_kills_of_links_lose_and_harm_nothing() -> Result<()> {
    campaign(number("POSTERN_KILLS").unwrap_or(KILLS_OF_LINKS), TestNode::of_links, |_| Ok(()))
}

/// Links in VRFs, if the kernel has VRFs.
#[test]
fn random_kills_of_vrfs_lose_and_harm_nothing() -> Result<()> {
    if !has_or_skips("vrf")? {
        return Ok(());
    }
    campaign(number("POSTERN_KILLS").unwrap_or(KILLS_OF_LINKS), TestNode::of_vrfs, |_| Ok(()))
}

/// Kills runs on a node. `finally` checks the node after everything is removed.
fn campaign(
    kills: u64,
    make: impl Fn(usize) -> Result<TestNode>,
    finally: impl Fn(&TestNode) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let seed = number("POSTERN_KILL_SEED").unwrap_or(1);
    println!("POSTERN_KILL_SEED={seed} POSTERN_KILLS={kills}");
    let test_node = make(WORKERS * CONTAINERS)?;
    let mut workers: Vec<Worker> = test_node
        .containers
        .chunks(CONTAINERS)
        .enumerate()
        .map(|(number, own)| Worker::new(own, seed.wrapping_mul(1000) + number as u64))
        .collect();
    let (mut rounds, mut figures) = (0, Figures::default());
    while figures.kills() < kills {
        std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(|| (0..ACTIONS).try_for_each(|_| worker.act(&test_node))))
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        })?;
        rounds += 1;
        test_node.judge(&workers).map_err(|error| error.context(format!("seed {seed}, round {rounds}")))?;
        figures = workers.iter().fold(Figures::default(), |sum, worker| sum.and(&worker.figures));
    }
    let left = test_node.clear(&mut workers)?;
    finally(&test_node)?;
    same_picture(&test_node.before, &test_node.picture()?)?;
    println!("{figures}{left}{rounds} looks at the node, {} s", start.elapsed().as_secs());
    ensure!(figures.added() > 0 && figures.recovered() > 0, "no ADD succeeded, or no killed run was restored");
    Ok(())
}
