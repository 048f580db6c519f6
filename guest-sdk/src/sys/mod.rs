//! The two hosts that can answer: the real host through the component's imports, or the fake host in a program of the
//! build machine.
//!
//! The choice is made at compile time for each function. So a component imports only the functions that its code
//! reaches. A trait object would make every plugin import everything.

#[cfg(target_arch = "wasm32")]
mod component;
#[cfg(not(target_arch = "wasm32"))]
mod native;
#[cfg(target_arch = "wasm32")]
mod no_terminal;

#[cfg(target_arch = "wasm32")]
pub(crate) use component::*;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::*;

/// The largest number of objects in one request to the host.
const MOST_ASKED: usize = 256;

/// Asks about these objects in several requests, and returns all answers in the order of the objects.
pub(crate) fn in_parts<T>(
    objects: &[T],
    ask: impl Fn(&[T]) -> Result<Vec<bool>, crate::Error>,
) -> Result<Vec<bool>, crate::Error> {
    let mut answers = Vec::new();
    for part in objects.chunks(MOST_ASKED) {
        answers.extend(ask(part)?);
    }
    Ok(answers)
}
