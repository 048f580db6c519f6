//! The CNI versions of a component: its own answer to VERSION. The component is asked once, in its sandbox, when it is
//! added.

use anyhow::{Context, Result, ensure};
use nix::sys::memfd::{MFdFlags, memfd_create};
use postern_cni::terminal::one_line;
use postern_cni::{Error, Json, NumericVersion, Version, VersionInfo};
use postern_gate::rehearsal::{BadEnd, Sandbox, reap, serve};
use postern_gate::{places, rehearsal};
use postern_policy::{Limits, Policy};
use postern_types::{OpError, Operation, Reply, Start, ToSandbox};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time for the answer. An interpreter needs a second on a busy node.
const WITHIN: Duration = Duration::from_secs(30);

/// The longest answer in bytes.
const LONGEST: usize = 64 << 10;

/// The most versions in an answer. The specification has seven so far.
const MOST: usize = 64;

/// The longest text of a version in bytes.
const LONGEST_VERSION: usize = 32;

/// A component's answer to VERSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The versions that this host knows, oldest first, and the texts of unknown versions.
    Versions(Vec<Version>, Vec<String>),
    /// The reason why there is no answer.
    None(String),
}

/// Runs the component's VERSION. `code` is its compiled code, `limits` are the limits of its policy. `program` is the
/// executable for a component that imports all of WASI.
///
/// No capability is granted: an operation ends the component.
///
/// # Errors
/// The answer is invalid, or no sandbox can be started.
pub fn ask(plugin: &str, code: &[u8], program: Option<&Path>, limits: &Limits) -> Result<Answer> {
    let mut file = File::from(memfd_create(c"code", MFdFlags::MFD_CLOEXEC).context("the kernel gives no memory file")?);
    file.write_all(code)?;
    let program = program.map(opened).transpose()?;
    let main = |channel, code| postern_sandbox::child::run(channel, code);
    let mut sandbox = Sandbox::start(file.into(), main, program).map_err(anyhow::Error::msg)?;
    // libcni sets the same variables.
    let variables = [
        ("CNI_COMMAND", "VERSION"),
        ("CNI_CONTAINERID", ""),
        ("CNI_NETNS", "dummy"),
        ("CNI_IFNAME", "dummy"),
        ("CNI_ARGS", ""),
        ("CNI_PATH", "dummy"),
    ];
    let start = Start {
        env: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        stdin: format!("{{\"cniVersion\":\"{}\"}}", Version::LATEST).into(),
        limits: limits.of_guest(),
    };
    let refuse = |operation: &Operation| -> Result<Result<Reply, OpError>, BadEnd> {
        Err(BadEnd::from(format!("asked for {} instead of naming its versions", operation.name())))
    };
    let ended =
        serve(ToSandbox::Start, plugin, &mut sandbox, start, Instant::now() + WITHIN.min(limits.time()), refuse);
    drop(sandbox);
    reap();
    match ended {
        Err(end) => Ok(Answer::None(end.of(plugin).to_string())),
        Ok((stdout, 0)) if stdout.trim().is_empty() => Ok(Answer::None("it printed nothing".to_owned())),
        Ok((stdout, 0)) => read(&stdout),
        Ok((stdout, _)) => Ok(Answer::None(refusal(&stdout))),
    }
}

/// Opens the executable for components that import all of WASI.
fn opened(path: &Path) -> Result<File> {
    let open = places::open_trusted(path).map_err(anyhow::Error::msg)?;
    open.with_context(|| {
        format!("{} is missing: only this program runs components that import all of WASI", path.display())
    })
}

/// Returns the words of an error object.
fn refusal(stdout: &str) -> String {
    let error = Json::parse(stdout.as_bytes(), LONGEST).and_then(|json| Error::parse(&json));
    let words = error.map_or_else(|_| stdout.chars().take(200).collect(), |error| error.to_string());
    format!("it failed: {}", one_line(&words))
}

