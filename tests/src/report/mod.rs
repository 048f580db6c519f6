//! The results of a benchmark: raw figures of each row, their summary, and the chart and tables of the summary.

mod chart;
mod table;

pub use chart::chart;
pub use table::{as_text, first_page, replace_part, table};

use crate::measure::{Sample, percentile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The side of the native plugins.
pub const NATIVE: &str = "native";
/// The side of our plugins.
pub const OURS: &str = "ours";
/// Podman's program for networks, which needs no plugins.
pub const NETAVARK: &str = "netavark";
/// The program that does only the necessary work (`src/floor`).
pub const FLOOR: &str = "floor";
/// The row of a process that ends at once. Its only side is the floor.
pub const EMPTY: &str = "an empty process";

/// A measured quantity of a call: wall and processor time in µs, page faults, resident memory and size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Wall time, from the start until the process is reaped.
    Wall,
    /// Processor time of the process and of all processes that it waited for.
    Cpu,
    /// Page faults that read no disk.
    Faults,
    /// The greatest memory of all processes of a run at one time. A page that several processes share counts once.
    Memory,
    /// Size of files.
    Size,
}

impl Quantity {
    /// Returns the unit for people, and the value of one such unit.
    #[must_use]
    pub fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Wall | Self::Cpu => ("ms", 1e3),
            Self::Faults => ("page faults", 1.0),
            Self::Memory => ("MiB", 1024.0 * 1024.0),
            Self::Size => ("MB", 1e6),
        }
    }
}

/// All figures of one row: by quantity, then by side.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The name of the row.
    pub name: String,
    /// The figures.
    pub values: BTreeMap<Quantity, BTreeMap<String, Vec<f64>>>,
    /// How often a side failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, usize>,
}

impl Row {
    /// Makes an empty row.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds a figure of a side.
    pub fn push(&mut self, quantity: Quantity, side: &str, value: f64) {
        self.values.entry(quantity).or_default().entry(side.to_owned()).or_default().push(value);
    }

    /// Adds the measured times and page faults of a side's call.
    #[allow(clippy::cast_precision_loss, reason = "microseconds of one call")]
    pub fn sample(&mut self, side: &str, sample: Sample) {
        let figures = [(Quantity::Wall, sample.wall), (Quantity::Cpu, sample.cpu), (Quantity::Faults, sample.faults)];
        figures.into_iter().for_each(|(quantity, value)| self.push(quantity, side, value as f64));
    }
}

/// The summary of one side's figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The 10th percentile.
    pub tenth: f64,
    /// The median.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
}

impl Figures {
    fn of(values: &[f64]) -> Self {
        let at = |percent| (percentile(values, percent) * 10.0).round() / 10.0;
        Self { tenth: at(10), median: at(50), p95: at(95) }
    }
}

/// One row and quantity of a summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The name of the row.
    pub name: String,
    /// The measured quantity.
    pub quantity: Quantity,
    /// The number of our calls, or of the floor's calls in a row with the floor alone.
    pub runs: usize,
    /// The figures by side.
    pub sides: BTreeMap<String, Figures>,
    /// How often a side failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, usize>,
}

impl Line {
    /// Returns a side's figures.
    #[must_use]
    pub fn side(&self, side: &str) -> Option<Figures> {
        self.sides.get(side).copied()
    }

    /// Returns the ratio of a side's median to the native median.
    #[must_use]
    pub fn ratio(&self, side: &str) -> Option<f64> {
        let native = self.side(NATIVE)?.median;
        Some(self.side(side)?.median / native).filter(|ratio| native > 0.0 && ratio.is_finite())
    }
}

/// The summary of a benchmark: `docs/performance.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Date, machine, and the state of the files.
    pub conditions: BTreeMap<String, String>,
    /// All rows.
    pub lines: Vec<Line>,
}

impl Summary {
    /// Makes a summary of the raw figures.
    #[must_use]
    pub fn of(conditions: BTreeMap<String, String>, rows: &[Row]) -> Self {
        let lines = rows.iter().flat_map(|row| {
            row.values.iter().map(|(quantity, sides)| Line {
                name: row.name.clone(),
                quantity: *quantity,
                runs: sides.get(OURS).or_else(|| sides.get(FLOOR)).map_or(0, Vec::len),
                sides: sides.iter().map(|(side, values)| (side.clone(), Figures::of(values))).collect(),
                failures: row.failures.clone(),
            })
        });
        Self { conditions, lines: lines.collect() }
    }

    /// Finds a line.
    #[must_use]
    pub fn line(&self, name: &str, quantity: Quantity) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name && line.quantity == quantity)
    }

    /// Returns the summary as JSON. Each [`Line`] is one line of text, so that a diff is readable.
    ///
    /// # Errors
    /// No error is known.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let lines: Vec<String> = self.lines.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let conditions = serde_json::to_string(&self.conditions)?;
        Ok(format!("{{\"conditions\":{conditions},\n\"lines\":[\n{}\n]}}\n", lines.join(",\n")))
    }
}
