//! Programs that read a link's packets by `tcx` (bpf(2), `BPF_TCX_INGRESS`). Netlink shows none of them, and they stay on a
//! link that moves to another namespace.
//!
//! A kernel without `tcx` and a refusal can have the same error number. So it is found out before rights are given up
//! whether the kernel has it ([`Sight::find`]).
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
/// `PROC_USER_INIT_INO` of linux/proc_ns.h: the machine's first user namespace.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";
/// A setting of each kernel with bpf(2) since Linux 4.4, and its directory.
const SETTING: [&str; 2] = ["/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/kernel"];

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

/// The things that a look for programs can tell here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All programs.
    Whole,
    /// There are none: this kernel has no `tcx`, or nobody in this user namespace can attach one.
    Needless,
    /// Nothing: the look is refused with this error number, and there may be programs.
    Refused(Errno),
}

impl Sight {
    /// Finds it out, by a look at `lo`. It has to be called before the process gives up rights.
    #[must_use]
    pub fn find() -> Self {
        // A failure can be a passing one (EIO, ENOMEM), and keeps a device down: a look that is refused is repeated.
        match Self::look() {
            Self::Refused(_) => Self::look(),
            sight => sight,
        }
    }

    fn look() -> Self {
        // Where it can't be told, programs are possible.
        let is_nested =
            std::fs::read_link("/proc/self/ns/user").is_ok_and(|name| name != Path::new(FIRST_USER_NAMESPACE));
        let [setting, directory] = SETTING.map(|path| lstat(path).map(drop));
        let has_no_bpf = setting == Err(Errno::ENOENT) && directory == Ok(());
        Self::judge(ask(LOOPBACK, ATTACHED[0]).map(drop), is_nested, has_no_bpf)
    }

    /// Judges the answer of that look. `is_nested` is true in a user namespace below the machine's first one, `has_no_bpf`
    /// on a kernel without bpf(2).
    fn judge(answer: std::result::Result<(), Errno>, is_nested: bool, has_no_bpf: bool) -> Self {
        match answer {
            // The kernel looked for the link.
            Ok(()) | Err(Errno::ENODEV) => Self::Whole,
            // It knows bpf(2), and no such place for programs.
            Err(Errno::EINVAL) => Self::Needless,
            // A filter of system calls gives this number too.
            Err(Errno::ENOSYS) if has_no_bpf => Self::Needless,
            // To ask and to attach take the same right of the machine's first user namespace.
            Err(Errno::EPERM) if is_nested => Self::Needless,
            Err(errno) => Self::Refused(errno),
        }
    }

    /// True if a program reads or changes the packets of this link of the calling thread's namespace.
    ///
    /// # Errors
    /// The look is refused, or `ENODEV`: there is no such link. A program is possible then.
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
    // SAFETY: the kernel reads and writes the structure, which outlives the call, and no more than its size.
    let result = unsafe { libc::syscall(libc::SYS_bpf, libc::c_long::from(BPF_PROG_QUERY), &raw mut query, size) };
    Errno::result(result).map(|_| query.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refusal is no proof that there is no program. A kernel that can have none is.
    #[test]
    fn a_refused_look_proves_nothing() {
        let answers = [Ok(()), Err(Errno::ENODEV), Err(Errno::EINVAL)];
        for (answer, sight) in answers.into_iter().zip([Sight::Whole, Sight::Whole, Sight::Needless]) {
            for (is_nested, has_no_bpf) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(Sight::judge(answer, is_nested, has_no_bpf), sight, "{answer:?}");
            }
        }
        for (errno, is_nested, has_no_bpf, sight) in [
            // The filter of a runtime, or of the gate itself where the rule is missing.
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
        // The look itself was allowed before, and is refused now, or there is no such link.
        assert!(Sight::Whole.has_program(u32::MAX).is_err());
    }
}
