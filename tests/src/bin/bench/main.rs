//! The benchmark: our plugins beside the native plugins, netavark and the floor (a program that does only the necessary
//! work), all in one run. It measures single calls, whole lists, many calls at once, memory and sizes.
//!
//! `postern-bench [--runs N] [--out DIRECTORY] [--place DIRECTORY] [PATTERN...]`, under `tests/in-namespaces`. It
//! writes `raw.json` with each figure, `performance.json` with medians, 10th and 95th percentiles, and
//! `performance.svg`. With patterns, it measures only rows whose name contains a pattern. It copies the plugins to the
//! directory of `--place` first (by default `files` in the directory of `--out`).
//!
//! `postern-bench draw SUMMARY PAGES` draws the chart and the tables in `PAGES/docs` and `PAGES/README.md` anew.
//!
//! Wall time is from before the spawn until the process is reaped. CPU time is the time of the process and of all
//! processes that it waited for. The ratios are more reliable than the times: all sides ran on the same machine at the
//! same time.

#![allow(clippy::print_stdout, reason = "its output is a table")]

mod chain;
mod floors;
mod installed;
mod memory;
mod netavark;
mod parallel;
mod place;
mod rounds;
mod scenarios;

use anyhow::{Context, Result, anyhow, bail, ensure};
use netavark::Netavark;
use postern_tests::floor::{is_built, nothing};
use postern_tests::report::{
    EMPTY, FLOOR, NATIVE, OURS, Quantity, Row, Summary, as_text, chart, first_page, replace_part, table,
};
use postern_tests::{kernel, native_bin, plugin_bin};
use rounds::SIDES;
use scenarios::{DEVICE, SUBNETS, Scenario, WIRE, scenarios};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The node port of the port mapping. Both sides use this port, one after the other.
const PORT: u16 = 8080;
/// The number of runs before the first run that counts.
const WARM_UP: usize = 3;
/// The number of memory measurements for each scenario and side.
const MEMORY_RUNS: usize = 5;
/// The scenarios whose memory is measured.
const MEMORY: [&str; 3] = ["static", "bridge + host-local", "portmap default"];

/// A set of plugins, with its own network on the host.
struct PluginSet {
    bin: PathBuf,
    netns: String,
    number: usize,
}

/// The native plugins, and ours.
type Sets = [PluginSet; 2];

/// The command line.
struct Options {
    runs: usize,
    out: PathBuf,
    place: Option<PathBuf>,
    patterns: Vec<String>,
}

