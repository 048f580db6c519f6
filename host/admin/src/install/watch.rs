//! `postern install --watch` stays after the installation. It puts a plugin's file back that another installer overwrote
//! or removed. Two installers that replace each other's files would never end, so each file is put back three times at most.

use super::bin_dir::{self, Found, Placement};
use super::{Installation, Options, files, installation};
use crate::output;
use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The number of times that a file is put back.
const TIMES: usize = 3;

/// The exit status after another installer has changed a file once more.
const GIVEN_UP: u8 = 3;

/// The pause after a change. An installer changes several files, and each of them in several steps.
const SETTLED: Duration = Duration::from_millis(200);

/// The options of `postern install`.
#[derive(Debug, clap::Args)]
pub struct Install {
    #[command(flatten)]
    options: Options,
    /// Stay after the installation, and put plugins' files back that another installer overwrote or removed.
    ///
    /// Each change is a metric on standard output, in Prometheus' text form, and a sentence on standard error. A file is put
    /// back three times at most. After the fourth change the other installer's files stay, also after the next `install
    /// --watch`; an `install` without --watch replaces them.
    ///
    /// Exit status: 0 ended by SIGTERM or SIGINT; 1 error, or another command removed the installation; 3 another installer
    /// changed a file for the fourth time.
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
    /// With --watch: the seconds between two looks at the files, if the kernel reports no change.
    #[arg(long, value_name = "SECONDS", requires = "watch", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86400))]
    interval: u32,
}

/// Installs a build, and stays if the caller wants so.
///
/// # Errors
/// As for an installation without --watch. Or a file can't be put back.
pub fn install(options: &Install) -> Result<ExitCode> {
    let installation = installation(&options.options)?;
    if !options.watch {
        installation.carry_out(&options.options)?;
        if !options.options.dry_run {
            installation.layout.note_given_up(&[])?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut watch = Watch::of(&installation, Duration::from_secs(options.interval.into()))?;
    let before = installation.layout.given_up();
    let is_other = |file: &&WatchedFile| before.contains(&file.path()) && !file.is_placed(&installation);
    let others: Vec<&WatchedFile> = watch.files.iter().filter(is_other).collect();
    if !others.is_empty() {
        give_up(&installation, &others);
        return Ok(ExitCode::from(GIVEN_UP));
    }
    installation.carry_out(&options.options)?;
    installation.layout.note_given_up(&[])?;
    watch.run()
}

/// A plugin's file in a CNI bin directory.
struct WatchedFile {
    /// The directory, without DESTDIR.
    bin: PathBuf,
    plugin: String,
    changes: Vec<Change>,
}

/// A change of a plugin's file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Overwritten,
    Removed,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Overwritten => "overwritten",
            Self::Removed => "removed",
        }
    }
}

impl WatchedFile {
    /// Returns the path, without DESTDIR.
    fn path(&self) -> PathBuf {
        self.bin.join(&self.plugin)
    }

    fn is_placed(&self, installation: &Installation<'_>) -> bool {
        bin_dir::is_placed(&installation.place.real(&self.path()), &installation.host, &self.plugin)
    }

    /// Prints the number of such changes of this file.
    fn count(&self, change: Change) -> Result<()> {
        let label = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let count = self.changes.iter().filter(|other| **other == change).count();
        output::text(&output::whole(&format!(
            "postern_plugin_file_changes_total{{directory=\"{}\",plugin=\"{}\",change=\"{}\"}} {count}",
            label(&self.bin.to_string_lossy()),
            label(&self.plugin),
            change.word()
        )))
    }

    /// Puts the file back. A file of the other installer is kept.
    fn put_back(&self, installation: &Installation<'_>) -> Result<()> {
        let bin = installation.place.real(&self.bin);
        let kept = Placement::prepare(&bin, &installation.host, &self.plugin)?.commit()?;
        // The name as the node knows it, without DESTDIR.
        let kept = kept.map(|kept| self.bin.join(kept.file_name().unwrap_or_default()));
        let kept = kept.map(|kept| format!("; the other file is kept as {}", kept.display())).unwrap_or_default();
        let (path, word) = (self.path(), self.changes.last().map_or("changed", |change| change.word()));
        let number = self.changes.len();
        output::say(format!("{} was {word}, and is put back ({number} of {TIMES}){kept}", path.display()));
        Ok(())
    }

    /// Returns the path, with the object that is there now.
    fn words(&self, installation: &Installation<'_>) -> String {
        let real = installation.place.real(&self.path());
        let what = match Found::at(&real) {
            Found::Nothing => "removed".to_owned(),
            Found::Directory => "a directory".to_owned(),
            Found::File(file) if file.host == installation.host => "changed".to_owned(),
            Found::File(file) => format!("of the postern at {}", file.host.display()),
            Found::Link(target) => format!("a link to {}", target.display()),
            Found::Copy => "a copy of another postern".to_owned(),
            Found::Foreign => match real.symlink_metadata() {
                Ok(meta) => format!(
                    "another program, {}",
                    output::count(meta.len().try_into().unwrap_or(usize::MAX), "byte", "bytes")
                ),
                Err(error) => error.to_string(),
            },
        };
        format!("{} ({what})", self.path().display())
    }
}

