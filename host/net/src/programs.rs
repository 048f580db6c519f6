//! Plugins as programs, executed as libcni executes them.

use crate::runtime::Plugins;
use crate::{Attachment, Verb};
use postern_cni::{Error, Json, code, quote};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

/// The greatest size of an error object in bytes.
const LIMIT: usize = 1 << 20;

/// The number of attempts to start a program that is being written. One second passes between two attempts.
const TRIES: usize = 6;

/// The programs in directories.
#[derive(Clone, Debug)]
pub struct Programs {
    directories: Vec<PathBuf>,
}

impl Programs {
    /// Takes the directories of `CNI_PATH`, separated by colons. The first directory with a program counts.
    pub fn of_path(path: &str) -> Self {
        Self { directories: path.split(':').filter(|one| !one.is_empty()).map(PathBuf::from).collect() }
    }

    /// Returns the directories, in the order in which they are searched.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Returns the directories as one text, for `CNI_PATH`.
    pub fn path(&self) -> String {
        let directories: Vec<_> = self.directories.iter().map(|one| one.to_string_lossy()).collect();
        directories.join(":")
    }

    /// Finds the program of a plugin.
    ///
    /// # Errors
    /// Code 999, in libcni's words: no directory has the program, or the name is invalid.
    pub fn find(&self, name: &str) -> Result<PathBuf, Error> {
        let refused = if name.is_empty() {
            "no plugin name provided".to_owned()
        } else if name.contains('/') {
            format!("invalid plugin name: {name}")
        } else if self.directories.is_empty() {
            "no paths provided".to_owned()
        } else {
            let mut candidates = self.directories.iter().map(|directory| directory.join(name));
            match candidates.find(|path| path.is_file()) {
                Some(path) => return Ok(path),
                None => format!("failed to find plugin {} in path [{}]", quote(name), self.path().replace(':', " ")),
            }
        };
        Err(Error::internal(refused))
    }

    /// Returns the variables that a plugin gets in addition to the variables of this process.
    pub fn variables(&self, verb: Verb, attachment: Option<&Attachment>) -> [(&'static str, String); 6] {
        let attachment = attachment.cloned().unwrap_or_default();
        [
            ("CNI_COMMAND", verb.as_str().to_owned()),
            ("CNI_ARGS", attachment.args_text()),
            ("CNI_CONTAINERID", attachment.container_id),
            ("CNI_NETNS", attachment.netns),
            ("CNI_IFNAME", attachment.ifname),
            ("CNI_PATH", self.path()),
        ]
    }

    fn start(&self, program: &PathBuf, verb: Verb, attachment: Option<&Attachment>) -> Result<Child, Error> {
        let mut command = Command::new(program);
        command
            .envs(self.variables(verb, attachment))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tries = 1;
        loop {
            match command.spawn() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < TRIES => {
                    tries += 1;
                    sleep(Duration::from_secs(1));
                }
                Err(error) => {
                    let path = program.display();
                    let message = format!("netplugin failed with no error message: fork/exec {path}: {error}");
                    return Err(Error::new(code::UNKNOWN, message));
                }
                Ok(child) => return Ok(child),
            }
        }
    }
}

impl Plugins for Programs {
    fn run(&self, name: &str, verb: Verb, attachment: Option<&Attachment>, input: &[u8]) -> Result<Vec<u8>, Error> {
        let program = self.find(name)?;
        let mut child = self.start(&program, verb, attachment)?;
        let stdin = child.stdin.take();
        let output = thread::scope(|scope| {
            // A plugin may answer before it has read everything, or without reading.
            let write = move || stdin.map(|mut stdin| stdin.write_all(input));
            let writer = thread::Builder::new().spawn_scoped(scope, write);
            // If no writer could be started, the plugin reads an empty configuration, and ends too.
            let output = child.wait_with_output();
            let failed = |what: &str, error| {
                Error::new(code::IO_FAILURE, format!("cannot {what} {}: {error}", program.display()))
            };
            writer.map_err(|error| failed("write to", error))?;
            output.map_err(|error| failed("read from", error))
        })?;
        answer(output.status, output.stdout, &output.stderr)
    }
}

/// Returns the answer of a plugin that has ended. The plugin's standard error after a success goes to this program's
/// standard error, for people.
///
/// # Errors
/// The plugin's own error, or libcni's words.
pub fn answer(status: ExitStatus, stdout: Vec<u8>, stderr: &[u8]) -> Result<Vec<u8>, Error> {
    if !status.success() {
        return Err(failure(status, &stdout, stderr));
    }
    let _ = std::io::stderr().write_all(stderr);
    Ok(stdout)
}

/// Returns the error of a plugin that failed: its own error, or an error in libcni's words.
fn failure(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Error {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if !stdout.is_empty() {
        let parsed = Json::parse(stdout, LIMIT).and_then(|json| Error::parse(&json));
        return parsed.unwrap_or_else(|error| {
            let stdout = quote(&text(stdout));
            let message = format!("netplugin failed but error parsing its diagnostic message {stdout}: {error}");
            Error::new(code::UNKNOWN, message)
        });
    }
    let message = match (stderr.is_empty(), status.code()) {
        (false, _) => format!("netplugin failed: {}", quote(&text(stderr))),
        (true, Some(code)) => format!("netplugin failed with no error message: exit status {code}"),
        (true, None) => format!("netplugin failed with no error message: {status}"),
    };
    Error::new(code::UNKNOWN, message)
}