impl Options {
    /// True if no pattern is given, or if the name contains a pattern.
    fn wants(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| name.contains(pattern.as_str()))
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["memory", ..] => return memory::run(arguments.get(1..).unwrap_or_default()),
        ["draw", summary, pages] => return draw(Path::new(summary), Path::new(pages)),
        _ => {}
    }
    let options = options(arguments)?;
    let made = Command::new("sh")
        .args([
            "-ec",
            &format!(
                "ip link add {WIRE} type veth peer name wire1; ip link set {WIRE} up; ip link set wire1 up; \
                 ip link add {DEVICE} type veth peer name device1; \
                 ip link add bench3 type bridge; ip address add 10.3.0.1/16 dev bench3; ip link set bench3 up; \
                 for n in 1 2; do mkdir -p {SUBNETS}$n; printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.%s.0.1/16\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n' $n > {SUBNETS}$n/subnet.env; done"
            ),
        ])
        .status()?;
    ensure!(made.success(), "there is no link {WIRE} or {DEVICE}");
    let place = place::copy(
        &native_bin()?,
        &plugin_bin()?,
        netavark::package().as_deref(),
        &options.place.clone().unwrap_or_else(|| options.out.join("files")),
    )?;
    let floor = plugin_set(PathBuf::new(), 3)?.netns;
    let sets = [plugin_set(place.native, 1)?, plugin_set(place.ours, 2)?];
    let netavark = match place.netavark {
        Some(package) => Netavark::of(&package),
        None => Err(anyhow!("no netavark: tests/fetch-runtime netavark fetches it")),
    };
    let mut conditions = conditions(&options, &place.state)?;
    if let Ok(netavark) = &netavark {
        conditions.insert("netavark".to_owned(), netavark.version.clone());
    }
    for (key, value) in &conditions {
        println!("{key}: {value}");
    }
    println!(
        "\n{:<38}{:>30}{:>30}{:>10}{:>8}{:>22}{:>8}\n{:<38}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>11}{:>11}{:>8}",
        "",
        "native wall ms",
        "ours wall ms",
        "floor",
        "wall",
        "CPU ms",
        "CPU",
        "plugin, verb",
        "tenth",
        "median",
        "p95",
        "tenth",
        "median",
        "p95",
        "median",
        "ratio",
        "native",
        "ours",
        "ratio"
    );
    if !is_built() {
        println!("SKIPPED: the floor: tests/bench builds it");
    }
    if let Err(error) = &netavark {
        println!("SKIPPED: the column of netavark: {error:#}");
    }
    let mut rows = Vec::new();
    if options.wants(EMPTY) {
        rows.push(rounds::alone(EMPTY, options.runs, nothing)?);
    }
    let mut scenarios = scenarios();
    scenarios.retain(|scenario| options.wants(scenario.name));
    for kind in ["vlan", "ipvlan", "dummy", "vrf", "tap"] {
        if scenarios.iter().any(|scenario| scenario.plugin == kind) && !kernel::has_or_skips_part(kind)? {
            scenarios.retain(|scenario| scenario.plugin != kind);
        }
    }
    for scenario in &scenarios {
        rows.extend(rounds::measure(scenario, &sets, &floor, options.runs)?);
    }
    let [native, ours] = &sets;
    rows.extend(chain::measure(&sets, netavark.as_ref().ok(), &floor, &options)?);
    rows.extend(parallel::measure(&sets, &options)?);
    for scenario in scenarios.iter().filter(|scenario| MEMORY.contains(&scenario.name)) {
        measure_memory(scenario, &sets, &mut rows)?;
    }
    if options.wants("installed") {
        rows.extend(installed::measure(&native.bin, &ours.bin)?);
    }
    write(&options, conditions, &rows)
}

/// Writes raw figures, summary and chart, and prints the table.
fn write(options: &Options, conditions: BTreeMap<String, String>, rows: &[Row]) -> Result<()> {
    let out = &options.out;
    fs::create_dir_all(out)?;
    fs::write(
        out.join("raw.json"),
        serde_json::to_string(&serde_json::json!({"conditions": conditions, "rows": rows}))?,
    )?;
    let summary = Summary::of(conditions, rows);
    fs::write(out.join("performance.json"), summary.to_json()?)?;
    fs::write(out.join("performance.svg"), chart(&summary))?;
    println!("\n{}\nin {}: raw.json, performance.json, performance.svg", as_text(&summary), out.display());
    Ok(())
}

/// Draws the pages' chart and tables from a summary, and copies the summary to the pages.
fn draw(summary: &Path, pages: &Path) -> Result<()> {
    let text = fs::read_to_string(summary).with_context(|| summary.display().to_string())?;
    let summary: Summary = serde_json::from_str(&text)?;
    fs::write(pages.join("docs/performance.json"), summary.to_json()?)?;
    fs::write(pages.join("docs/performance.svg"), chart(&summary))?;
    for (page, part, text) in
        [("docs/performance.md", "table", table(&summary)), ("README.md", "first", first_page(&summary))]
    {
        let page = pages.join(page);
        let drawn =
            replace_part(&fs::read_to_string(&page)?, part, &text).with_context(|| page.display().to_string())?;
        fs::write(&page, drawn)?;
    }
    Ok(())
}

fn options(arguments: Vec<String>) -> Result<Options> {
    let mut options = Options { runs: 50, out: PathBuf::from("target/bench"), place: None, patterns: Vec::new() };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--runs" => options.runs = value()?.parse()?,
            "--out" => options.out = value()?.into(),
            "--place" => options.place = Some(value()?.into()),
            flag if flag.starts_with('-') => bail!(
                "unknown option {flag}; usage: postern-bench [--runs N] [--out DIRECTORY] [--place DIRECTORY] [PATTERN...], or \
                 postern-bench draw SUMMARY PAGES"
            ),
            _ => options.patterns.push(argument),
        }
    }
    ensure!(
        std::env::var_os("POSTERN_PRIVATE").is_some(),
        "not in private namespaces: start this program with tests/in-namespaces"
    );
    ensure!(options.runs > 0, "--runs needs a positive number");
    Ok(options)
}

