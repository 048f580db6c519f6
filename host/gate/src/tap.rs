//! The process that makes a tap in an SELinux context (postern-kernel, `tap_maker`).

use nix::libc;
use postern_confine::{
    Argument, CallRule, Capability, Confinement, DefaultAction, Files, Filter, NO_NEW_CODE, close_all_but,
};
pub use postern_kernel::tap::NAME;

/// What it still has to do: one request, and its own end.
static FILTER: Filter = Filter::new(&[CALLS], &[NO_NEW_CODE, REQUEST], DefaultAction::Absent);

const CALLS: &[libc::c_long] = &[
    libc::SYS_read,            // the request
    libc::SYS_write,           // the answer
    libc::SYS_close,           // any descriptor
    libc::SYS_munmap,          // memory
    libc::SYS_mremap,          // memory
    libc::SYS_madvise,         // memory
    libc::SYS_brk,             // memory
    libc::SYS_rt_sigreturn,    // the end of a signal handler
    libc::SYS_rt_sigaction,    // the end of postern-admin, which has Rust's own start
    libc::SYS_sigaltstack,     // the same
    libc::SYS_futex,           // locks of standard input and output
    libc::SYS_restart_syscall, // a wait that was interrupted
    libc::SYS_exit,            // the end
    libc::SYS_exit_group,      // the end
];

const REQUEST: &[CallRule] = &[CallRule(libc::SYS_ioctl, &[Argument::OneOf(1, &[libc::TUNSETIFF as u32])])];

/// Gives up all but making a tap, and makes the one that is asked for. Without confinement none is made.
pub fn main() {
    if confine().is_some() {
        postern_kernel::tap::make_for_another();
    }
}

fn confine() -> Option<()> {
    close_all_but(&[0, 1, 2]).ok()?;
    let confinement = Confinement {
        capabilities: vec![Capability::CAP_NET_ADMIN],
        files: Files::new([]).ok()?,
        filter: FILTER.ready().clone(),
    };
    confinement.apply().ok()
}
