//! The functions on the build machine: each asks the fake host.

use super::{fields, functions, given, header, lent, set_type};
use crate::code::{SYSCTL, closure};
use crate::model::{Capability, Def, Field, Form, Function, Kind, Operation, Surface, Ty, camel, snake};
use anyhow::{Context, Result, bail};
use std::fmt::Write;

/// Returns the functions of a capability.
pub fn file(surface: &Surface, capability: &Capability) -> Result<String> {
    let mut code = String::new();
    for def in &capability.types {
        let name = camel(&def.name);
        if let Form::Handle(_) = def.form {
            let stands =
                if def.rust == "LinkInfo" { "postern_types::Handle" } else { &format!("postern_types::{}", def.rust) };
            write!(code, "pub(crate) type {name} = {stands};\n\n")?;
        } else if let Some((made_with, set)) = fields(def) {
            code += &native_options(surface, def, made_with, set)?;
        }
    }
    for function in functions(capability) {
        code += &native_call(surface, capability, function)?;
    }
    for def in &capability.types {
        if let Form::Record(fields) = &def.form
            && def.sdk.is_some()
            && surface.uses(&Ty::Of(capability.name.clone(), def.name.clone()))?.1
        {
            code += &native_record(surface, capability, def, fields)?;
        }
    }
    Ok(code)
}

fn native_options(surface: &Surface, def: &Def, made_with: &[Field], set: &[Field]) -> Result<String> {
    let name = camel(&def.name);
    let (mut body, mut params, mut new, mut setters) = (String::new(), String::new(), String::new(), String::new());
    for field in made_with {
        let ty = surface.rust(&field.ty, None)?;
        write!(body, "{}: {ty}, ", field.rust)?;
        write!(params, "{}: {ty}, ", field.rust)?;
        write!(new, "{}, ", field.rust)?;
    }
    for field in set {
        write!(body, "{}: Cell<{}>, ", field.rust, surface.rust(&field.ty, None)?)?;
        write!(new, "{}: Cell::default(), ", field.rust)?;
        let value = if matches!(field.ty, Ty::Option(_)) { "Some(value)" } else { "value" };
        write!(
            setters,
            "pub(crate) fn set_{0}(&self, value: {1}) {{ self.{0}.set({value}); }}\n\n",
            field.rust,
            lent(surface, set_type(field))?
        )?;
    }
    Ok(format!(
        "/// Collects the values that the plugin sets for a call.\n#[derive(Debug)]\npub(crate) struct {name} {{ {body} }}\n\n
         impl {name} {{ pub(crate) fn new({params}) -> Self {{ Self {{ {new} }} }}\n\n{setters} }}\n\n"
    ))
}

fn native_call(surface: &Surface, capability: &Capability, function: &Function) -> Result<String> {
    let header = header(surface, capability, function)?;
    let Kind::Asks(asked) = &function.kind else {
        let of = function.of.as_deref().context("only a handle is read")?;
        return Ok(format!("{header} {{ {}.{} }}\n\n", snake(of), snake(&function.name)));
    };
    let operation = surface.operation(asked)?;
    let (of, _) = asked.split_once('.').context("an operation has an interface")?;
    let own = function.of.as_ref().map(|of| (snake(of), Ty::Of(capability.name.clone(), of.clone())));
    let params = own.into_iter().chain(function.params.iter().map(|(_, called, ty)| (called.clone(), ty.clone())));
    let mut set = Vec::new();
    for (called, ty) in params {
        native_argument(surface, operation, (&called, &ty), &mut set)?;
    }
    if let Some(key) = function.name.strip_prefix("set-")
        && of == SYSCTL.0
    {
        set.truncate(1);
        set.push(format!("key: postern_types::LinkSysctl::{}", camel(key)));
        set.push("value: on".to_owned());
    }
    let set = if set.is_empty() { String::new() } else { format!(" {{ {} }}", set.join(", ")) };
    let ask = format!("super::ask(postern_types::ops::{}::{}{set})", camel(of), camel(&operation.name));
    let own = format!("super::{}::", snake(&capability.name));
    let body = match handed(surface, &function.returns, "reply")?.replace(&own, "") {
        code if code == "reply" => ask,
        code => {
            let ty = surface.rust(&function.returns, None)?;
            let ty = ty.replace("LinkInfo", "postern_types::LinkInfo");
            let ty = full(&ty);
            format!("let reply: {ty} = {ask}?;\nOk({code})")
        }
    };
    Ok(format!("{header} {{ {body} }}\n\n"))
}

