//! The manual's pages and the completions for shells, from the same table as the help. Packages bring them
//! (`packages/stage`). Pages of files, such as postern-policy(5), are made of the documentation: `cargo xtask manual`.

use crate::install::files;
use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::{Man, roff};
use std::fs;
use std::path::Path;

/// The section of commands for administrators: most verbs need root.
const SECTION: &str = "8";

/// The command's name.
const NAME: &str = "postern";

/// Writes the pages to `man/man8`, and the completions to `completions`, below a directory. `date` is the day on each page.
///
/// # Errors
/// A file can't be written.
pub fn write(command: &Command, directory: &Path, date: &str) -> Result<()> {
    let (pages, completions) = (directory.join("man/man8"), directory.join("completions"));
    files::make_directory(&pages)?;
    files::make_directory(&completions)?;
    let mut offered = offered(command);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut offered, NAME, &completions)
            .with_context(|| completions.display().to_string())?;
    }
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &pages, date)
}

/// Returns the verbs and options that a shell offers: those of the help.
fn offered(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(offered);
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_version_flag(true)
        .args(arguments)
        .subcommands(verbs)
}

/// Writes the page of a command, and the pages of its verbs.
fn write_pages(command: &Command, directory: &Path, date: &str) -> Result<()> {
    let man = Man::new(named(command))
        .section(SECTION)
        .date(date)
        .source(format!("{NAME} {}", env!("CARGO_PKG_VERSION")))
        .manual("Postern");
    let file = directory.join(man.get_filename());
    let mut page = Vec::new();
    man.render(&mut page)?;
    page.extend_from_slice(see_also(command).to_roff().as_bytes());
    let page = String::from_utf8(page)?;
    // An empty line of a help's text begins a paragraph.
    let page: String =
        page.lines().map(|line| if line.is_empty() { ".sp\n".to_owned() } else { format!("{line}\n") }).collect();
    fs::write(&file, page).with_context(|| file.display().to_string())?;
    let mut verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs.try_for_each(|verb| write_pages(verb, directory, date))
}

/// Returns the command with one sentence beside its name, as `whatis` shows it.
fn named(command: &Command) -> Command {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let sentence = about.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned();
    let whole = command.get_long_about().map(ToString::to_string).unwrap_or(about);
    command.clone().about(sentence).long_about(whole)
}

/// Returns the section with other pages: the page above this page, or the pages of files.
fn see_also(command: &Command) -> roff::Roff {
    let name = command.get_display_name().unwrap_or(NAME);
    let others = match name.rsplit_once('-') {
        Some((above, _)) => vec![format!("{above}({SECTION})")],
        None => vec!["postern-policy(5)".to_owned(), "postern-node.toml(5)".to_owned()],
    };
    let mut section = roff::Roff::new();
    section.control("SH", ["SEE ALSO"]).text([roff::roman(others.join(", "))]);
    section
}
