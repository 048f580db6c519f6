//! `wasi:http`: a request can be built, but sending it is refused.
//!
//! Programs import `wasi:http` because their toolchain has `fetch`. An implementation would link an HTTP library only
//! to refuse requests. So the functions are defined in the shape that a component expects. Functions for building a
//! request make empty objects, sending returns the interface's own error, and any other function ends the guest.

use crate::imports::split;
use crate::state::State;
use wasmtime::component::types::{ComponentFunc, ComponentInstance, ComponentItem};
use wasmtime::component::{Linker, Resource, ResourceType, Type, Val};
use wasmtime::{Engine, Result, StoreContextMut, bail};

/// The interfaces whose requests are refused.
const REFUSED: [&str; 3] = ["wasi:http/incoming-handler", "wasi:http/outgoing-handler", "wasi:http/types"];

/// The interface that has the objects of `wasi:http`. Other interfaces refer to these objects.
const OWNER: &str = "wasi:http/types";

/// Objects of `wasi:io` that `wasi:http` refers to.
const OTHERS: [&str; 4] = ["error", "input-stream", "output-stream", "pollable"];

/// An object of `wasi:http`. All objects are empty.
struct Nothing;

/// The behaviour of a function.
#[derive(Clone, Copy)]
enum Answer {
    /// Makes an object.
    Object,
    /// Succeeds, with an object if the function returns one.
    Success,
    /// Returns the interface's own error for a refusal.
    Denied,
    /// Ends the guest.
    End,
}

impl Answer {
    fn of(function: &str) -> Self {
        match function {
            "[constructor]fields" | "[constructor]outgoing-request" | "[constructor]request-options" => Self::Object,
            "[static]fields.from-list" | "[method]outgoing-request.body" => Self::Success,
            "handle" | "[static]outgoing-body.finish" => Self::Denied,
            _ if function.starts_with("[method]outgoing-request.set-") => Self::Success,
            _ if function.starts_with("[method]request-options.set-") => Self::Success,
            "[method]fields.set" | "[method]fields.append" | "[method]fields.delete" => Self::Success,
            _ => Self::End,
        }
    }

    /// Returns the value for the function's result. `None` if the type of the result does not fit this answer.
    fn value(self, store: StoreContextMut<'_, State>, ty: &Type) -> Result<Option<Val>> {
        let object =
            |store| -> Result<Val> { Ok(Val::Resource(Resource::<Nothing>::new_own(0).try_into_resource_any(store)?)) };
        Ok(match (self, ty) {
            (Self::Object, Type::Own(_)) => Some(object(store)?),
            (Self::Success, Type::Result(result)) => match result.ok() {
                None => Some(Val::Result(Ok(None))),
                Some(Type::Own(_)) => Some(Val::Result(Ok(Some(Box::new(object(store)?))))),
                Some(_) => None,
            },
            (Self::Denied, Type::Result(result)) => {
                let denied = "HTTP-request-denied";
                let has =
                    |ty: &Type| matches!(ty, Type::Variant(variant) if variant.cases().any(|case| case.name == denied));
                let error = Val::Variant(denied.to_owned(), None);
                result.err().is_some_and(|ty| has(&ty)).then(|| Val::Result(Err(Some(Box::new(error)))))
            }
            _ => None,
        })
    }
}

/// Releases the objects in a function's parameter.
fn let_go(store: &mut StoreContextMut<'_, State>, parameter: &Val) -> Result<()> {
    match parameter {
        Val::Resource(object) => object.resource_drop(&mut *store),
        Val::Option(Some(inside)) => let_go(store, inside),
        _ => Ok(()),
    }
}

/// True if an interface, by its name without version, is one of `REFUSED`.
pub fn is_request(interface: &str) -> bool {
    REFUSED.contains(&interface)
}

/// Adds an interface in the shape that the component expects.
///
/// # Errors
/// The interface exists already.
pub fn refuse(linker: &mut Linker<State>, engine: &Engine, import: &str, shape: &ComponentInstance) -> Result<()> {
    let owns = split(import).0 == OWNER;
    let mut instance = linker.instance(import)?;
    for (name, item) in shape.exports(engine) {
        match item.ty {
            ComponentItem::ComponentFunc(_) => {
                let (answer, call) = (Answer::of(name), format!("{import}#{name}"));
                instance.func_new(name, move |mut store, ty: ComponentFunc, parameters, results| {
                    parameters.iter().try_for_each(|parameter| let_go(&mut store, parameter))?;
                    let value = match ty.results().next() {
                        Some(ty) => answer.value(store, &ty)?,
                        None => None,
                    };
                    match (results.first_mut(), value) {
                        (Some(result), Some(value)) => *result = value,
                        _ => bail!("called {call}: a plugin has no network"),
                    }
                    Ok(())
                })?;
            }
            ComponentItem::Resource(_) if owns && !OTHERS.contains(&name) => {
                instance.resource(name, ResourceType::host::<Nothing>(), |_, _| Ok(()))?;
            }
            _ => {}
        }
    }
    Ok(())
}