/// Adds the crate's name to the types that are not among [`VALUES`](super::VALUES).
fn full(ty: &str) -> String {
    ["BridgeInfo", "IpvlanInfo", "MacvlanInfo", "VethPair", "VlanInfo"]
        .iter()
        .fold(ty.replace("postern_types::", ""), |ty, name| ty.replace(name, &format!("postern_types::{name}")))
}

fn native_argument(
    surface: &Surface,
    operation: &Operation,
    (called, ty): (&str, &Ty),
    set: &mut Vec<String>,
) -> Result<()> {
    let field = |name: &str, code: String| if name == code { code } else { format!("{name}: {code}") };
    match surface.def_of(ty)? {
        Some(Def { form: Form::Handle(name), rust, .. }) => {
            let name = if operation.name == "attributes" { "link" } else { name };
            let code = if rust == "LinkInfo" { format!("*{called}") } else { format!("{called}.link.handle") };
            set.push(field(&snake(name), code));
        }
        Some(Def { form: Form::Value { fields, made_with, spread: true }, .. }) => {
            for (number, each) in fields.iter().enumerate() {
                let get = if number < *made_with { "" } else { ".get()" };
                set.push(field(&each.rust, format!("{called}.{}{get}", each.rust)));
            }
        }
        Some(Def { form: Form::Value { .. }, .. }) => {
            let (name, _) = operation.fields.iter().find(|(_, field)| field == ty).context("a value is a field")?;
            set.push(field(name, format!("{called}.clone()")));
        }
        _ => {
            let owned = match ty {
                Ty::String => format!("{called}.to_owned()"),
                Ty::List(_) => format!("{called}.to_vec()"),
                _ => called.to_owned(),
            };
            set.push(field(called, owned));
        }
    }
    Ok(())
}

/// Code that turns a reply into the return value of the SDK's function.
fn handed(surface: &Surface, ty: &Ty, value: &str) -> Result<String> {
    Ok(match ty {
        Ty::Option(inner) => match handed(surface, inner, "reply")? {
            code if code == "reply" => value.to_owned(),
            code => format!("{value}.map({})", closure("reply", &code)),
        },
        Ty::Of(_, name) => match surface.def_of(ty)? {
            Some(Def { form: Form::Handle(_), rust, .. }) if rust == "LinkInfo" => format!("{value}.handle"),
            Some(Def { form: Form::Record(_), rust, .. }) if rust.is_empty() => format!("({value}.handle, {value})"),
            Some(Def { form: Form::Record(_), sdk: Some(_), .. }) => format!("hand_{}({value})", snake(name)),
            _ => value.to_owned(),
        },
        _ => value.to_owned(),
    })
}

fn native_record(surface: &Surface, capability: &Capability, def: &Def, fields: &[Field]) -> Result<String> {
    let ty = Ty::Of(capability.name.clone(), def.name.clone());
    let returns = given(surface, &ty)?;
    let mut set = String::new();
    for field in fields {
        let name = snake(&field.name);
        let link = match field.name.as_str() {
            "attributes" => Some("link".to_owned()),
            other => other.strip_suffix("-attributes").map(snake),
        };
        match (link, surface.def_of(&field.ty)?, &field.ty) {
            (Some(link), ..) => write!(set, "{name}: reply.{link}, ")?,
            (None, Some(Def { form: Form::Handle(_), name: of, .. }), Ty::Of(interface, _)) => {
                write!(set, "{name}: crate::{}::{}(reply.{name}.handle), ", snake(interface), camel(of))?;
            }
            _ => write!(set, "{name}: reply.{}, ", field.rust)?,
        }
    }
    let rust = &def.rust;
    if rust.is_empty() {
        bail!("{} has no name in Rust", def.name);
    }
    Ok(format!(
        "fn hand_{}(reply: postern_types::{rust}) -> {returns} {{ {returns} {{ {set} }} }}\n\n",
        snake(&def.name)
    ))
}
