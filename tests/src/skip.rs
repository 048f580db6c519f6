//! A test that can't run here says so: `tests/suite` counts such tests by their reason, and not as passed.

use std::io::{Write, stdout};

/// Says why this test does not run here.
pub fn skip(reason: &str) {
    say("", reason);
}

/// Says why one part of this test does not run here. The other parts run, so the test also counts as passed.
pub fn skip_part(part: &str, reason: &str) {
    say(&format!(" ({part})"), reason);
}

fn say(part: &str, reason: &str) {
    let thread = std::thread::current();
    // `stdout()` avoids the test harness's capture, which hides the output of a test that passes.
    let _ = writeln!(stdout(), "SKIPPED: {}{part}: {reason}", thread.name().unwrap_or("test"));
}
