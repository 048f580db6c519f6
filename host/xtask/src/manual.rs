//! `cargo xtask manual DIR DATE`: the manual's pages of files, postern-policy(5) and postern-node.toml(5), made of pages of the
//! documentation. The pages of commands are made by `postern-admin manual`, of the table that the help is made of.

use anyhow::{Context, Result, bail, ensure};
use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};
use roff::{Inline, Roff, bold, italic, roman};
use std::fs;
use std::path::Path;

/// A page: its name, its subject, and the pages of the documentation that it is made of.
const PAGES: [(&str, &str, &[&str]); 2] = [
    ("postern-policy", "what a CNI plugin may do", &["docs/policy/README.md", "docs/policy/grants.md"]),
    ("postern-node.toml", "the operator's settings for a node", &["docs/operating/node-settings.md"]),
];

/// The source of the limits, their defaults and their ranges.
const LIMITS: &str = "host/policy/src/limits.rs";

/// The place of each page's file on a node.
const FILES: [&str; 2] = [
    "/etc/postern/policy/PLUGIN.toml, and PLUGIN.toml in postern.d beside the host executable",
    "/etc/postern/node.toml",
];

/// Writes the pages to a directory.
pub fn write(root: &Path, directory: &Path, date: &str) -> Result<()> {
    fs::create_dir_all(directory)?;
    for ((name, subject, sources), file) in PAGES.into_iter().zip(FILES) {
        let mut page = Page::default();
        let source = format!("postern {}", env!("CARGO_PKG_VERSION"));
        page.roff.control("TH", [name, "5", date, source.as_str(), "Postern"]);
        page.roff.control("SH", ["NAME"]).text([roman(format!("{name} - {subject}"))]);
        for (at, source) in sources.iter().enumerate() {
            let text = fs::read_to_string(root.join(source)).with_context(|| (*source).to_owned())?;
            if at == 0 {
                page.roff.control("SH", ["DESCRIPTION"]);
            }
            page.add(&text, at > 0).with_context(|| format!("{source} can't become a page of the manual"))?;
        }
        if name == "postern-policy" {
            page.add_limits(&fs::read_to_string(root.join(LIMITS))?)?;
        }
        page.roff.control("SH", ["FILES"]).text([roman(file)]);
        page.roff.control("SH", ["SEE ALSO"]).text([roman("postern(8), postern-inspect(8), postern-net-validate(8)")]);
        let path = directory.join(format!("{name}.5"));
        fs::write(&path, page.roff.render()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A page in the making.
#[derive(Default)]
struct Page {
    roff: Roff,
    /// The words of the present paragraph.
    line: Vec<Inline>,
    /// The number of `**` and `*` around the present words.
    strong: usize,
    emphasis: usize,
    /// The depth of lists.
    lists: usize,
    /// True directly behind a heading or the mark of a list's item: the first paragraph needs no mark.
    is_begun: bool,
    in_code: bool,
}

impl Page {
    /// Adds a page of the documentation. Links become their words. The title of the first page is the page's name.
    fn add(&mut self, markdown: &str, has_title: bool) -> Result<()> {
        for event in Parser::new(markdown) {
            match event {
                Event::Start(tag) => self.start(&tag)?,
                Event::End(tag) => self.end(tag, has_title),
                Event::Text(text) if self.in_code => self.code(&text)?,
                Event::Text(text) => self.word(&text)?,
                Event::Code(code) => self.line.push(bold(plain(&code)?)),
                Event::SoftBreak | Event::HardBreak => self.line.push(roman(" ")),
                other => bail!("{other:?} has no form"),
            }
        }
        Ok(())
    }

    fn start(&mut self, tag: &Tag<'_>) -> Result<()> {
        match tag {
            Tag::Heading { .. } => {}
            Tag::Paragraph if self.is_begun => self.is_begun = false,
            Tag::Paragraph => {
                self.roff.control("PP", []);
            }
            Tag::List(None) => {
                self.flush();
                if self.lists > 0 {
                    self.roff.control("RS", []);
                }
                self.lists += 1;
            }
            Tag::Item => {
                self.roff.control("IP", ["\\(bu", "2"]);
                self.is_begun = true;
            }
            Tag::CodeBlock(_) => {
                self.flush();
                if !std::mem::take(&mut self.is_begun) {
                    self.roff.control("PP", []);
                }
                self.roff.control("RS", ["4"]).control("nf", []);
                self.in_code = true;
            }
            Tag::Strong => self.strong += 1,
            Tag::Emphasis => self.emphasis += 1,
            Tag::Link { .. } => {}
            other => bail!("{other:?} has no form"),
        }
        Ok(())
    }

    fn end(&mut self, tag: TagEnd, has_title: bool) {
        match tag {
            TagEnd::Heading(level) => self.heading(level, has_title),
            TagEnd::Paragraph => self.flush(),
            TagEnd::Item => {
                self.flush();
                self.is_begun = false;
            }
            TagEnd::List(_) => {
                self.lists -= 1;
                if self.lists > 0 {
                    self.roff.control("RE", []);
                }
            }
            TagEnd::CodeBlock => {
                self.roff.control("fi", []).control("RE", []);
                self.in_code = false;
            }
            TagEnd::Strong => self.strong -= 1,
            TagEnd::Emphasis => self.emphasis -= 1,
            _ => {}
        }
    }

    /// Ends a heading. A heading of the second level is a subsection.
    fn heading(&mut self, level: HeadingLevel, has_title: bool) {
        let words: String = std::mem::take(&mut self.line).iter().map(text_of).collect();
        self.is_begun = true;
        match level {
            HeadingLevel::H1 if has_title => self.roff.control("SH", [words.to_uppercase().as_str()]),
            HeadingLevel::H1 => return,
            _ => self.roff.control("SS", [words.as_str()]),
        };
    }

    fn word(&mut self, text: &str) -> Result<()> {
        let text = plain(text)?;
        self.line.push(match (self.strong > 0, self.emphasis > 0) {
            (true, _) => bold(text),
            (false, true) => italic(text),
            (false, false) => roman(text),
        });
        Ok(())
    }

    fn code(&mut self, text: &str) -> Result<()> {
        for line in plain(text)?.lines() {
            self.roff.text([roman(line)]);
        }
        Ok(())
    }

    /// Writes the present paragraph.
    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.roff.text(line);
            self.is_begun = false;
        }
    }

    /// Adds the limits: comments and lines `key: default in least..=most` of the macro `limits!`.
    fn add_limits(&mut self, source: &str) -> Result<()> {
        self.roff.control("SH", ["LIMITS"]);
        let (_, list) = source.split_once("\nlimits! {\n").context("the source has no list of limits")?;
        let (list, _) = list.split_once("\n}").context("the list of limits has no end")?;
        let mut words = Vec::new();
        for line in list.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix("/// ") {
                words.push(comment);
                continue;
            }
            let (key, values) = line.split_once(": ").with_context(|| format!("\"{line}\" is no limit"))?;
            let (default, range) = values.trim_end_matches(',').split_once(" in ").context("a limit has a range")?;
            let (least, most) = range.split_once("..=").context("a range has two ends")?;
            let [default, least, most] = [default, least, most].map(|number| number.replace('_', ""));
            self.roff.control("TP", []).text([bold(key.replace('_', "-"))]);
            let words = std::mem::take(&mut words).join(" ");
            self.roff.text([roman(format!("{words} Default: {default}; possible: {least} to {most}."))]);
        }
        ensure!(words.is_empty(), "a limit has only a comment");
        Ok(())
    }
}

fn text_of(inline: &Inline) -> &str {
    match inline {
        Inline::Roman(text) | Inline::Italic(text) | Inline::Bold(text) => text,
        Inline::LineBreak => " ",
    }
}

/// Returns a text in ASCII, which every terminal shows.
fn plain(text: &str) -> Result<String> {
    let text = text.replace('\u{2026}', "...");
    ensure!(text.is_ascii(), "\"{text}\" is not ASCII");
    Ok(text)
}
