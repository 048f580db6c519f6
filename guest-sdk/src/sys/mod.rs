//! Who answers: the host through the component's imports, or the fake host in a program of the build machine.
//!
//! The choice is made when compiling, function by function, so that a component imports what its code reaches and
//! nothing else. A trait object would make every plugin import everything.

#[cfg(target_arch = "wasm32")]
mod component;
#[cfg(not(target_arch = "wasm32"))]
mod native;

#[cfg(target_arch = "wasm32")]
pub(crate) use component::*;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use native::*;

/// One function's two ways to the host.
#[cfg(target_arch = "wasm32")]
macro_rules! host {
    (component: $component:expr, fake: $fake:expr $(,)?) => {
        $component
    };
}

/// One function's two ways to the host.
#[cfg(not(target_arch = "wasm32"))]
macro_rules! host {
    (component: $component:expr, fake: $fake:expr $(,)?) => {
        $fake
    };
}

/// Asks the fake host, and takes the answer apart.
#[cfg(not(target_arch = "wasm32"))]
macro_rules! ask {
    ($operation:expr, $answer:pat => $value:expr) => {
        match crate::fake::call(&postern_types::Operation::from($operation))? {
            $answer => Ok($value),
            other => Err(other.unexpected().into()),
        }
    };
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use ask;
pub(crate) use host;
