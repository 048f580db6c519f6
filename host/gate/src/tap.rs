//! The process that makes a tap in an SELinux context (postern-kernel, `tap_maker`).

use nix::libc;
use postern_confine::{
    Argument, COMMON, CallRule, CapabilitySet, Confinement, DefaultAction, Files, Filter, NO_NEW_CODE, close_all_but,
};
pub use postern_kernel::tap::NAME;

/// The system calls that the process still needs: for one request, and for its own end.
static FILTER: Filter = Filter::new(&[COMMON, CALLS], &[NO_NEW_CODE, REQUEST], DefaultAction::Absent);

const CALLS: &[libc::c_long] = &[
    libc::SYS_read,  // the request
    libc::SYS_write, // the answer
];

const REQUEST: &[CallRule] = &[CallRule(libc::SYS_ioctl, &[Argument::OneOf(1, &[libc::TUNSETIFF as u32])])];

/// Gives up all rights except the right to make a tap, and makes the requested tap. Without confinement no tap is made.
pub fn main() {
    if confine().is_some() {
        postern_kernel::tap::make_for_another();
    }
}

fn confine() -> Option<()> {
    close_all_but(&[0, 1, 2]).ok()?;
    let confinement = Confinement {
        capabilities: CapabilitySet::NET_ADMIN,
        files: Files::new([]).ok()?,
        filter: FILTER.ready().clone(),
    };
    confinement.apply().ok()
}
