//! One line on standard error about work that takes longer than two seconds. It is for terminals only, and is gone when the
//! work is done.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Work that takes less time needs no line.
const SHORT: Duration = Duration::from_secs(2);

/// The time between two changes of the line.
const PAUSE: Duration = Duration::from_secs(1);

/// Does the work. If it takes long, a line says what is done, and since when.
///
/// The work may start processes, but must not print, and must not need a process with one thread.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let stderr = std::io::stderr();
    if !stderr.is_terminal() {
        return work();
    }
    let (working, done) = channel::<()>();
    thread::scope(|scope| {
        // Without a thread, there is only no line.
        let _ = thread::Builder::new().spawn_scoped(scope, || watch(what, done, &mut std::io::stderr()));
        let result = work();
        drop(working);
        result
    })
}

/// Writes the line until the other end of the channel is gone.
fn watch(what: &str, done: Receiver<()>, out: &mut impl Write) {
    let began = Instant::now();
    let (mut pause, mut width) = (SHORT, 0);
    while done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let line = super::one_line(&format!("postern: {what}: {} s", began.elapsed().as_secs()));
        let line: String = line.chars().take(super::WIDTH - 1).collect();
        width = line.chars().count();
        let _ = write!(out, "\r{line}").and_then(|()| out.flush());
        pause = PAUSE;
    }
    if width > 0 {
        // Spaces work on every terminal.
        let _ = write!(out, "\r{:width$}\r", "").and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_has_no_line_and_a_line_is_erased() {
        let watched = |time: Duration| {
            let (working, done) = channel::<()>();
            let watcher = thread::spawn(move || {
                let mut written = Vec::new();
                watch("compiling x", done, &mut written);
                String::from_utf8(written).unwrap()
            });
            thread::sleep(time);
            drop(working);
            watcher.join().unwrap()
        };
        assert_eq!(watched(Duration::from_millis(50)), "");
        assert_eq!(watched(Duration::from_millis(2500)), format!("\rpostern: compiling x: 2 s\r{:25}\r", ""));
    }
}
