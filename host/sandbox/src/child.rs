//! The sandbox process, from fork to exit.
#![allow(unsafe_code, reason = "getrandom(2)")]

use crate::confine::{DATA, confine};
use crate::{CallReceiver, Guest, GuestOutcome, seal};
use postern_confine::{end_process, processor};
use postern_heap as heap;
use postern_types::channel::{ChannelError, receive_in_sandbox, send};
use postern_types::{ErrorCode, FromSandbox, OpError, Operation, Reply, ToSandbox};
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::Arc;

/// Runs one plugin in this process, and ends the process. The process must be a fresh fork of a process with a single
/// thread.
///
/// `channel` is one end of a pair of sockets (`postern_types::channel::pair`). The gate has the other end, and uses the
/// protocol of `postern_types::channel`. `code` is an open file of precompiled code. The caller has verified that only
/// root (or the user that the process runs as) can have written it.
///
/// The process first gives up all privileges, loads the plugin, waits for [`postern_types::Start`], runs the plugin and
/// sends the outcome. Then it waits for the next `Start`, because a confined gate can't make another process. After the
/// last `Start` it ends at once. If the channel breaks, the process exits without a message. It does not measure time:
/// the gate kills the process at the deadline.
pub fn run(channel: OwnedFd, code: OwnedFd) -> ! {
    serve(channel, code, || {}, Guest::load)
}

/// Works as [`run`], for a component that needs all of WASI. This WASI has no real files and sockets. The process was
/// started for this component.
#[cfg(feature = "wasi")]
pub fn run_whole(channel: OwnedFd, code: OwnedFd) -> ! {
    serve(channel, code, crate::full_wasi::make_ready, Guest::load_whole)
}

/// The function that loads a guest.
type Load = fn(OwnedFd) -> wasmtime::Result<Guest>;

fn serve(channel: OwnedFd, code: OwnedFd, make_ready: fn(), load: Load) -> ! {
    let channel = Arc::new(UnixStream::from(channel));
    report_panics(Arc::clone(&channel));
    make_ready();
    let guest = match prepare(&channel, code, load) {
        Ok(guest) => guest,
        Err(last) => finish(&channel, &last),
    };
    // The last run, with its memory. The memory is freed only if another run follows, because unmapping takes time.
    let mut before = None;
    loop {
        let (start, is_last) = match receive_in_sandbox(&channel, None) {
            Ok(ToSandbox::Start(start)) => (start, false),
            Ok(ToSandbox::StartLast(start)) => (start, true),
            Ok(ToSandbox::Answer(_)) => finish(&channel, &FromSandbox::Failed("an answer without a call".to_owned())),
            Err(_) => exit(),
        };
        drop(before.take());
        let ended = guest.run(start, Box::new(Line(Arc::clone(&channel))));
        tell(
            &channel,
            &match &ended.outcome {
                GuestOutcome::Finished { stdout, status } => {
                    FromSandbox::Finished { stdout: stdout.clone(), status: *status }
                }
                GuestOutcome::Failed(reason) => FromSandbox::Failed(reason.clone()),
            },
        );
        if is_last {
            exit();
        }
        before = Some(ended);
    }
}

/// Prepares the guest. An error is the last message of the process.
fn prepare(channel: &UnixStream, code: OwnedFd, load: Load) -> Result<Guest, FromSandbox> {
    let unconfined = |error: &dyn Display| FromSandbox::Failed(format!("cannot confine the sandbox: {error}"));
    confine(channel.as_fd(), code.as_fd()).map_err(|error| unconfined(&error))?;
    if !heap::is_used() {
        return Err(unconfined(&"this executable does not allocate from postern_sandbox::Heap"));
    }
    heap::prepare_for_sealing(DATA as usize).map_err(|error| unconfined(&error))?;
    // Newer C libraries map memory at the first request of random numbers. SAFETY: this call requests no bytes.
    unsafe { libc::getrandom(std::ptr::null_mut(), 0, 0) };
    let guest = load(code).map_err(|error| FromSandbox::Unloadable(format!("{error:#}")))?;
    processor::pin();
    seal().map_err(|error| unconfined(&error))?;
    Ok(guest)
}

/// The gate at the other end of the channel.
struct Line(Arc<UnixStream>);

impl CallReceiver for Line {
    fn call(&mut self, operation: Operation) -> Result<Reply, OpError> {
        let name = operation.name();
        match send(&self.0, &FromSandbox::Call(operation), None) {
            Ok(()) => {}
            Err(error @ ChannelError::TooLarge(_)) => {
                let mut error = OpError::new(ErrorCode::InvalidArgument, "", error.to_string());
                error.operation = name.to_owned();
                return Err(error);
            }
            Err(_) => exit(),
        }
        match receive_in_sandbox(&self.0, None) {
            Ok(ToSandbox::Answer(answer)) => answer,
            Ok(ToSandbox::Start(_) | ToSandbox::StartLast(_)) | Err(_) => exit(),
        }
    }

    fn stderr(&mut self, text: String) {
        if send(&self.0, &FromSandbox::Stderr(text), None).is_err() {
            exit();
        }
    }
}

/// Sends the outcome of a run. If the gate is gone, the process ends when it waits for the next message.
fn tell(channel: &UnixStream, last: &FromSandbox) {
    if let Err(ChannelError::TooLarge(size)) = send(channel, last, None) {
        let reason = format!("wrote too much to standard output: {size} bytes as JSON");
        // If this message fails too, the gate sees only the end of the process.
        let _ = send(channel, &FromSandbox::Failed(reason), None);
    }
}

fn finish(channel: &UnixStream, last: &FromSandbox) -> ! {
    tell(channel, last);
    exit()
}

/// Sends a panic of this process's own code to the gate, because there is no standard error.
fn report_panics(channel: Arc<UnixStream>) {
    panic::set_hook(Box::new(move |panic| {
        finish(&channel, &FromSandbox::Failed(format!("the sandbox panicked: {panic}")));
    }));
}

/// Ends the process without cleanup, because unmapping takes time.
fn exit() -> ! {
    end_process(0)
}