/// Reads the answer.
fn read(stdout: &str) -> Result<Answer> {
    let wrong = |error: Error| anyhow::Error::msg(one_line(&error.to_string()));
    let json = Json::parse(stdout.as_bytes(), LONGEST).map_err(wrong)?;
    let info = VersionInfo::parse(&json).map_err(wrong)?;
    let count = info.supported.len();
    ensure!(count <= MOST, "it names {count} versions, and {MOST} are the most");
    let mut known = Vec::new();
    let mut others = Vec::new();
    for text in info.supported {
        let is_version = text.len() <= LONGEST_VERSION
            && text.split('.').count() == 3
            && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
            && NumericVersion::parse(&text).is_ok();
        let shown: String = text.chars().take(LONGEST_VERSION).collect();
        ensure!(is_version, "\"{}\" is no version", one_line(&shown));
        match Version::parse(&text) {
            Some(version) => known.push(version),
            None => others.push(text),
        }
    }
    known.sort_unstable();
    known.dedup();
    ensure!(!known.is_empty(), "it names no version that this host knows, but {}", others.join(", "));
    Ok(Answer::Versions(known, others))
}

/// Returns the texts of versions.
pub fn texts(versions: &[Version]) -> Vec<String> {
    versions.iter().map(|version| version.as_str().to_owned()).collect()
}

/// Returns the versions that a plugin supports under its policy; `None` if neither plugin nor policy names versions.
pub fn supported(policy: &Policy, named: Option<&[String]>) -> Option<Vec<String>> {
    if named.is_none() && policy.versions().is_none() {
        return None;
    }
    rehearsal::supported(policy.versions(), named).ok().map(|versions| texts(&versions))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(supported: &str) -> Result<Answer, String> {
        read(&format!(r#"{{"cniVersion":"1.1.0","supportedVersions":[{supported}]}}"#)).map_err(|e| e.to_string())
    }

    #[test]
    fn versions_are_sorted_and_those_that_are_unknown_are_set_apart() {
        let versions = answer(r#""1.1.0","99.0.0","0.3.1","1.1.0""#).unwrap();
        assert_eq!(versions, Answer::Versions(vec![Version::V0_3_1, Version::V1_1_0], vec!["99.0.0".to_owned()]));
        assert_eq!(
            read(r#"{"cniVersion":"0.2.0"}"#).unwrap(),
            Answer::Versions(vec![Version::V0_1_0, Version::V0_2_0], Vec::new())
        );
    }

    #[test]
    fn answers_that_make_no_sense() {
        for (supported, words) in [
            (r#""99.0.0""#, "it names no version that this host knows, but 99.0.0"),
            (r#""1.0""#, "\"1.0\" is no version"),
            (r#""""#, "\"\" is no version"),
            (r#""v1.0.0""#, "\"v1.0.0\" is no version"),
            (r#""1.0.-0""#, "\"1.0.-0\" is no version"),
            (r#""1.0.0\u001b[2J""#, "\"1.0.0\\u{1b}[2J\" is no version"),
            (r#""99999999999999999999.0.0""#, "is no version"),
            ("1", "cannot unmarshal number"),
            ("", "missing field supportedVersions"),
        ] {
            let error = answer(supported).unwrap_err();
            assert!(error.contains(words), "{supported}: {error}");
        }
        let many = vec![r#""1.0.0""#; 65].join(",");
        assert!(answer(&many).unwrap_err().contains("it names 65 versions, and 64 are the most"));
        let long = format!(r#""1.0.{}""#, "1".repeat(70_000));
        assert!(answer(&long).unwrap_err().contains("limit of 65536"));
    }

    #[test]
    fn an_error_is_no_answer() {
        assert_eq!(
            refusal(r#"{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}"#),
            "it failed: unknown CNI_COMMAND: VERSION"
        );
        assert_eq!(refusal("no\u{1b}"), "it failed: no\\u{1b}");
    }
}
