//! Measurements of benchmarks: a call from its start until it is reaped, and figures of many calls.

use crate::Random;
use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;
use std::io::{Read, Write};
use std::iter::Sum;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The costs of one call and of all processes that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Wall time, in µs.
    pub wall: i64,
    /// Processor time, in µs.
    pub cpu: i64,
    /// Page faults that read no disk.
    pub faults: i64,
}

impl Sample {
    /// Returns the difference between the costs of two calls.
    #[must_use]
    pub fn beyond(self, other: Self) -> Self {
        Self { wall: self.wall - other.wall, cpu: self.cpu - other.cpu, faults: self.faults - other.faults }
    }
}

impl Sum for Sample {
    fn sum<I: Iterator<Item = Self>>(samples: I) -> Self {
        samples.fold(Self::default(), |all, one| Self {
            wall: all.wall + one.wall,
            cpu: all.cpu + one.cpu,
            faults: all.faults + one.faults,
        })
    }
}

/// A call that was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The costs of the call.
    pub sample: Sample,
    /// The standard output.
    pub stdout: String,
    /// True if the exit status was 0.
    pub succeeded: bool,
}

/// Starts a program, writes its input, and waits for its end. Its standard error is thrown away.
///
/// The processor time is the time of all children of this process. So this process may not wait for another child
/// meanwhile.
///
/// # Errors
/// The program can't be started.
pub fn timed(command: &mut Command, input: &[u8]) -> Result<Measured> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let before = children()?;
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| command.get_program().to_string_lossy().into_owned())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin may end without reading its input (VERSION).
        let _ = stdin.write_all(input);
    }
    let mut stdout = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut stdout)?;
    }
    let status = child.wait()?;
    let wall = i64::try_from(start.elapsed().as_micros())?;
    Ok(Measured { sample: Sample { wall, ..children()?.beyond(before) }, stdout, succeeded: status.success() })
}

/// Runs a program without input, and returns its standard error as well.
///
/// # Errors
/// The errors of [`timed`].
pub fn timed_with_errors(command: &mut Command) -> Result<(Measured, String)> {
    let before = children()?;
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output().context("a program that is measured")?;
    let wall = i64::try_from(start.elapsed().as_micros())?;
    let sample = Sample { wall, ..children()?.beyond(before) };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let measured = Measured { sample, stdout, succeeded: output.status.success() };
    Ok((measured, String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Returns the processor time and page faults of all ended children and of their children.
///
/// # Errors
/// The kernel returns no figures.
pub fn children() -> Result<Sample> {
    usage(UsageWho::RUSAGE_CHILDREN)
}

/// Returns the processor time and page faults of this process or of its children. The wall time is 0.
///
/// # Errors
/// The kernel returns no figures.
pub fn usage(who: UsageWho) -> Result<Sample> {
    let usage = getrusage(who)?;
    let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Sample { wall: 0, cpu, faults: usage.minor_page_faults() })
}

/// Returns a percentile, or NaN if there are no values.
#[must_use]
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) * percent / 100).copied().unwrap_or(f64::NAN)
}

/// Returns the 95 % confidence interval of a figure of rounds, by bootstrap: the figure is computed for many random
/// choices of the same number of rounds.
pub fn interval<T: Clone>(rounds: &[T], figure: impl Fn(&[T]) -> f64) -> [f64; 2] {
    /// The number of random choices.
    const CHOICES: usize = 1000;
    let mut random = Random::new(1);
    let figures: Vec<f64> = (0..CHOICES)
        .map(|_| {
            let choose = |_| rounds.get(random.index(rounds.len())).cloned();
            figure(&(0..rounds.len()).filter_map(choose).collect::<Vec<_>>())
        })
        .collect();
    [percentile(&figures, 2), percentile(&figures, 97)]
}
