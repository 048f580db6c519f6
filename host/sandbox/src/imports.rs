//! All interfaces that a guest can import, and the linking of a guest's actual imports.

use crate::by_need::Linker;
use crate::state::State;
use crate::{bindings, wasi};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, InstancePre};
use wasmtime::{Engine, Result, ensure};

/// An interface by its name without version, and the function that adds its needed functions to a linker.
pub type LinkedInterface = (&'static str, fn(&mut Linker<State>) -> Result<()>);

/// The type parameter of the generated functions: the store's data implements every interface.
pub type Own = HasSelf<State>;

/// The implementation in the store's data.
pub fn own(state: &mut State) -> &mut State {
    state
}

/// The part of WASI that a guest needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasiFloor {
    /// The interfaces that every command needs: `crate::wasi`.
    Small,
    /// All of WASI, without real files and sockets: `crate::full_wasi`.
    #[cfg(feature = "wasi")]
    Whole,
}

impl WasiFloor {
    /// Returns the smallest floor that has these imports.
    #[cfg(feature = "reader")]
    pub fn of<'a>(mut imports: impl Iterator<Item = &'a str>) -> Self {
        let is_small = |import: &str| Self::Small.interfaces().any(|(interface, _)| interface == split(import).0);
        if imports.all(|import| !import.starts_with("wasi:") || is_small(import)) { Self::Small } else { Self::Whole }
    }

    /// Returns every interface.
    pub fn interfaces(self) -> impl Iterator<Item = LinkedInterface> {
        let from: (&[LinkedInterface], fn(&str) -> bool) = match self {
            Self::Small => (&[], |_| true),
            #[cfg(feature = "wasi")]
            Self::Whole => (&crate::full_wasi::INTERFACES, |interface| interface.starts_with("wasi:random/")),
        };
        let small = wasi::INTERFACES.into_iter().filter(move |(interface, _)| from.1(interface));
        from.0.iter().copied().chain(small).chain(bindings::INTERFACES.iter().copied())
    }
}

/// True if a component with these imports needs more of WASI than every command needs.
#[cfg(feature = "reader")]
pub fn needs_all_of_wasi(imports: &[String]) -> bool {
    WasiFloor::of(
        imports.iter().map(|import| import.split_once('#').map_or(import.as_str(), |(interface, _)| interface)),
    ) == WasiFloor::Whole
}

/// Returns `package:name/interface` and the version in an import's name.
pub fn split(import: &str) -> (&str, &str) {
    import.split_once('@').unwrap_or((import, ""))
}

/// Links what the component imports. Linking everything would take a tenth of a millisecond longer.
///
/// Also returns the linker, because a process that exits need not drop it.
///
/// # Errors
/// An import is missing, or does not have the shape that the component expects. Or the component imports two versions
/// of one interface.
pub fn link(engine: &Engine, component: &Component, floor: WasiFloor) -> Result<(InstancePre<State>, Linker<State>)> {
    let mut linker = Linker::new(engine);
    let shape = component.component_type();
    let mut names = Vec::with_capacity(32);
    for (import, item) in shape.imports(engine) {
        let (name, _) = split(import);
        // A linker has one entry for all compatible versions.
        ensure!(!names.contains(&name), "it imports {name} in two versions");
        names.push(name);
        // An import with a known name but another kind gets nothing: the linker's own message tells the fault.
        let instance = match item.ty {
            ComponentItem::ComponentInstance(instance) => Some(instance),
            _ => None,
        };
        #[cfg(feature = "wasi")]
        if floor == WasiFloor::Whole
            && crate::full_wasi::is_request(name)
            && let Some(instance) = &instance
        {
            crate::full_wasi::refuse(linker.whole(), engine, import, instance)?;
        }
        linker.begin(instance);
        if let Some((_, add)) = floor.interfaces().find(|(interface, _)| *interface == name) {
            add(&mut linker)?;
        }
    }
    Ok((linker.instantiate_pre(component)?, linker))
}