/// A process that stays after an installation.
struct Watch<'a> {
    installation: &'a Installation<'a>,
    files: Vec<WatchedFile>,
    stops: Stops,
    /// The kernel's notices. Without them, the interval is the only reason to look.
    notices: Option<Inotify>,
    interval: Duration,
}

impl<'a> Watch<'a> {
    fn of(installation: &'a Installation<'a>, interval: Duration) -> Result<Self> {
        let file = |(bin, plugin): (&Path, &str)| WatchedFile {
            bin: bin.to_owned(),
            plugin: plugin.to_owned(),
            changes: Vec::new(),
        };
        let files = installation.files().map(file).collect();
        let notices = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        if let Err(reason) = notices {
            output::say(format!(
                "the kernel reports no changes of files ({reason}): the files are looked at every {} s",
                interval.as_secs()
            ));
        }
        Ok(Self { installation, files, stops: Stops::new()?, notices: notices.ok(), interval })
    }

    fn run(&mut self) -> Result<ExitCode> {
        loop {
            // A change after this line ends the next wait. A directory may have been replaced, so each turn asks anew.
            self.ask_for_notices();
            if !self.look()? {
                return Ok(ExitCode::from(GIVEN_UP));
            }
            if !self.wait()? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    fn ask_for_notices(&self) {
        let changes = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        for bin in &self.installation.bins {
            // A missing directory is found by the look.
            let _ = self.notices.as_ref().map(|notices| notices.add_watch(&self.installation.place.real(bin), changes));
        }
    }

    /// Looks at all files, and puts back those that were changed. Returns false if one was changed too often.
    fn look(&mut self) -> Result<bool> {
        let installation = self.installation;
        if self.files.iter().all(|file| file.is_placed(installation)) {
            return Ok(true);
        }
        let layout = &installation.layout;
        let gone = || format!("another command removed the installation in {}", layout.directory().display());
        ensure!(layout.directory().is_dir(), gone());
        // Another installation or a removal of Postern ends first.
        let _lock = files::lock(layout.directory())?;
        ensure!(layout.host().exists(), gone());
        let bins = layout.bins();
        let mut others = Vec::new();
        for file in &mut self.files {
            ensure!(bins.contains(&file.bin), "another command removed the plugins from {}", file.bin.display());
            if file.is_placed(installation) {
                continue;
            }
            let is_there = installation.place.real(&file.path()).symlink_metadata().is_ok();
            let change = if is_there { Change::Overwritten } else { Change::Removed };
            file.changes.push(change);
            file.count(change)?;
            match file.changes.len() > TIMES {
                true => others.push(&*file),
                false => file.put_back(installation)?,
            }
        }
        let paths: Vec<PathBuf> = others.iter().map(|file| file.path()).collect();
        if !others.is_empty() {
            layout.note_given_up(&paths)?;
            give_up(installation, &others);
        }
        Ok(others.is_empty())
    }

    /// Waits for changes, or for the end of the interval. Returns false if a signal ends the watch.
    fn wait(&self) -> Result<bool> {
        let end = Instant::now() + self.interval;
        let mut pause = self.interval;
        loop {
            if self.stops.came(self.notices.as_ref(), pause)? {
                return Ok(false);
            }
            let is_changed = self.notices.as_ref().is_some_and(|notices| notices.read_events().is_ok());
            let left = end.saturating_duration_since(Instant::now());
            if !is_changed || left.is_zero() {
                return Ok(true);
            }
            pause = SETTLED.min(left);
        }
    }
}

/// Names the files that another installer changed too often, and the way out.
fn give_up(installation: &Installation<'_>, others: &[&WatchedFile]) {
    let words: Vec<String> = others.iter().map(|file| file.words(installation)).collect();
    output::say(format!(
        "another installer changed these files after they were put back {TIMES} times, and they stay as they are: {}. End that \
         installer, or let it leave out these plugins; then `postern install` without --watch replaces the files",
        words.join(", ")
    ));
}

/// The signals that end this process. The first process of a container gets no signal that it does not ask for.
pub struct Stops(SignalFd);

impl Stops {
    /// Takes the signals from now on.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> Result<Self> {
        let stops = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
        stops.thread_block().context("cannot take signals")?;
        let stops = SignalFd::with_flags(&stops, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        Ok(Self(stops.context("cannot take signals")?))
    }

    /// Waits for a signal.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait(&self) -> Result<()> {
        while !self.came(None, Duration::from_secs(3600))? {}
        Ok(())
    }

    /// Waits for a signal, a notice, or the end of the pause. Returns true if a signal came.
    fn came(&self, notices: Option<&Inotify>, pause: Duration) -> Result<bool> {
        let mut sources = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        sources.extend(notices.map(|notices| PollFd::new(notices.as_fd(), PollFlags::POLLIN)));
        match poll(&mut sources, PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => Ok(sources.first().and_then(PollFd::any).unwrap_or(false)),
            Err(errno) => Err(errno).context("cannot wait for changes"),
        }
    }
}
