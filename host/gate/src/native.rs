//! Native plugins of `CNI_PATH`, run as the specification asks ("Section 4: Plugin Delegation").

use crate::places;
use crate::session::Session;
use postern_cni::{CniResult, Error, Json, Verb, code};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a delegate may print.
const LIMIT: usize = 1 << 20;

/// Looks a plugin up in the directories of `CNI_PATH`: the first regular file of that name.
///
/// # Errors
/// Code 999, the native library's text.
pub fn find(name: &str, path: &str) -> Result<PathBuf, Error> {
    let directories: Vec<&str> = path.split(':').filter(|directory| !directory.is_empty()).collect();
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    for directory in &directories {
        let candidate = Path::new(directory).join(name);
        if candidate.is_file() {
            // It gets all privileges of this process.
            places::trust(&candidate).map_err(Error::internal)?;
            // Our own link for a plugin that is not in the catalog would only call itself.
            if std::fs::canonicalize(&candidate).is_ok_and(|real| real == own) {
                continue;
            }
            return Ok(candidate);
        }
    }
    Err(Error::internal(format!("failed to find plugin \"{name}\" in path [{}]", directories.join(" "))))
}

/// Runs a delegate: this process's environment with the verb replaced, and the attachment's standard input unchanged.
///
/// # Errors
/// The delegate's own error object; code 0 if it failed without one; code 999 if it can't be understood.
pub fn run(program: &Path, session: &Session, verb: Verb) -> Result<Option<CniResult>, Error> {
    let unstartable = |e: &std::io::Error| {
        Error::new(
            code::UNKNOWN,
            format!("netplugin failed with no error message: fork/exec {}: {e}", program.display()),
        )
    };
    let mut child = Command::new(program)
        .env("CNI_COMMAND", verb.as_str())
        // The same as in the environment already, but for garbage collection, which speaks for others.
        .env("CNI_CONTAINERID", &session.request.container_id)
        .env("CNI_IFNAME", &session.request.ifname)
        .env("CNI_NETNS", &session.request.netns)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| unstartable(&e))?;
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let input = session.request.stdin.clone();
    // A delegate that doesn't read, or fills one pipe while we wait at the other, must not block the run.
    let writer = std::thread::spawn(move || {
        if let Some(pipe) = stdin.as_mut() {
            let _ = pipe.write_all(input.as_bytes());
        }
    });
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                let _ = pipe.take(LIMIT as u64 + 1).read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let stdout = reader(stdout.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let stderr = reader(stderr.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let status = wait(&mut child, session.deadline).map_err(|reason| {
        let _ = child.kill();
        let _ = child.wait();
        Error::internal(format!("native plugin {}: {reason}", program.display()))
    })?;
    let _ = writer.join();
    let stdout = stdout.join().unwrap_or_default();
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap_or_default()).into_owned();
    if !status.success() {
        return Err(failure(&stdout, &stderr, status));
    }
    eprint!("{stderr}");
    match verb {
        Verb::Add => CniResult::parse_output(&stdout, LIMIT, &session.request.conf.cni_version).map(Some),
        _ => Ok(None),
    }
}

fn wait(child: &mut Child, deadline: Instant) -> Result<ExitStatus, String> {
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() >= deadline => return Err("ran past the deadline and was killed".to_owned()),
            Ok(None) => std::thread::sleep(pause),
            Err(e) => return Err(e.to_string()),
        }
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// What the native library makes of a delegate that failed.
fn failure(stdout: &[u8], stderr: &str, status: ExitStatus) -> Error {
    if stdout.is_empty() {
        let status = status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"));
        return Error::new(
            code::UNKNOWN,
            if stderr.is_empty() {
                format!("netplugin failed with no error message: {status}")
            } else {
                format!("netplugin failed: {stderr:?}")
            },
        );
    }
    let parsed = Json::parse(stdout, LIMIT).and_then(|json| Error::parse(&json));
    parsed.unwrap_or_else(|error| {
        let text = String::from_utf8_lossy(stdout);
        Error::new(
            code::UNKNOWN,
            format!("netplugin failed but error parsing its diagnostic message {text:?}: {error}"),
        )
    })
}
