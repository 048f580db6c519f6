//! Any bytes of a sandbox are a message or are refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use postern_types::FromSandbox;
use postern_types::channel::decode;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode::<FromSandbox>(bytes);
});
