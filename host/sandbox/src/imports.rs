//! Everything that a guest can import, and linking what one does import.

use crate::state::State;
use crate::{bindings, wasi};
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};
use wasmtime::{Engine, Result};

/// An interface by its name without version, and how it is added to a linker.
pub type Interface = (&'static str, fn(&mut Linker<State>) -> Result<()>);

/// What the generated functions call by: the store's data is the implementation of every interface.
pub type Own = HasSelf<State>;

/// The implementation in the store's data.
pub fn own(state: &mut State) -> &mut State {
    state
}

/// Every interface that there is.
pub fn interfaces() -> impl Iterator<Item = Interface> {
    wasi::INTERFACES.into_iter().chain(bindings::interfaces())
}

/// `package:name/interface` and version of an import's name.
pub fn split(import: &str) -> (&str, &str) {
    import.split_once('@').unwrap_or((import, ""))
}

/// Links the interfaces that the component imports. To link all of them would take a tenth of a millisecond longer.
///
/// # Errors
/// An import is not there, or not in the shape that the component expects.
pub fn link(engine: &Engine, component: &Component) -> Result<InstancePre<State>> {
    let mut linker = Linker::new(engine);
    for (import, _) in component.component_type().imports(engine) {
        let (name, _) = split(import);
        if let Some((_, add)) = interfaces().find(|(interface, _)| *interface == name) {
            add(&mut linker)?;
        }
    }
    linker.instantiate_pre(component)
}
