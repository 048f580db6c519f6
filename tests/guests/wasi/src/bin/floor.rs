//! Tries the WASI imports that every command has, and prints the results. Each implementation must give the same
//! results.
//!
//! `CNI_ARGS` names the import to try.

#[cfg(target_os = "wasi")]
mod floor {
    use std::fmt::Write;
    use wasip2::cli::{environment, stderr, stdin, stdout, terminal_stderr, terminal_stdin, terminal_stdout};
    use wasip2::io::poll::poll;
    use wasip2::io::streams::{InputStream, StreamError};
    use wasip2::random::{insecure, insecure_seed, random};

    pub fn run(what: &str) -> Result<(), ()> {
        let text = match what {
            "environment" => environment(),
            "input" => input(),
            "output" => output(),
            "poll" => ready(),
            "random" => numbers(),
            "exit-0" => exit(Ok(())),
            "exit-1" => exit(Err(())),
            "fail" => return Err(()),
            "trap" => std::process::abort(),
            "poll-nothing" => format!("{:?}", poll(&[])),
            "zeroes" => format!("{:?}", stdout::get_stdout().write_zeroes(1 << 40)),
            "flood" => flood(),
            other => format!("there is no {other}"),
        };
        println!("{text}");
        Ok(())
    }

    fn exit(status: Result<(), ()>) -> String {
        wasip2::cli::exit::exit(status);
        "not ended".to_owned()
    }

    fn environment() -> String {
        format!(
            "{:?} {:?} {:?} {} {} {}",
            environment::get_environment(),
            environment::get_arguments(),
            environment::initial_cwd(),
            terminal_stdin::get_terminal_stdin().is_some(),
            terminal_stdout::get_terminal_stdout().is_some(),
            terminal_stderr::get_terminal_stderr().is_some(),
        )
    }

    fn shown<T: std::fmt::Debug>(answer: &Result<T, StreamError>) -> String {
        match answer {
            Ok(value) => format!("{value:?}"),
            Err(StreamError::Closed) => "closed".to_owned(),
            Err(StreamError::LastOperationFailed(_)) => "failed".to_owned(),
        }
    }

    /// Several handles of one input share its read position.
    fn input() -> String {
        let (one, two) = (stdin::get_stdin(), stdin::get_stdin());
        let read = |from: &InputStream, length| shown(&from.read(length));
        let mut text = format!(
            "{} {} {} {} {} ",
            read(&one, 0),
            read(&one, 3),
            shown(&two.skip(2)),
            shown(&two.blocking_read(5)),
            shown(&one.blocking_skip(1)),
        );
        let pollable = one.subscribe();
        pollable.block();
        let _ = write!(text, "{} {:?} ", pollable.ready(), poll(&[&pollable]));
        drop(pollable);
        let mut rest = 0;
        while let Ok(bytes) = one.blocking_read(1 << 20) {
            rest += bytes.len();
        }
        let _ = write!(text, "{rest} {} {} {}", read(&two, 1), shown(&one.skip(1)), shown(&two.blocking_read(1)));
        text
    }

    fn output() -> String {
        let (out, error) = (stdout::get_stdout(), stderr::get_stderr());
        let room = matches!(out.check_write(), Ok(1..));
        let mut text = format!(
            "{room} {} {} {} {} ",
            shown(&out.write(b"written ")),
            shown(&out.flush()),
            shown(&out.blocking_write_and_flush(b"and flushed ")),
            shown(&out.write(b"")),
        );
        out.subscribe().block();
        let _ = write!(text, "{:?} {} ", out.check_write().is_ok(), shown(&out.write_zeroes(3)));
        let _ = write!(text, "{} ", shown(&out.blocking_write_zeroes_and_flush(2)));
        let _ = write!(text, "{} ", shown(&out.splice(&stdin::get_stdin(), 4)));
        let _ = write!(text, "{} ", shown(&out.blocking_splice(&stdin::get_stdin(), 2)));
        let _ = write!(text, "{}", shown(&error.blocking_write_and_flush(b"to standard error\n")));
        eprintln!("and by the library");
        text
    }

    fn ready() -> String {
        let (input, output) = (stdin::get_stdin(), stdout::get_stdout());
        let pollables = [input.subscribe(), output.subscribe(), input.subscribe()];
        let [first, second, third] = &pollables;
        // No specification gives the order.
        let mut all = poll(&[first, second, third, first]);
        all.sort_unstable();
        format!("{all:?} {:?} {}", poll(&[second]), third.ready())
    }

    fn numbers() -> String {
        let lengths = [0, 1, 32, 1000, 60_000].map(|length| random::get_random_bytes(length).len());
        let insecure = [0, 1, 300].map(|length| insecure::get_insecure_random_bytes(length).len());
        let differ = random::get_random_bytes(16) != random::get_random_bytes(16)
            && random::get_random_u64() != random::get_random_u64()
            && insecure::get_insecure_random_u64() != insecure::get_insecure_random_u64()
            && insecure::get_insecure_random_bytes(16) != insecure::get_insecure_random_bytes(16);
        format!("{lengths:?} {insecure:?} {differ} {}", insecure_seed::insecure_seed() == (0, 0))
    }

    fn flood() -> String {
        let (out, error) = (stdout::get_stdout(), stderr::get_stderr());
        for _ in 0..64 {
            let _ = error.blocking_write_and_flush(&[b'e'; 4096]);
        }
        for _ in 0..1024 {
            let _ = out.blocking_write_and_flush(&[b'x'; 4096]);
        }
        "not ended".to_owned()
    }
}

#[cfg(target_os = "wasi")]
fn main() -> std::process::ExitCode {
    match floor::run(&std::env::var("CNI_ARGS").unwrap_or_default()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(()) => std::process::ExitCode::FAILURE,
    }
}

/// This program is only for the sandbox.
#[cfg(not(target_os = "wasi"))]
fn main() {}
