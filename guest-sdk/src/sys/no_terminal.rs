//! Tells wasi-libc that no standard stream is a terminal.
//!
//! wasi-libc's `isatty`, which every program has, asks for the terminal behind each stream. So each component would
//! import five interfaces that no plugin uses, and each run would load and link them. `guests/link.toml` replaces the
//! imports by these functions (`--wrap`, ld(1)). A plugin that is linked without this option imports the interfaces,
//! and works too.
#![allow(unsafe_code, reason = "the linker finds these functions by their names")]

// SAFETY, of all names here: programs use these names only to call the replaced functions of wasi-libc. The types are
// those of wasi-libc's `wasip2.h`. The only caller, `isatty`, reads the terminal only if the function returns `true`.

/// In place of `terminal_stdin_get_terminal_stdin`.
#[unsafe(no_mangle)]
extern "C" fn __wrap_terminal_stdin_get_terminal_stdin(_terminal: *mut i32) -> bool {
    false
}

/// In place of `terminal_stdout_get_terminal_stdout`.
#[unsafe(no_mangle)]
extern "C" fn __wrap_terminal_stdout_get_terminal_stdout(_terminal: *mut i32) -> bool {
    false
}

/// In place of `terminal_stderr_get_terminal_stderr`.
#[unsafe(no_mangle)]
extern "C" fn __wrap_terminal_stderr_get_terminal_stderr(_terminal: *mut i32) -> bool {
    false
}

/// In place of `terminal_input_terminal_input_drop_own`.
#[unsafe(no_mangle)]
extern "C" fn __wrap_terminal_input_terminal_input_drop_own(_terminal: i32) {}

/// In place of `terminal_output_terminal_output_drop_own`.
#[unsafe(no_mangle)]
extern "C" fn __wrap_terminal_output_terminal_output_drop_own(_terminal: i32) {}
