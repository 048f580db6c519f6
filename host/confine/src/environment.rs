//! The environment with which the runtime started the host.
#![allow(unsafe_code, reason = "changes the strings that environ(7) points to, and the list of them")]

use std::ffi::c_char;

unsafe extern "C" {
    /// environ(7).
    static mut environ: *mut *mut c_char;
}

/// Removes the variables that ask for backtraces. Installed programs have no tables for unwinding: a backtrace would be
/// empty, and glibc ends the process.
///
/// The process must have one thread.
pub fn forget_backtraces() {
    for name in ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"] {
        // SAFETY: no other thread reads or writes the environment.
        unsafe { std::env::remove_var(name) };
    }
}

/// Overwrites every variable with zeroes and empties the list. A runtime's environment can hold secrets, and an
/// attacker who breaks out of a guest could read the secrets in the sandbox process.
///
/// The process must have one thread. Copy needed variables first.
pub fn forget_environment() {
    // SAFETY: `environ` is a null-terminated array of pointers to null-terminated strings in writable memory: the
    // kernel placed them on the stack. This program keeps no reference to them, and no other thread reads them.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = *entry;
            std::ptr::write_bytes(text, 0, libc::strlen(text));
            *entry = std::ptr::null_mut();
            entry = entry.add(1);
        }
    }
}
