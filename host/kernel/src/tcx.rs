//! Programs that read a link's packets by `tcx` (bpf(2), `BPF_TCX_INGRESS`). Netlink does not show these programs. They
//! stay on a link that moves to another namespace.
//!
//! A kernel without `tcx` and a refusal can give the same error number. So [`Sight::find`] finds out whether the kernel
//! has `tcx` before the process gives up rights.
#![allow(unsafe_code, reason = "bpf(2) has no wrapper in libc")]

use crate::error::{Result, Subject};
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::lstat;
use std::path::Path;

/// `BPF_PROG_QUERY` of linux/bpf.h: the one command of bpf(2) that is used.
pub const BPF_PROG_QUERY: u32 = 16;
/// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
const ATTACHED: [u32; 2] = [46, 47];
/// The index of `lo` in each network namespace.
const LOOPBACK: u32 = 1;
/// `PROC_USER_INIT_INO` of linux/proc_ns.h: the node's first user namespace.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";
/// A setting of each kernel with bpf(2) since Linux 4.4, and its directory.
const SETTING: [&str; 2] = ["/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel"];

/// The part of `union bpf_attr` for this command. The kernel reads missing bytes at the end as zero.
#[repr(C)]
#[derive(Default)]
struct Query {
    link: u32,
    attached: u32,
    query_flags: u32,
    attach_flags: u32,
    /// The address for the programs' numbers; 0, as no numbers are requested.
    programs: u64,
    count: u32,
    reserved: u32,
    attach_flags_of_programs: u64,
    links: u64,
    attach_flags_of_links: u64,
    revision: u64,
}

/// The programs that a query can show on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The query shows all programs.
    Whole,
    /// There can be no programs: this kernel has no `tcx`, or nobody in this user namespace can attach a program.
    Needless,
    /// The query is refused with this error number, and there may be programs.
    Refused(Errno),
}

impl Sight {
    /// Finds the sight by a query for `lo`. Call this function before the process gives up rights.
    #[must_use]
    pub fn find() -> Self {
        // A failure keeps a device down, and may be temporary (EIO, ENOMEM). So a refused query is repeated.
        match Self::look() {
            Self::Refused(_) => Self::look(),
            sight => sight,
        }
    }

    fn look() -> Self {
        // If the user namespace can't be read, programs are possible.
        let is_nested =
            std::fs::read_link("/proc/self/ns/user").is_ok_and(|name| name != Path::new(FIRST_USER_NAMESPACE));
        let [setting, directory] = SETTING.map(|path| lstat(path).map(drop));
        let has_no_bpf = setting == Err(Errno::ENOENT) && directory == Ok(());
        Self::judge(ask(LOOPBACK, ATTACHED[0]).map(drop), is_nested, has_no_bpf)
    }

    /// Judges the answer to the query for `lo`. `is_nested` is true in a user namespace below the node's first user
    /// namespace. `has_no_bpf` is true on a kernel without bpf(2).
    fn judge(answer: std::result::Result<(), Errno>, is_nested: bool, has_no_bpf: bool) -> Self {
        match answer {
            // The kernel carried out the query.
            Ok(()) | Err(Errno::ENODEV) => Self::Whole,
            // The kernel has bpf(2), but no `tcx`.
            Err(Errno::EINVAL) => Self::Needless,
            // A seccomp filter gives ENOSYS too. So the missing setting must show that the kernel has no bpf(2).
            Err(Errno::ENOSYS) if has_no_bpf => Self::Needless,
            // A query and an attachment need the same right, which nobody in a nested user namespace has.
            Err(Errno::EPERM) if is_nested => Self::Needless,
            Err(errno) => Self::Refused(errno),
        }
    }

    /// True if a program reads or changes the packets of this link of the calling thread's namespace.
    ///
    /// # Errors
    /// The query is refused, or the link is missing (`ENODEV`). After an error the link may have a program.
    pub fn has_program(self, index: u32) -> Result<bool> {
        let subject = Subject { operation: "look for programs on", object: &format_args!("link {index}") };
        match self {
            Self::Needless => Ok(false),
            Self::Refused(errno) => Err(subject.failed(errno)),
            Self::Whole => {
                for attached in ATTACHED {
                    if ask(index, attached).map_err(|errno| subject.failed(errno))? > 0 {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

/// Returns the number of programs on a link.
fn ask(link: u32, attached: u32) -> std::result::Result<u32, Errno> {
    let mut query = Query { link, attached, ..Query::default() };
    let size = libc::c_long::try_from(size_of::<Query>()).unwrap_or_default();
    // SAFETY: the kernel reads and writes only the structure, up to its size. The structure outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, libc::c_long::from(BPF_PROG_QUERY), &raw mut query, size) };
    Errno::result(result).map(|_| query.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a refusal a link may have a program. Only a kernel without `tcx` proves that the link has no program.
    #[test]
    fn a_refused_look_proves_nothing() {
        let answers = [Ok(()), Err(Errno::ENODEV), Err(Errno::EINVAL)];
        for (answer, sight) in answers.into_iter().zip([Sight::Whole, Sight::Whole, Sight::Needless]) {
            for (is_nested, has_no_bpf) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(Sight::judge(answer, is_nested, has_no_bpf), sight, "{answer:?}");
            }
        }
        for (errno, is_nested, has_no_bpf, sight) in [
            // The seccomp filter of a runtime, or the gate's own filter without the rule for bpf(2).
            (Errno::ENOSYS, false, false, Sight::Refused(Errno::ENOSYS)),
            (Errno::ENOSYS, true, false, Sight::Refused(Errno::ENOSYS)),
            (Errno::ENOSYS, false, true, Sight::Needless),
            // A security module, or a filter.
            (Errno::EPERM, false, false, Sight::Refused(Errno::EPERM)),
            (Errno::EPERM, true, false, Sight::Needless),
            (Errno::EACCES, true, false, Sight::Refused(Errno::EACCES)),
            (Errno::E2BIG, true, true, Sight::Refused(Errno::E2BIG)),
        ] {
            assert_eq!(Sight::judge(Err(errno), is_nested, has_no_bpf), sight, "{errno:?} {is_nested} {has_no_bpf}");
        }
    }

    #[test]
    fn what_is_not_seen_is_an_error() {
        assert!(!Sight::Needless.has_program(LOOPBACK).unwrap());
        let refused = Sight::Refused(Errno::EPERM).has_program(LOOPBACK).unwrap_err();
        assert_eq!(refused.to_string(), "look for programs on link 1: operation not permitted");
        // The query was allowed at first. Now the query is refused, or the link is missing.
        assert!(Sight::Whole.has_program(u32::MAX).is_err());
    }
}
