//! `wasi:random`: the kernel's random numbers, for all functions. Most requests are for the seed of a hash map.
#![allow(unsafe_code, reason = "getrandom(2): in a static program, crates for random numbers open a device file")]

use super::wasi::random::{insecure, insecure_seed, random};
use crate::state::State;
use wasmtime::{Result, bail};

/// The largest answer of one call, in bytes: up to this length the kernel answers completely and without interruption.
const MOST: usize = 256;

fn fill<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    read(&mut bytes)?;
    Ok(bytes)
}

fn read(bytes: &mut [u8]) -> Result<()> {
    for block in bytes.chunks_mut(MOST) {
        // SAFETY: pointer and length are those of the slice.
        let count = unsafe { libc::getrandom(block.as_mut_ptr().cast(), block.len(), 0) };
        if usize::try_from(count) != Ok(block.len()) {
            bail!("the kernel has no random numbers: {}", std::io::Error::last_os_error());
        }
    }
    Ok(())
}

impl random::Host for State {
    fn get_random_bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        match usize::try_from(length) {
            Ok(length) if length <= 1 << 16 => {
                let mut bytes = vec![0; length];
                read(&mut bytes)?;
                Ok(bytes)
            }
            _ => bail!("asked for {length} random bytes at once"),
        }
    }

    fn get_random_u64(&mut self) -> Result<u64> {
        Ok(u64::from_ne_bytes(fill()?))
    }
}

impl insecure::Host for State {
    fn get_insecure_random_bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        random::Host::get_random_bytes(self, length)
    }

    fn get_insecure_random_u64(&mut self) -> Result<u64> {
        random::Host::get_random_u64(self)
    }
}

impl insecure_seed::Host for State {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        Ok((u64::from_ne_bytes(fill()?), u64::from_ne_bytes(fill()?)))
    }
}
