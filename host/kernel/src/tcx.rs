//! Programs that read a link's packets by `tcx` (bpf(2), `BPF_TCX_INGRESS`). Netlink shows none of them, and they stay on a
//! link that moves to another namespace.
#![allow(unsafe_code, reason = "bpf(2) has no wrapper in libc")]

use crate::error::{Result, Subject};
use nix::errno::Errno;
use nix::libc;

/// `BPF_PROG_QUERY` of linux/bpf.h: the one command of bpf(2) that is used.
pub const BPF_PROG_QUERY: u32 = 16;
/// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
const ATTACHED: [u32; 2] = [46, 47];

/// The part of `union bpf_attr` for this command; the kernel takes what is missing at its end for zero.
#[repr(C)]
#[derive(Default)]
struct Query {
    link: u32,
    attached: u32,
    query_flags: u32,
    attach_flags: u32,
    /// The address for the programs' numbers; none are asked for.
    programs: u64,
    count: u32,
    reserved: u32,
    attach_flags_of_programs: u64,
    links: u64,
    attach_flags_of_links: u64,
    revision: u64,
}

/// True if a program reads or changes the packets of this link of the calling thread's namespace. Whoever may not ask, in a
/// user namespace, has no container that could attach one.
///
/// # Errors
/// `ENODEV` if there is no such link.
pub fn has_program(index: u32) -> Result<bool> {
    for attached in ATTACHED {
        let mut query = Query { link: index, attached, ..Query::default() };
        let size = libc::c_long::try_from(size_of::<Query>()).unwrap_or_default();
        // SAFETY: the kernel reads and writes the structure, which outlives the call, and no more than its size.
        let result = unsafe { libc::syscall(libc::SYS_bpf, libc::c_long::from(BPF_PROG_QUERY), &raw mut query, size) };
        match Errno::result(result) {
            Ok(_) if query.count > 0 => return Ok(true),
            // A kernel without `tcx`, or without bpf(2).
            Ok(_) | Err(Errno::EPERM | Errno::EACCES | Errno::EINVAL | Errno::ENOSYS) => {}
            Err(error) => {
                let subject = Subject { operation: "look for programs on", object: &format_args!("link {index}") };
                return Err(subject.refused(error as i32, None));
            }
        }
    }
    Ok(false)
}
