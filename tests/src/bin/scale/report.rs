//! The tables: each node's figures, and the growth from the first node to the last.

use crate::rounds::{Round, Task, VERBS};
use crate::stand::{Stand, command};
use crate::{Options, Side, steps};
use anyhow::{Context, Result};
use postern_tests::measure::{Sample, interval, percentile};
use serde_json::{Value, json};

/// Returns the median of a figure.
fn median(samples: &[Sample], figure: impl Fn(&Sample) -> i64) -> f64 {
    percentile(&samples.iter().map(|sample| number(figure(sample))).collect::<Vec<_>>(), 50)
}

#[allow(clippy::cast_precision_loss, reason = "microseconds of one call")]
fn number(value: i64) -> f64 {
    value as f64
}

fn cpu(sample: &Sample) -> i64 {
    sample.cpu
}

/// A program whose figures a table shows.
#[derive(Clone, Copy)]
enum Column {
    Floor,
    Witness,
    Side(usize),
}

impl Column {
    fn sample(self, round: &Round, verb: usize) -> Option<Sample> {
        let samples = match self {
            Self::Floor => &round.floor,
            Self::Witness => &round.witness,
            Self::Side(index) => round.sides.get(index)?,
        };
        samples.get(verb).copied().flatten()
    }

    /// Returns the sample that is compared between nodes. If the verb has a floor, this is a run's time beyond the
    /// floor.
    fn compared(self, round: &Round, verb: usize) -> Option<Sample> {
        let own = self.sample(round, verb)?;
        match (self, Self::Floor.sample(round, verb)) {
            (Self::Side(_), Some(floor)) => Some(own.beyond(floor)),
            _ => Some(own),
        }
    }

    fn label(self, options: &Options) -> String {
        match self {
            Self::Floor => "floor".to_owned(),
            Self::Witness => "witness".to_owned(),
            Self::Side(index) => options.sides.get(index).map(|side| side.label.clone()).unwrap_or_default(),
        }
    }
}

/// Prints both tables. Returns their rows.
pub fn print(options: &Options, rounds: &[Vec<Round>]) -> Vec<Value> {
    let columns: Vec<Column> =
        [Column::Floor, Column::Witness].into_iter().chain((0..options.sides.len()).map(Column::Side)).collect();
    println!("\nmedians; beyond is the processor time beyond the floor of the same round");
    println!(
        "{:<10}{:>7} {:<6}{:>9}{:>9}{:>9}{:>9}{:>8}",
        "", "count", "", "wall ms", "quarter", "CPU ms", "beyond", "faults"
    );
    let mut rows = Vec::new();
    for (count, rounds) in options.counts.iter().zip(rounds) {
        for column in &columns {
            for (index, verb) in VERBS.iter().enumerate() {
                let samples: Vec<Sample> = rounds.iter().filter_map(|round| column.sample(round, index)).collect();
                let compared: Vec<Sample> = rounds.iter().filter_map(|round| column.compared(round, index)).collect();
                if samples.is_empty() {
                    continue;
                }
                let walls: Vec<f64> = samples.iter().map(|sample| number(sample.wall) / 1e3).collect();
                let (wall, quarter) = (percentile(&walls, 50), percentile(&walls, 25));
                let (all, beyond) = (median(&samples, cpu) / 1e3, median(&compared, cpu) / 1e3);
                let faults = median(&samples, |sample| sample.faults);
                let label = column.label(options);
                println!(
                    "{label:<10}{count:>7} {verb:<6}{wall:>9.2}{quarter:>9.2}{all:>9.2}{beyond:>9.2}{faults:>8.0}"
                );
                rows.push(json!({
                    "name": label, "count": count, "verb": verb, "median_ms": wall, "quarter_ms": quarter, "cpu_ms": all,
                    "beyond_cpu_ms": beyond, "faults": faults,
                }));
            }
        }
    }
    let (Some(few), Some(many)) = (rounds.first(), rounds.last()) else { return rows };
    if rounds.len() > 1 {
        println!("\ngrowth of the processor time beyond the floor, from the first node to the last; 95 % interval");
        for column in &columns {
            for (index, verb) in VERBS.iter().enumerate() {
                rows.extend(growth(*column, options, index, verb, few, many));
            }
        }
    }
    rows
}

fn growth(column: Column, options: &Options, index: usize, verb: &str, few: &[Round], many: &[Round]) -> Option<Value> {
    // Rounds with the same number were measured one after the other, so they form a pair.
    let pairs: Vec<[Sample; 2]> = few
        .iter()
        .zip(many)
        .filter_map(|(few, many)| Some([column.compared(few, index)?, column.compared(many, index)?]))
        .collect();
    if pairs.is_empty() {
        return None;
    }
    let both = |pairs: &[[Sample; 2]]| {
        let side = |at: usize| pairs.iter().filter_map(|pair| pair.get(at).copied()).collect::<Vec<_>>();
        (median(&side(0), cpu) / 1e3, median(&side(1), cpu) / 1e3)
    };
    let grown = |pairs: &[[Sample; 2]]| {
        let (few, many) = both(pairs);
        (many / few - 1.0) * 100.0
    };
    let ((of_few, of_many), percent) = (both(&pairs), grown(&pairs));
    let [least, most] = interval(&pairs, grown);
    let label = column.label(options);
    println!(
        "{label:<10}{verb:<6}{of_few:>9.2} ms{of_many:>9.2} ms{percent:>+8.1} %   {least:+.1} to {most:+.1} %, {} rounds",
        pairs.len()
    );
    Some(json!({
        "name": label, "verb": verb, "few_ms": of_few, "many_ms": of_many, "growth_percent": percent,
        "interval_percent": [least, most], "rounds": pairs.len(),
    }))
}

/// Counts instructions of the first side's ADD and DEL on each node, and prints them.
pub fn steps(options: &Options, stands: &[Stand]) -> Result<()> {
    let side = options.sides.first().context("no plugins")?;
    println!("\ninstructions of {} outside the kernel", side.label);
    for stand in stands {
        let task = Task::new(stand, options)?;
        stand.give_time(task.plugin())?;
        for (verb, instructions) in ["ADD", "DEL"].iter().zip(stand.within(|| counted(&task, side))?) {
            println!("{:<10}{:>7} {verb:<6}{instructions:>12}", side.label, stand.count);
        }
    }
    Ok(())
}

fn counted(task: &Task, side: &Side) -> Result<[u64; 2]> {
    let config = task.prepare(side)?;
    let run = |verb: &str, previous: &Value| {
        let given = task.input(verb, &config, previous).to_string();
        steps::count(&command(&side.bin, verb, "probe", "probe", "eth0", task.plugin()), &given)
    };
    let (add, result) = run("ADD", &Value::Null)?;
    let (del, _) = run("DEL", &serde_json::from_str(&result).unwrap_or_default())?;
    task.clear(side)?;
    Ok([add, del])
}
