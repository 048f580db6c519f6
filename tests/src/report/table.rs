//! The tables of a summary, as text for a terminal and as Markdown for the pages.

use super::{EMPTY, FLOOR, Line, NATIVE, NETAVARK, OURS, Quantity, Summary};
use Quantity::{Cpu, Memory, Size, Wall};
use anyhow::{Context, Result};
use std::fmt::Write;

/// A line of the table and of the chart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// The text for people.
    pub label: &'static str,
    /// The name of the benchmark's row.
    pub row: &'static str,
    /// The quantity of the row.
    pub quantity: Quantity,
}

const fn show(label: &'static str, row: &'static str, quantity: Quantity) -> Shown {
    Shown { label, row, quantity }
}

impl Shown {
    /// Finds the line in a summary.
    pub fn line(self, summary: &Summary) -> Option<&Line> {
        summary.line(self.row, self.quantity)
    }
}

/// All lines, in the order of the table.
pub(super) const TABLE: [Shown; 31] = [
    show("VERSION", "bridge VERSION", Wall),
    show("static, ADD", "static, ADD", Wall),
    show("static, DEL", "static, DEL", Wall),
    show("loopback, ADD", "loopback, ADD", Wall),
    show("loopback, DEL", "loopback, DEL", Wall),
    show("host-local, ADD", "host-local, ADD", Wall),
    show("host-local, DEL", "host-local, DEL", Wall),
    show("bridge with host-local, ADD", "bridge + host-local, ADD", Wall),
    show("the same, processor time", "bridge + host-local, ADD", Cpu),
    show("bridge with host-local, DEL", "bridge + host-local, DEL", Wall),
    show("ptp with host-local, ADD", "ptp + host-local, ADD", Wall),
    show("bridge with masquerading, nftables, ADD", "bridge + masq nft, ADD", Wall),
    show("bridge with masquerading, nftables, DEL", "bridge + masq nft, DEL", Wall),
    show("bridge with masquerading, default, ADD", "bridge + masq default, ADD", Wall),
    show("bridge with masquerading, default, DEL", "bridge + masq default, DEL", Wall),
    show("portmap, default, ADD", "portmap default, ADD", Wall),
    show("portmap, default, DEL", "portmap default, DEL", Wall),
    show("firewall, default, ADD", "firewall default, ADD", Wall),
    show("bandwidth, ADD", "bandwidth, ADD", Wall),
    show("tuning, ADD", "tuning, ADD", Wall),
    show("macvlan with host-local, ADD", "macvlan + host-local, ADD", Wall),
    show("macvlan without addresses, ADD", "macvlan L2, ADD", Wall),
    show("Kubernetes' list, ADD", "chain of 3, ADD", Wall),
    show("Kubernetes' list, DEL", "chain of 3, DEL", Wall),
    show("a list with a port, as netavark does it, ADD", "list with a port, ADD", Wall),
    show("a list with a port, as netavark does it, DEL", "list with a port, DEL", Wall),
    show("50 bridges with host-local at once, ADD", "50 at once: bridge + host-local, ADD", Wall),
    show("the same, processor time", "50 at once: bridge + host-local, ADD", Cpu),
    show("bridge with host-local, ADD, memory", "bridge + host-local, ADD", Memory),
    show("static, ADD, memory", "static, ADD", Memory),
    show("all plugins and commands, as installed", "installed", Size),
];

/// The rows of the table on the first page.
const FIRST_PAGE: [(&str, &str); 10] = [
    ("VERSION", "bridge VERSION"),
    ("loopback, ADD", "loopback, ADD"),
    ("bridge with host-local, ADD", "bridge + host-local, ADD"),
    ("the same with masquerading by nftables, ADD", "bridge + masq nft, ADD"),
    ("the same with masquerading by iptables, the default, ADD", "bridge + masq default, ADD"),
    ("the same, DEL", "bridge + masq default, DEL"),
    ("portmap, default, ADD", "portmap default, ADD"),
    ("macvlan with host-local, ADD", "macvlan + host-local, ADD"),
    ("Kubernetes' list, ADD", "chain of 3, ADD"),
    ("50 bridges with host-local at once, ADD", "50 at once: bridge + host-local, ADD"),
];

