//! The kernel's machine for filters, which gives the verdict on a call.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, seccomp_data, sock_filter,
};
use std::mem::offset_of;

/// `AUDIT_ARCH_*` of linux/audit.h.
pub const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// Returns true if a call is allowed.
pub fn allows(program: &[sock_filter], call: c_long, args: [u64; 6]) -> bool {
    verdict(program, ARCHITECTURE, call, args) == libc::SECCOMP_RET_ALLOW
}

/// Returns the kernel's verdict on a call.
pub fn verdict(program: &[sock_filter], arch: u32, call: c_long, args: [u64; 6]) -> u32 {
    let data = seccomp_data { nr: call as i32, arch, instruction_pointer: 0, args };
    let load = |at: u32| {
        let at = at as usize;
        if at == offset_of!(seccomp_data, nr) {
            data.nr as u32
        } else if at == offset_of!(seccomp_data, arch) {
            data.arch
        } else {
            let at = at - offset_of!(seccomp_data, args);
            (data.args[at / 8] >> (at % 8 * 8)) as u32
        }
    };
    let (mut at, mut word) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let holds = match u32::from(code) {
            code if code == BPF_LD | BPF_W | BPF_ABS => {
                word = load(k);
                continue;
            }
            code if code == BPF_RET | BPF_K => return k,
            code if code == BPF_JMP | BPF_JEQ | BPF_K => word == k,
            code if code == BPF_JMP | BPF_JGE | BPF_K => word >= k,
            code if code == BPF_JMP | BPF_JSET | BPF_K => word & k != 0,
            other => panic!("instruction {other:#x}"),
        };
        at += usize::from(if holds { jt } else { jf });
    }
}
