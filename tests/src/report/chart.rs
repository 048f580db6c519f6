//! The table as a chart (SVG). The bar of a row shows the ratio of our figure to the native figure.

use super::table::TABLE;
use super::{FLOOR, NETAVARK, OURS, Quantity, Summary};
use std::fmt::Write;

/// The layout, in pixels.
const LEFT: f64 = 340.0;
const WIDTH: f64 = 480.0;
const TOP: f64 = 92.0;
const ROW: f64 = 22.0;
const BAR: f64 = 12.0;
/// Room for the figures at the right.
const RIGHT: f64 = 130.0;
/// The ratio to native at which the longest bar ends.
const MOST: f64 = 1.2;

/// Colours for a bright page, then for a dark page. The chart draws its own background, so it fits any page.
const STYLE: &str = "\
svg{font:13px system-ui,sans-serif}.ground{fill:#fff}text{fill:#1f2328}.soft{fill:#59636e;font-size:12px}\
.title{font-size:16px;font-weight:600}.line{stroke:#d1d9e0}.native{stroke:#59636e;stroke-dasharray:4 3}.ours{fill:#0969da}\
.floor{fill:#1f2328}.netavark{fill:#bf8700}\
@media(prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#f0f6fc}.soft{fill:#9198a1}.line{stroke:#3d444d}\
.native{stroke:#9198a1}.ours{fill:#4493f8}.floor{fill:#f0f6fc}.netavark{fill:#d29922}}";

/// Returns a text, escaped for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the horizontal position of a ratio to native.
fn at(part: f64) -> f64 {
    LEFT + WIDTH * part.clamp(0.0, MOST) / MOST
}

fn text(out: &mut String, [x, y]: [f64; 2], class: &str, anchor: &str, words: &str) {
    let _ = writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{}</text>"#,
        escaped(words)
    );
}

fn line(out: &mut String, class: &str, x: f64, [top, bottom]: [f64; 2]) {
    let _ = writeln!(out, r#"<line class="{class}" x1="{x:.1}" x2="{x:.1}" y1="{top:.1}" y2="{bottom:.1}"/>"#);
}

fn bar(out: &mut String, class: &str, y: f64, part: f64, height: f64) {
    let width = (at(part) - LEFT).max(1.0);
    let _ = writeln!(
        out,
        r#"<rect class="{class}" x="{LEFT:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
    );
}

/// Returns a figure with its unit.
fn figure(value: f64, quantity: Quantity) -> String {
    let (unit, one) = quantity.unit();
    let value = value / one;
    let places = if value < 100.0 { 2 } else { 0 };
    format!("{value:.places$} {unit}")
}

/// Draws the rows of the table that were measured.
#[must_use]
pub fn chart(summary: &Summary) -> String {
    let rows: Vec<_> = TABLE
        .into_iter()
        .filter_map(|shown| {
            let line = shown.line(summary)?;
            Some((shown, line, line.ratio(OURS)?))
        })
        .collect();
    let count = u16::try_from(rows.len()).map(f64::from).unwrap_or_default();
    let (width, bottom) = (LEFT + WIDTH + RIGHT, TOP + count * ROW);
    let height = bottom + 46.0;
    let title = "Postern beside the native CNI plugins";
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">{title}: medians as a part of native, shorter is better</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"6\"/>\n"
    );
    text(&mut out, [16.0, 28.0], "title", "start", title);
    let what = "Medians as a part of native (native = 1); shorter is better. Times are from start to exit.";
    text(&mut out, [16.0, 48.0], "soft", "start", what);
    let mut x = 16.0;
    for (class, words, step) in [
        ("ours", "ours", 56.0),
        ("floor", "floor: the kernel's part, by a program that does nothing else", 400.0),
        ("netavark", "netavark", 0.0),
    ] {
        let _ = writeln!(out, r#"<rect class="{class}" x="{x:.1}" y="58.0" width="12" height="10" rx="2"/>"#);
        text(&mut out, [x + 17.0, 67.0], "soft", "start", words);
        x += step;
    }
    for step in 0..=6 {
        let part = f64::from(step) * 0.2;
        line(&mut out, if step == 5 { "native" } else { "line" }, at(part), [TOP - 6.0, bottom]);
        text(&mut out, [at(part), bottom + 16.0], "soft", "middle", &format!("{part:.1}"));
    }
    text(&mut out, [at(1.0), TOP - 10.0], "soft", "middle", "native");
    text(&mut out, [LEFT + WIDTH / 2.0, bottom + 34.0], "soft", "middle", "part of native");
    let mut y = TOP;
    for (shown, line_of, ratio) in rows {
        let middle = y + ROW / 2.0;
        text(&mut out, [LEFT - 10.0, middle + 4.0], "", "end", shown.label);
        bar(&mut out, "ours", middle - BAR / 2.0, ratio, BAR);
        if let Some(floor) = line_of.ratio(FLOOR) {
            bar(&mut out, "floor", middle - 2.0, floor, 4.0);
        }
        if let Some(netavark) = line_of.ratio(NETAVARK) {
            bar(&mut out, "netavark", middle + BAR / 2.0, netavark, 3.0);
        }
        let of_ours = line_of.side(OURS).map(|figures| figure(figures.median, shown.quantity)).unwrap_or_default();
        text(&mut out, [LEFT + WIDTH + 10.0, middle + 4.0], "", "start", &format!("{ratio:.2}"));
        text(&mut out, [LEFT + WIDTH + 52.0, middle + 4.0], "soft", "start", &of_ours);
        y += ROW;
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{NATIVE, Row};
    use std::path::{Path, PathBuf};

    fn page(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
    }

    fn kept() -> Summary {
        let text = std::fs::read_to_string(page("docs/performance.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Returns every row of the table, with extreme figures.
    fn full() -> Summary {
        let rows: Vec<Row> = TABLE
            .iter()
            .map(|shown| {
                let mut row = Row::new(shown.row);
                for (side, value) in [(NATIVE, 2000.0), (NETAVARK, 1000.0), (OURS, 9000.0), (FLOOR, 0.0)] {
                    row.push(shown.quantity, side, value);
                }
                row
            })
            .collect();
        Summary::of(std::collections::BTreeMap::new(), &rows)
    }

    #[test]
    fn a_chart_is_well_formed_and_has_all_rows() {
        for summary in [full(), kept()] {
            let drawn = chart(&summary);
            let document = roxmltree::Document::parse(&drawn).unwrap();
            let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
            for shown in TABLE.into_iter().filter(|shown| shown.line(&summary).is_some()) {
                assert!(texts.contains(&shown.label), "{} is not drawn", shown.label);
            }
            // Nothing is drawn beyond the edges.
            let number = |node: &roxmltree::Node<'_, '_>, name| {
                node.attribute(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0)
            };
            for node in document.descendants().filter(|node| node.has_tag_name("rect")) {
                assert!(number(&node, "x") + number(&node, "width") <= LEFT + WIDTH + RIGHT, "{drawn}");
            }
        }
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
    }

    #[test]
    fn the_pages_show_what_the_kept_summary_says() {
        use crate::report::{first_page, replace_part, table};
        let read = |name: &str| std::fs::read_to_string(page(name)).unwrap();
        let summary = kept();
        assert_eq!(read("docs/performance.svg"), chart(&summary), "the chart: tests/bench draw draws it anew");
        let parts = [("docs/performance.md", "table", table(&summary)), ("README.md", "first", first_page(&summary))];
        for (name, part, text) in parts {
            let text_of_page = read(name);
            assert_eq!(replace_part(&text_of_page, part, &text).unwrap(), text_of_page, "{name}: tests/bench draw");
        }
    }
}