/// Returns a figure in its unit, with a sensible number of decimal places.
fn shown(value: f64, quantity: Quantity) -> String {
    let value = value / quantity.unit().1;
    match quantity {
        Quantity::Faults => format!("{value:.0}"),
        _ if value < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn median(line: &Line, side: &str) -> String {
    line.side(side).map(|figures| shown(figures.median, line.quantity)).unwrap_or_default()
}

fn ratio(line: &Line, side: &str) -> String {
    line.ratio(side).map(|ratio| format!("{ratio:.2}")).unwrap_or_default()
}

/// Returns the table in Markdown: medians, and the ratio of ours to native.
#[must_use]
pub fn table(summary: &Summary) -> String {
    let mut text =
        "| | unit | native | netavark | ours | floor | ours / native |\n|---|---|---:|---:|---:|---:|---:|\n"
            .to_owned();
    for cells in lines(summary) {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Returns the table for a terminal.
#[must_use]
pub fn as_text(summary: &Summary) -> String {
    let first = ["medians", "", "native", "netavark", "ours", "floor", "ratio"].map(str::to_owned);
    let lines = std::iter::once(first).chain(lines(summary));
    lines
        .map(|[label, unit, native, netavark, ours, floor, ratio]| {
            format!("{label:<46}{unit:>6}{native:>10}{netavark:>10}{ours:>10}{floor:>10}{ratio:>7}\n")
        })
        .collect()
}

/// Returns the lines of the table that were measured: label, unit, figures, ratio.
fn lines(summary: &Summary) -> impl Iterator<Item = [String; 7]> + '_ {
    let empty = Shown { label: EMPTY, row: EMPTY, quantity: Wall };
    std::iter::once(empty).chain(TABLE).filter_map(|shown| {
        let line = shown.line(summary)?;
        let unit = line.quantity.unit().0.to_owned();
        let [native, netavark, ours, floor] = [NATIVE, NETAVARK, OURS, FLOOR].map(|side| median(line, side));
        Some([shown.label.to_owned(), unit, native, netavark, ours, floor, ratio(line, OURS)])
    })
}

/// Returns the table of the first page in Markdown.
#[must_use]
pub fn first_page(summary: &Summary) -> String {
    let mut text = "| start to exit, ms (median) | native 1.9.1 | Postern | |\n|---|---:|---:|---:|\n".to_owned();
    for (label, row) in FIRST_PAGE {
        let Some(line) = summary.line(row, Quantity::Wall) else { continue };
        let _ =
            writeln!(text, "| {label} | {} | {} | {} |", median(line, NATIVE), median(line, OURS), ratio(line, OURS));
    }
    text
}

/// Replaces the part of a page between the comments `<!-- bench: NAME -->` and `<!-- bench: end -->`.
///
/// # Errors
/// The page has no such part.
pub fn replace_part(page: &str, name: &str, part: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- bench: {name} -->\n"), "<!-- bench: end -->");
    let (before, rest) = page.split_once(&begin).with_context(|| format!("the page has no {}", begin.trim()))?;
    let (_, after) = rest.split_once(end).with_context(|| format!("the page has no {end} after {}", begin.trim()))?;
    Ok(format!("{before}{begin}\n{part}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;

    fn summary() -> Summary {
        let mut row = Row::new("bridge VERSION");
        for (side, value) in [(NATIVE, 2000.0), (NETAVARK, 1000.0), (OURS, 500.0), (FLOOR, 300.0)] {
            row.push(Wall, side, value);
        }
        Summary::of([("runs".to_owned(), "1".to_owned())].into(), &[row])
    }

    #[test]
    fn the_table_has_what_was_measured() {
        let rows = table(&summary());
        assert!(rows.ends_with("|\n| VERSION | ms | 2.00 | 1.00 | 0.50 | 0.30 | 0.25 |\n"), "{rows}");
        assert!(as_text(&summary()).ends_with("      2.00      1.00      0.50      0.30   0.25\n"));
    }

    #[test]
    fn the_floor_of_everything_is_in_both_tables() {
        let mut row = Row::new(EMPTY);
        row.push(Wall, FLOOR, 140.0);
        let summary = Summary::of([].into(), &[row]);
        assert!(table(&summary).contains("| an empty process | ms |  |  |  | 0.14 |  |"));
        assert!(as_text(&summary).contains("0.14"));
    }

    #[test]
    fn only_the_part_of_a_page_is_replaced() {
        let page = "a\n<!-- bench: table -->\nold\n<!-- bench: end -->\nb\n";
        let expected = "a\n<!-- bench: table -->\n\nnew\n<!-- bench: end -->\nb\n";
        assert_eq!(replace_part(page, "table", "new").unwrap(), expected);
        assert!(replace_part(page, "other", "new").is_err());
    }

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let summary = summary();
        assert_eq!(serde_json::from_str::<Summary>(&summary.to_json().unwrap()).unwrap(), summary);
    }
}
