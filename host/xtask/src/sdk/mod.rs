//! Writes guest-sdk/src/sys, the SDK's calls to the host, in two forms with equal functions. In a component, the calls
//! go to the imported functions. In a program of the build machine, the calls go to the fake host.
//!
//! Also writes modules of guest-sdk/src that only call these functions.

mod component;
mod native;

use crate::Written;
use crate::code::{doc, heading, imports};
use crate::model::{Capability, Def, Field, Form, Function, Kind, Surface, Ty, camel, snake};
use anyhow::{Context, Result};

/// The types of host/types that a function can take or return.
const VALUES: &[&str] = &[
    "Address",
    "Backend",
    "DeviceKey",
    "DhcpLease",
    "Dns",
    "Forward",
    "IngressPolicy",
    "IpvlanMode",
    "LeaseGrant",
    "LeaseRange",
    "LinkInfo",
    "LinkSettings",
    "LoopbackState",
    "Mac",
    "MacvlanMode",
    "NatSources",
    "PortSpec",
    "RateLimit",
    "Route",
    "RouteSource",
    "SubnetFile",
    "TapSettings",
    "Transport",
];

/// Returns two files for each capability, and the capability's module for plugins if this module only calls the
/// functions.
pub fn files(surface: &Surface) -> Result<Vec<Written>> {
    let mut files = Vec::new();
    for (arm, place, file) in [
        ("component", "in a component", component::file as Arm),
        ("native", "in native unit tests, where the fake host answers", native::file),
    ] {
        for capability in &surface.capabilities {
            let name = snake(&capability.name);
            let code = file(surface, capability)?;
            let known = [
                ("crate::error", &["Error"][..]),
                ("ipnet", &["IpNet"]),
                ("postern_types", VALUES),
                ("std::cell", &["Cell"]),
                ("std::net", &["IpAddr"]),
            ];
            let imported = imports(&code, &known);
            let heading = heading(&format!("`{}` {place}.", capability.name));
            let (first, code) = match code.split_once('\n') {
                Some((first, code)) if first.starts_with("use ") => (format!("{first}\n"), code),
                _ => (String::new(), code.as_str()),
            };
            let text = format!("{heading}{first}{imported}\n{code}");
            files.push((format!("guest-sdk/src/sys/{arm}/{name}.rs").into(), text));
        }
    }
    for capability in surface.capabilities.iter().filter(|capability| capability.sdk) {
        let path = format!("guest-sdk/src/{}.rs", snake(&capability.name));
        files.push((path.into(), module(surface, capability)?));
    }
    Ok(files)
}

/// Returns the module of a capability whose functions only call the functions of `sys`.
fn module(surface: &Surface, capability: &Capability) -> Result<String> {
    let mut code = String::new();
    for function in functions(capability) {
        let header = header(surface, capability, function)?.replace("pub(crate)", "pub");
        let given: Vec<_> = function.params.iter().map(|(_, called, _)| called.as_str()).collect();
        let paragraphs: Vec<_> = function.docs.split("\n\n").map(doc).collect();
        let call = format!("sys::{}::{}({})", snake(&capability.name), snake(&function.name), given.join(", "));
        code += &format!("{}{header} {{ {call} }}\n\n", paragraphs.join("///\n"));
    }
    let known = [
        ("crate", &["sys"][..]),
        ("crate::error", &["Error"]),
        ("ipnet", &["IpNet"]),
        ("postern_types", VALUES),
        ("std::net", &["IpAddr"]),
    ];
    Ok(format!("{}{}\n{code}", heading(&capability.doc), imports(&code, &known)))
}

type Arm = fn(&Surface, &Capability) -> Result<String>;

/// Returns the type of a parameter of the SDK's functions.
fn lent(surface: &Surface, ty: &Ty) -> Result<String> {
    let resource = |ty: &Ty| -> Result<Option<String>> {
        Ok(match (ty, surface.def_of(ty)?.map(|def| &def.form)) {
            (Ty::Of(interface, name), Some(Form::Handle(_) | Form::Value { spread: true, .. })) => {
                Some(format!("super::{}::{}", snake(interface), camel(name)))
            }
            _ => None,
        })
    };
    if let Some(resource) = resource(ty)? {
        return Ok(format!("&{resource}"));
    }
    surface.lent(ty, "")
}

/// Returns the type of a successful result of the SDK's functions: handles become resources, and records with links
/// become the SDK's records.
fn given(surface: &Surface, ty: &Ty) -> Result<String> {
    Ok(match ty {
        Ty::Option(inner) => format!("Option<{}>", given(surface, inner)?),
        Ty::List(inner) => format!("Vec<{}>", given(surface, inner)?),
        Ty::Of(interface, name) => match surface.def_of(ty)? {
            Some(Def { form: Form::Handle(_), .. }) => format!("super::{}::{}", snake(interface), camel(name)),
            Some(Def { sdk: Some(sdk), .. }) => format!("crate::{}::{sdk}", snake(interface)),
            Some(Def { form: Form::Record(fields), rust, .. }) if rust.is_empty() => {
                let link = fields.first().context("a record has fields")?;
                format!("({}, LinkInfo)", given(surface, &link.ty)?)
            }
            _ => surface.rust(ty, None)?,
        },
        _ => surface.rust(ty, None)?,
    })
}

/// Returns a function's header.
fn header(surface: &Surface, capability: &Capability, function: &Function) -> Result<String> {
    let own = function.of.as_ref().map(|of| (snake(of), Ty::Of(capability.name.clone(), of.clone())));
    let params = own.into_iter().chain(function.params.iter().map(|(_, called, ty)| (called.clone(), ty.clone())));
    let mut list = Vec::new();
    for (called, ty) in params {
        list.push(format!("{called}: {}", lent(surface, &ty)?));
    }
    let mut returns = given(surface, &function.returns)?;
    if matches!(function.kind, Kind::Asks(_)) {
        returns = format!("Result<{returns}, Error>");
    }
    let own = format!("super::{}::", snake(&capability.name));
    let header = format!("pub(crate) fn {}({}) -> {returns}", snake(&function.name), list.join(", "));
    Ok(header.replace(&own, ""))
}

/// Returns the functions that ask the gate, and the functions that read a handle.
fn functions(capability: &Capability) -> impl Iterator<Item = &Function> {
    let is_of_value = |function: &&Function| {
        let own = capability.types.iter().find(|def| Some(&def.name) == function.of.as_ref());
        matches!(own.map(|def| &def.form), Some(Form::Value { .. }))
    };
    capability.functions.iter().filter(move |function| !is_of_value(function))
}

/// Returns the fields that the constructor sets, and the other fields, of a value that the SDK keeps while the plugin
/// sets the fields.
fn fields(def: &Def) -> Option<(&[Field], &[Field])> {
    match &def.form {
        Form::Value { fields, made_with, spread: true } => Some(fields.split_at(*made_with)),
        _ => None,
    }
}

/// Returns the type of a field's value, without `Option`.
fn set_type(field: &Field) -> &Ty {
    match &field.ty {
        Ty::Option(inner) => inner,
        ty => ty,
    }
}
