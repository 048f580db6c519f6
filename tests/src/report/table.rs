//! The tables of a summary, as text for a terminal and as Markdown for the pages.

use super::{EMPTY, FLOOR, GOALS, Line, NATIVE, OURS, Quantity, Summary, WALLS};
use anyhow::{Context, Result};
use std::fmt::Write;

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
    ("Kubernetes' list, a process for each plugin, ADD", "chain of 3, a process each, ADD"),
    ("50 bridges with host-local at once, ADD", "50 at once: bridge + host-local, ADD"),
];

/// Returns a figure in its unit, with as many places as are worth reading.
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

fn least(line: &Line) -> String {
    line.least().map(|part| format!("{part:.2}")).unwrap_or_default()
}

/// Returns the table of goals in Markdown: medians, and parts of native.
#[must_use]
pub fn goal_rows(summary: &Summary) -> String {
    let mut text =
        "| | unit | native | ours | floor | walls | goal | reached | least |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    if let Some(line) = summary.line(EMPTY, Quantity::Wall) {
        let _ = writeln!(text, "| {EMPTY} | {} | | | {} | | | | |", line.quantity.unit().0, median(line, FLOOR));
    }
    for goal in &GOALS {
        let Some(line) = goal.line(summary) else { continue };
        let reached = ratio(line, OURS);
        let reached = if goal.reached(summary).is_some_and(|ratio| ratio <= goal.goal) {
            format!("**{reached}**")
        } else {
            reached
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {reached} | {} |",
            goal.label,
            line.quantity.unit().0,
            median(line, NATIVE),
            median(line, OURS),
            median(line, FLOOR),
            median(line, WALLS),
            goal.goal,
            least(line)
        );
    }
    text
}

/// Returns the table of goals for a terminal.
#[must_use]
pub fn goals_as_text(summary: &Summary) -> String {
    let mut text = format!(
        "{:<54}{:>6}{:>10}{:>10}{:>10}{:>10}{:>7}{:>9}{:>7}\n",
        "medians", "", "native", "ours", "floor", "walls", "goal", "reached", "least"
    );
    if let Some(line) = summary.line(EMPTY, Quantity::Wall) {
        let _ = writeln!(text, "{EMPTY:<54}{:>6}{:>30}", line.quantity.unit().0, median(line, FLOOR));
    }
    for goal in &GOALS {
        let Some(line) = goal.line(summary) else { continue };
        let mark = if goal.reached(summary).is_some_and(|ratio| ratio <= goal.goal) { "" } else { "  missed" };
        let _ = writeln!(
            text,
            "{:<54}{:>6}{:>10}{:>10}{:>10}{:>10}{:>7}{:>9}{:>7}{mark}",
            goal.label,
            line.quantity.unit().0,
            median(line, NATIVE),
            median(line, OURS),
            median(line, FLOOR),
            median(line, WALLS),
            goal.goal,
            ratio(line, OURS),
            least(line)
        );
    }
    text
}

/// Returns the table of all rows in Markdown: wall time with its spread, and processor time.
#[must_use]
pub fn all_rows(summary: &Summary) -> String {
    let mut text = "| wall ms: lowest tenth / median / 95th percentile | native | ours | floor | ratio | processor ms: native | ours | ratio |\n|---|---:|---:|---:|---:|---:|---:|---:|\n".to_owned();
    let spread = |line: &Line, side: &str| {
        let figures = line.side(side)?;
        let [tenth, middle, p95] =
            [figures.tenth, figures.median, figures.p95].map(|value| shown(value, line.quantity));
        Some(format!("{tenth} / {middle} / {p95}"))
    };
    for line in summary.lines.iter().filter(|line| line.quantity == Quantity::Wall) {
        let cpu = summary.line(&line.name, Quantity::Cpu);
        let of_cpu = |show: &dyn Fn(&Line) -> String| cpu.map(show).unwrap_or_default();
        let failed: String =
            line.failures.iter().map(|(side, count)| format!(" ({side} failed {count} times)")).collect();
        let _ = writeln!(
            text,
            "| {}{failed} | {} | {} | {} | {} | {} | {} | {} |",
            line.name,
            spread(line, NATIVE).unwrap_or_default(),
            spread(line, OURS).unwrap_or_default(),
            spread(line, FLOOR).unwrap_or_default(),
            ratio(line, OURS),
            of_cpu(&|cpu| median(cpu, NATIVE)),
            of_cpu(&|cpu| median(cpu, OURS)),
            of_cpu(&|cpu| ratio(cpu, OURS)),
        );
    }
    text
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
    use crate::report::{Row, START};

    fn summary() -> Summary {
        let mut row = Row::new("bridge VERSION");
        for (side, value) in [(NATIVE, 2000.0), (OURS, 500.0), (FLOOR, 300.0), (START, 200.0), (WALLS, 340.0)] {
            row.push(Quantity::Wall, side, value);
        }
        Summary::of([("runs".to_owned(), "1".to_owned())].into(), &[row])
    }

    #[test]
    fn a_goal_that_is_missed_is_not_marked() {
        let rows = goal_rows(&summary());
        assert!(rows.contains("| VERSION | ms | 2.00 | 0.50 | 0.30 | 0.34 | 0.18 | 0.25 | 0.22 |"), "{rows}");
        assert!(goals_as_text(&summary()).contains("0.25   0.22  missed"));
    }

    #[test]
    fn the_least_has_walls_and_floor_but_only_one_start() {
        let least = |summary: &Summary| summary.lines.first().unwrap().least();
        assert_eq!(least(&summary()), Some((340.0 + 300.0 - 200.0) / 2000.0));
        let changed = |change: fn(&mut Summary)| {
            let mut summary = summary();
            change(&mut summary);
            summary
        };
        assert_eq!(least(&changed(|summary| summary.lines[0].sides.retain(|side, _| side != WALLS))), None);
        // Many wait for each other.
        assert_eq!(least(&changed(|summary| summary.lines[0].name = "50 at once: bridge, ADD".to_owned())), None);
        // The kernel's wait is in the floor.
        let waits = changed(|summary| {
            summary.lines[0].name = "bridge, DEL".to_owned();
            summary.lines[0].sides.get_mut(FLOOR).unwrap().tenth = 14000.0;
        });
        assert_eq!(least(&waits), Some(7.0));
    }

    #[test]
    fn the_floor_of_everything_is_in_both_tables() {
        let mut row = Row::new(EMPTY);
        row.push(Quantity::Wall, FLOOR, 140.0);
        let summary = Summary::of([].into(), &[row]);
        assert!(goal_rows(&summary).contains("| an empty process | ms | | | 0.14 | | | | |"));
        assert!(goals_as_text(&summary).contains("0.14"));
        assert!(all_rows(&summary).contains("| an empty process |  |  | 0.14 / 0.14 / 0.14 |"));
    }

    #[test]
    fn only_the_part_of_a_page_is_replaced() {
        let page = "a\n<!-- bench: goals -->\nold\n<!-- bench: end -->\nb\n";
        let expected = "a\n<!-- bench: goals -->\n\nnew\n<!-- bench: end -->\nb\n";
        assert_eq!(replace_part(page, "goals", "new").unwrap(), expected);
        assert!(replace_part(page, "other", "new").is_err());
    }

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let summary = summary();
        assert_eq!(serde_json::from_str::<Summary>(&summary.to_json().unwrap()).unwrap(), summary);
    }
}
