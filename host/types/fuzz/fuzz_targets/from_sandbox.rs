//! Any bytes from a sandbox are either a message, or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use postern_types::FromSandbox;
use postern_types::channel::decode;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode::<FromSandbox>(bytes);
});
