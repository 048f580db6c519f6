//! Messages of a sandbox to the gate, as bytes: good messages, and messages of a process that a guest controls.

#![cfg(feature = "channel")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod samples;

use postern_types::channel::{decode, pair, receive, send};
use postern_types::{ErrorCode, FromSandbox, OpError, Reply, ToSandbox, VethPair};
use proptest::prelude::*;
use samples::samples;
use std::time::{Duration, Instant};

fn bytes_of(message: &FromSandbox) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap()
}

#[test]
fn every_operation_arrives_as_it_was_sent() {
    let (gate, sandbox) = pair().unwrap();
    for operation in samples() {
        let call = FromSandbox::Call(operation);
        send(&sandbox, &call, None).unwrap();
        let soon = Some(Instant::now() + Duration::from_secs(20));
        assert_eq!(receive::<FromSandbox>(&gate, soon).unwrap(), call);
    }
}

/// A call and its answer must be small, because each run has about twenty calls.
#[test]
fn a_message_has_no_keys() {
    let find = FromSandbox::Call(postern_types::ops::Bridge::Find { name: "cni0".to_owned() }.into());
    assert!(bytes_of(&find).len() < 12, "{:?}", bytes_of(&find));
}

#[test]
fn an_answer_is_read_as_its_own_type_alone() {
    let found: Option<VethPair> = None;
    let reply = Reply::of(&found).unwrap();
    assert_eq!(reply.read::<Option<VethPair>>(), Ok(None));
    // The reply is read as a longer type, and as a shorter type.
    for wrong in [reply.read::<VethPair>().map(drop), reply.read::<()>()] {
        let error = wrong.unwrap_err();
        assert_eq!(error.code, ErrorCode::Kernel);
        assert!(error.message.starts_with("the host's answer is malformed"), "{error}");
    }
}

#[test]
fn an_error_arrives_whole() {
    let mut error = OpError::new(ErrorCode::Denied, "cni0", "no").hint("name another one");
    error.errno = Some(1);
    for error in [error, OpError::new(ErrorCode::Io, "", "")] {
        let answer = ToSandbox::Answer(Err(error));
        let bytes = postcard::to_allocvec(&answer).unwrap();
        assert_eq!(decode::<ToSandbox>(&bytes).unwrap(), answer);
    }
}

/// Bytes after a message are refused, because the gate would not read them.
#[test]
fn nothing_follows_a_message() {
    for operation in samples() {
        let mut bytes = bytes_of(&FromSandbox::Call(operation));
        bytes.push(0);
        decode::<FromSandbox>(&bytes).unwrap_err();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Any bytes are a message or are refused. A message that is written again has about the same length: a few bytes
    /// never stand for many.
    #[test]
    fn no_bytes_take_the_gate_down(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(message) = decode::<FromSandbox>(&bytes) {
            prop_assert!(bytes_of(&message).len() <= 4 * bytes.len() + 64);
        }
    }

    /// Tests nearly good messages: one byte is changed, or the end is missing.
    #[test]
    fn no_changed_message_takes_the_gate_down(at in any::<prop::sample::Index>(), byte in any::<u8>(), end in any::<prop::sample::Index>()) {
        for operation in samples() {
            let mut bytes = bytes_of(&FromSandbox::Call(operation));
            let at = at.index(bytes.len());
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
            let _ = decode::<FromSandbox>(&bytes);
            bytes.truncate(end.index(bytes.len()));
            let _ = decode::<FromSandbox>(&bytes);
        }
    }
}