/// Returns the conditions that the figures depend on.
fn conditions(options: &Options, files: &str) -> Result<BTreeMap<String, String>> {
    let output = |program: &str, arguments: &[&str]| -> Result<String> {
        Ok(String::from_utf8_lossy(&Command::new(program).args(arguments).output()?.stdout).trim().to_owned())
    };
    let load = fs::read_to_string("/proc/loadavg")?;
    Ok([
        ("date", output("date", &["-u", "+%Y-%m-%d"])?),
        ("commit", output("git", &["describe", "--always", "--dirty", "--abbrev=10"])?),
        ("kernel", output("uname", &["-rm"])?),
        ("cores", std::thread::available_parallelism()?.to_string()),
        ("load before", load.split(' ').next().unwrap_or_default().to_owned()),
        ("runs", options.runs.to_string()),
        ("files", files.to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into())
}

fn plugin_set(bin: PathBuf, number: usize) -> Result<PluginSet> {
    let name = format!("bench{number}");
    let status = Command::new("ip").args(["netns", "add", &name]).status()?;
    ensure!(status.success(), "ip netns add {name}");
    Ok(PluginSet { bin, netns: format!("/run/netns/{name}"), number })
}

/// Measures the memory of a scenario's ADD, and adds it to its row.
#[allow(clippy::cast_precision_loss, reason = "bytes of memory")]
fn measure_memory(scenario: &Scenario, sets: &Sets, rows: &mut [Row]) -> Result<()> {
    let name = format!("{}, ADD", scenario.name);
    let row = rows.iter_mut().find(|row| row.name == name).context("no such row")?;
    for _ in 0..MEMORY_RUNS {
        for (set, side) in sets.iter().zip(SIDES) {
            let in_front = set.front(scenario)?;
            let (command, input) = set.command(scenario.plugin, &scenario.config, "ADD", &in_front);
            let (bytes, result) = memory::measure(&command, &input)?;
            row.push(Quantity::Memory, side, bytes as f64);
            let (mut command, input) =
                set.command(scenario.plugin, &scenario.config, "DEL", &serde_json::from_str(&result)?);
            postern_tests::measure::timed(&mut command, input.as_bytes())?;
            set.clear(scenario, &in_front)?;
        }
    }
    let of = |side: &str| {
        Summary::of(BTreeMap::new(), std::slice::from_ref(row))
            .line(&name, Quantity::Memory)?
            .side(side)
            .map(|figures| figures.median / 1024.0)
    };
    println!(
        "{name}, memory: native {:.0} KiB, ours {:.0} KiB",
        of(NATIVE).unwrap_or_default(),
        of(OURS).unwrap_or_default()
    );
    Ok(())
}

/// Prints a row of times.
fn print(row: &Row) {
    let summary = Summary::of(BTreeMap::new(), std::slice::from_ref(row));
    let figure = |quantity, side: &str| {
        let figures = summary.line(&row.name, quantity)?.side(side)?;
        Some([figures.tenth, figures.median, figures.p95].map(|micros| micros / 1e3))
    };
    let none = [f64::NAN; 3];
    let [a, b, c] = figure(Quantity::Wall, NATIVE).unwrap_or(none);
    let [d, e, f] = figure(Quantity::Wall, OURS).unwrap_or(none);
    let floor = figure(Quantity::Wall, FLOOR).map(|[_, median, _]| format!("{median:.2}")).unwrap_or_default();
    let [_, native, _] = figure(Quantity::Cpu, NATIVE).unwrap_or(none);
    let [_, ours, _] = figure(Quantity::Cpu, OURS).unwrap_or(none);
    let text = format!(
        "{:<38}{a:>10.2}{b:>10.2}{c:>10.2}{d:>10.2}{e:>10.2}{f:>10.2}{floor:>10}{:>8.2}{native:>11.2}{ours:>11.2}{:>8.2}",
        row.name,
        e / b,
        ours / native
    );
    // A missing figure is NaN, and stays blank.
    println!("{}", text.replace("NaN", "   "));
}

/// Returns the beginning of a text, in one line.
fn short(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(150).collect()
}
