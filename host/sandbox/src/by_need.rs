//! A linker that adds only a component's imports, and a stand-in for the crate `wasmtime` that has this linker.
//!
//! The generated functions add whole interfaces. But a component imports single functions, and each entry costs time:
//! `static` imports 12 functions of interfaces that have 26. So the bindings are generated for this module
//! (`wasmtime_crate`).

pub use wasmtime::*;

/// The module `component` of the crate `wasmtime`, with [`Linker`] and [`LinkerInstance`] of this module.
pub mod component {
    pub use super::{Linker, LinkerInstance};
    pub use wasmtime::component::*;
}

use wasmtime::component as whole;
use wasmtime::component::types::ComponentInstance;
use wasmtime::component::{Component, ComponentNamedList, InstancePre, Lift, Lower, ResourceType};

/// A linker of wasmtime that is filled import by import.
pub struct Linker<T: 'static> {
    whole: whole::Linker<T>,
    /// The functions and resources that the component imports from the current interface. `None` if the component
    /// imports nothing from the interface.
    shape: Option<ComponentInstance>,
}

impl<T: 'static> Linker<T> {
    /// Makes an empty linker.
    pub fn new(engine: &Engine) -> Self {
        Self { whole: whole::Linker::new(engine), shape: None }
    }

    /// Begins with an import. Later calls add only functions and resources that this shape has.
    pub fn begin(&mut self, shape: Option<ComponentInstance>) {
        self.shape = shape;
    }

    /// Returns wasmtime's own linker, which adds everything, for bindings of other crates.
    #[cfg(feature = "wasi")]
    pub fn whole(&mut self) -> &mut whole::Linker<T> {
        &mut self.whole
    }

    /// Adds an interface.
    ///
    /// # Errors
    /// Another item has the name.
    pub fn instance(&mut self, name: &str) -> Result<LinkerInstance<'_, T>> {
        let engine = self.whole.engine().clone();
        Ok(LinkerInstance { instance: self.whole.instance(name)?, engine, shape: self.shape.as_ref() })
    }

    /// As [`whole::Linker::instantiate_pre`].
    ///
    /// # Errors
    /// An import is missing, or has not the shape that the component expects.
    pub fn instantiate_pre(&self, component: &Component) -> Result<InstancePre<T>> {
        self.whole.instantiate_pre(component)
    }
}

/// One interface in a [`Linker`].
pub struct LinkerInstance<'a, T: 'static> {
    instance: whole::LinkerInstance<'a, T>,
    engine: Engine,
    shape: Option<&'a ComponentInstance>,
}

impl<T: 'static> LinkerInstance<'_, T> {
    fn needs(&self, name: &str) -> bool {
        self.shape.is_some_and(|shape| shape.get_export(&self.engine, name).is_some())
    }

    /// Adds a function, if the component imports it.
    ///
    /// # Errors
    /// The function exists already.
    pub fn func_wrap<F, Params, Return>(&mut self, name: &str, func: F) -> Result<()>
    where
        F: Fn(StoreContextMut<T>, Params) -> Result<Return> + Send + Sync + 'static,
        Params: ComponentNamedList + Lift + 'static,
        Return: ComponentNamedList + Lower + 'static,
    {
        if self.needs(name) { self.instance.func_wrap(name, func) } else { Ok(()) }
    }

    /// Adds a resource, if the component imports it.
    ///
    /// # Errors
    /// The resource exists already.
    pub fn resource(
        &mut self,
        name: &str,
        ty: ResourceType,
        dtor: impl Fn(StoreContextMut<'_, T>, u32) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        if self.needs(name) { self.instance.resource(name, ty, dtor) } else { Ok(()) }
    }
}
