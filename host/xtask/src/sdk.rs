//! guest-sdk/src/sys: the way to the host. In a component it is the imported function, and in a program of the build
//! machine the fake host. Both have the same functions.

use crate::Written;
use crate::code::{SYSCTL, closure, heading, imports, is_common};
use crate::model::{Capability, Def, Field, Form, Function, Kind, Operation, Surface, Ty, camel, snake};
use anyhow::{Context, Result, bail};
use std::fmt::Write;

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

/// Returns two files for each capability.
pub fn files(surface: &Surface) -> Result<Vec<Written>> {
    let mut files = Vec::new();
    for (arm, place, file) in
        [("component", "in a component", component as Arm), ("native", "on the build machine", native)]
    {
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
    Ok(files)
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

/// Returns the type of a success of the SDK's functions: handles are resources, and records with links are the SDK's.
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

/// The functions that ask, and those that read a handle.
fn functions(capability: &Capability) -> impl Iterator<Item = &Function> {
    let is_of_value = |function: &&Function| {
        let own = capability.types.iter().find(|def| Some(&def.name) == function.of.as_ref());
        matches!(own.map(|def| &def.form), Some(Form::Value { .. }))
    };
    capability.functions.iter().filter(move |function| !is_of_value(function))
}

/// The setters of a value that the SDK keeps while the plugin fills it.
fn fields(def: &Def) -> Option<(&[Field], &[Field])> {
    match &def.form {
        Form::Value { fields, made_with, spread: true } => Some(fields.split_at(*made_with)),
        _ => None,
    }
}

/// Returns a field's type without its absence.
fn set_type(field: &Field) -> &Ty {
    match &field.ty {
        Ty::Option(inner) => inner,
        ty => ty,
    }
}

// ---- in a component ----

fn component(surface: &Surface, capability: &Capability) -> Result<String> {
    let module = snake(&capability.name);
    let mut code = format!("use super::wit::{module} as wit;\nuse super::*;\n\n");
    code = code.replace("use super::*;\n", "");
    for def in &capability.types {
        let name = camel(&def.name);
        if let Form::Handle(_) = def.form {
            write!(code, "pub(crate) use wit::{name};\n\n")?;
        } else if let Some((made_with, set)) = fields(def) {
            code += &component_options(surface, def, made_with, set)?;
        }
    }
    for function in functions(capability) {
        code += &component_call(surface, capability, function)?;
    }
    for def in &capability.types {
        code += &component_conversions(surface, capability, def)?;
    }
    if !code.replace("use super::wit::", "").contains("wit::") {
        code = code.replace(&format!("use super::wit::{module} as wit;\n"), "");
    }
    Ok(code)
}

fn component_options(surface: &Surface, def: &Def, made_with: &[Field], set: &[Field]) -> Result<String> {
    let name = camel(&def.name);
    let (mut params, mut given) = (Vec::new(), Vec::new());
    for field in made_with {
        params.push(format!("{}: {}", field.rust, lent(surface, &field.ty)?));
        given.push(passed(surface, &field.ty, &field.rust)?);
    }
    let mut code = format!(
        "/// The values for a call, while the plugin sets them.\n#[derive(Debug)]\npub(crate) struct {name}(pub(super) wit::{name});\n\n
         impl {name} {{ pub(crate) fn new({}) -> Self {{ Self(wit::{name}::new({})) }}\n\n",
        params.join(", "),
        given.join(", "),
    );
    for field in set {
        let ty = set_type(field);
        let value = passed(surface, ty, "value")?;
        write!(
            code,
            "pub(crate) fn set_{}(&self, value: {}) {{ self.0.set_{}({value}); }}\n\n",
            field.rust,
            lent(surface, ty)?,
            snake(&field.name)
        )?;
    }
    code.push_str("}\n\n");
    Ok(code)
}

fn component_call(surface: &Surface, capability: &Capability, function: &Function) -> Result<String> {
    let header = header(surface, capability, function)?;
    let mut arguments = Vec::new();
    let mut before = String::new();
    for (_, called, ty) in &function.params {
        let value = passed(surface, ty, called)?;
        // What is lent has to live until the call is over.
        if let (Ty::List(inner), Some(Def { form: Form::Value { .. }, name, .. })) =
            (ty, element(ty).map(|inner| surface.def_of(inner)).transpose()?.flatten())
            && matches!(**inner, Ty::Of(..))
        {
            writeln!(
                before,
                "let {called}: Vec<_> = {called}.iter().map(make_{}).collect();\nlet {called}: Vec<_> = {called}.iter().collect();",
                snake(name)
            )?;
            arguments.push(format!("&{called}"));
        } else {
            arguments.push(value);
        }
    }
    let call = match &function.of {
        Some(of) => format!("{}.{}({})", snake(of), snake(&function.name), arguments.join(", ")),
        None => format!("wit::{}({})", snake(&function.name), arguments.join(", ")),
    };
    if !matches!(function.kind, Kind::Asks(_)) {
        return Ok(format!("{header} {{ {before}{call} }}\n\n"));
    }
    let body = match got(surface, &function.returns, "got")? {
        Got { code, .. } if code == "got" => format!("{call}.map_err(super::failure)"),
        Got { code, fails: true } => format!("let got = {call}.map_err(super::failure)?;\n{code}"),
        Got { code, fails: false } => format!("let got = {call}.map_err(super::failure)?;\nOk({code})"),
    };
    Ok(format!("{header} {{ {before}{body} }}\n\n"))
}

fn element(ty: &Ty) -> Option<&Ty> {
    match ty {
        Ty::List(inner) | Ty::Option(inner) => Some(inner),
        _ => None,
    }
}

/// Code that passes a value to an imported function.
fn passed(surface: &Surface, ty: &Ty, value: &str) -> Result<String> {
    Ok(match ty {
        Ty::Text(_) => format!("&{value}.to_string()"),
        Ty::List(inner) => match &**inner {
            Ty::Text(_) => format!("&super::texts({value})"),
            inner => match wire(surface, inner, "each")? {
                code if code == "each" || code == "*each" => value.to_owned(),
                code => format!("&{value}.iter().map({}).collect::<Vec<_>>()", closure("each", &code)),
            },
        },
        Ty::Option(inner) => match wire(surface, inner, "value")? {
            code if code == "value" => value.to_owned(),
            code => format!("{value}.map({})", closure("value", &code)),
        },
        Ty::Of(_, name) => match surface.def_of(ty)?.map(|def| &def.form) {
            Some(Form::Value { spread: true, .. }) => format!("&{value}.0"),
            Some(Form::Value { .. }) => format!("&make_{}({value})", snake(name)),
            _ => wire(surface, ty, value)?,
        },
        _ => value.to_owned(),
    })
}

/// Code that makes a value of WIT.
fn wire(surface: &Surface, ty: &Ty, value: &str) -> Result<String> {
    Ok(match ty {
        Ty::Text(_) => format!("{value}.to_string()"),
        Ty::String => format!("{value}.clone()"),
        Ty::Option(inner) => match wire(surface, inner, "value")? {
            code if code == "value" => value.to_owned(),
            code => format!("{value}.map({})", closure("value", &code)),
        },
        Ty::List(inner) => {
            format!("{value}.iter().map({}).collect()", closure("each", &wire(surface, inner, "each")?))
        }
        Ty::Of(_, name) => match surface.def_of(ty)? {
            Some(Def { form: Form::Enum(_), .. }) => format!("wire_{}({value})", snake(name)),
            // An optional record is copied.
            Some(Def { form: Form::Record(_), .. }) => {
                let lent = if value == "value" { "&" } else { "" };
                format!("wire_{}({lent}{value})", snake(name))
            }
            _ => value.to_owned(),
        },
        _ => value.to_owned(),
    })
}

/// Code that turns what an imported function returns into the SDK's value.
struct Got {
    code: String,
    /// It is a `Result`.
    fails: bool,
}

fn got(surface: &Surface, ty: &Ty, value: &str) -> Result<Got> {
    let sure = |code: String| Got { code, fails: false };
    let fails = |code: String| Got { code, fails: true };
    if is_common(ty, "link-attributes") {
        return Ok(sure(format!("super::link_info({value})")));
    }
    if is_common(ty, "address") {
        return Ok(fails(format!("super::address({value})")));
    }
    Ok(match ty {
        Ty::Text(_) => fails(format!("super::read(&{value})")),
        Ty::Option(inner) if matches!(**inner, Ty::Text(_)) => fails(format!("super::maybe({value}.as_deref())")),
        Ty::Option(inner) => match got(surface, inner, "got")? {
            Got { code, .. } if code == "got" => sure(value.to_owned()),
            Got { code, fails: false } => sure(format!("{value}.map({})", closure("got", &code))),
            Got { code, fails: true } => fails(format!("{value}.map({}).transpose()", closure("got", &code))),
        },
        Ty::List(inner) => match got(surface, inner, "got")? {
            Got { code, .. } if code == "got" => sure(value.to_owned()),
            Got { code, fails: false } => sure(format!("{value}.into_iter().map({}).collect()", closure("got", &code))),
            Got { code, fails: true } => {
                fails(format!("{value}.into_iter().map({}).collect::<Result<Vec<_>, Error>>()", closure("got", &code)))
            }
        },
        Ty::Of(_, name) => match surface.def_of(ty)? {
            Some(def @ Def { form: Form::Record(_) | Form::Value { .. } | Form::Enum(_), .. }) => {
                let code = format!("got_{}({value})", snake(name));
                if can_fail(surface, def)? { fails(code) } else { sure(code) }
            }
            _ => sure(value.to_owned()),
        },
        _ => sure(value.to_owned()),
    })
}

/// True if some text has to be read.
fn can_fail(surface: &Surface, def: &Def) -> Result<bool> {
    if let Form::Record(fields) | Form::Value { fields, .. } = &def.form {
        for field in fields {
            if got(surface, &field.ty, "got")?.fails {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn component_conversions(surface: &Surface, capability: &Capability, def: &Def) -> Result<String> {
    let ty = Ty::Of(capability.name.clone(), def.name.clone());
    let (is_given, is_returned) = surface.uses(&ty)?;
    let (name, function) = (camel(&def.name), snake(&def.name));
    let mut code = String::new();
    let rust = surface.rust(&ty, None)?;
    match &def.form {
        Form::Enum(cases) => {
            let arms = |from: &str, to: &str, there: bool| -> String {
                let arm = |(wit, rust): &(String, String)| {
                    let (wit, rust) = (camel(wit), camel(rust));
                    let (one, two) = if there { (rust, wit) } else { (wit, rust) };
                    format!("{from}::{one} => {to}::{two},\n")
                };
                cases.iter().map(arm).collect()
            };
            let wit = format!("wit::{name}");
            if is_given {
                write!(
                    code,
                    "fn wire_{function}(value: {rust}) -> {wit} {{ match value {{ {} }} }}\n\n",
                    arms(&rust, &wit, true)
                )?;
            }
            if is_returned {
                write!(
                    code,
                    "fn got_{function}(got: {wit}) -> {rust} {{ match got {{ {} }} }}\n\n",
                    arms(&wit, &rust, false)
                )?;
            }
        }
        Form::Record(fields) => {
            if is_given {
                let mut set = String::new();
                for field in fields {
                    let value = wire(surface, &field.ty, &format!("value.{}", field.rust))?;
                    write!(set, "{}: {value}, ", snake(&field.name))?;
                }
                write!(code, "fn wire_{function}(value: &{rust}) -> wit::{name} {{ wit::{name} {{ {set} }} }}\n\n")?;
            }
            if is_returned {
                code += &component_record(surface, capability, def, fields)?;
            }
        }
        Form::Value { fields, made_with, spread: false } => {
            if is_given {
                code += &component_value(surface, def, fields, *made_with)?;
            }
            if is_returned {
                let mut set = String::new();
                for field in fields.iter().filter(|field| field.readable) {
                    let got = got(surface, &field.ty, &format!("got.{}()", snake(&field.name)))?;
                    write!(set, "{}: {}{}, ", field.rust, got.code, if got.fails { "?" } else { "" })?;
                }
                write!(
                    code,
                    "#[allow(clippy::needless_pass_by_value, reason = \"it is dropped here\")]\nfn got_{function}(got: wit::{name}) -> Result<{rust}, Error> {{ Ok({rust} {{ {set} ..{rust}::default() }}) }}\n\n"
                )?;
            }
        }
        Form::Handle(_) | Form::Value { .. } => {}
    }
    Ok(code)
}

/// A value that the guest passes as a whole: only what is set is called.
fn component_value(surface: &Surface, def: &Def, fields: &[Field], made_with: usize) -> Result<String> {
    let name = camel(&def.name);
    let (with, set) = fields.split_at(made_with);
    let mut given = Vec::new();
    for field in with {
        given.push(passed(surface, &field.ty, &format!("value.{}", field.rust))?);
    }
    let mut body = format!("let made = wit::{name}::new({});\n", given.join(", "));
    for field in set {
        let (own, setter) = (format!("value.{}", field.rust), format!("made.set_{}", snake(&field.name)));
        let code = match &field.ty {
            Ty::Option(inner) if **inner == Ty::String => {
                format!("if let Some(value) = &{own} {{ {setter}(value); }}\n")
            }
            Ty::Option(inner) => {
                format!("if let Some(value) = {own} {{ {setter}({}); }}\n", passed(surface, inner, "value")?)
            }
            Ty::List(_) => format!("if !{own}.is_empty() {{ {setter}(&{own}); }}\n"),
            _ => format!("if {own} {{ {setter}({}); }}\n", if field.switch { "" } else { "true" }),
        };
        body += &code;
    }
    Ok(format!("fn make_{}(value: &{}) -> wit::{name} {{ {body} made }}\n\n", snake(&def.name), def.rust))
}

fn component_record(surface: &Surface, capability: &Capability, def: &Def, fields: &[Field]) -> Result<String> {
    let ty = Ty::Of(capability.name.clone(), def.name.clone());
    let (function, name) = (snake(&def.name), camel(&def.name));
    let own = format!("super::{}::", snake(&capability.name));
    let returns = given(surface, &ty)?.replace(&own, "");
    if def.rust.is_empty() {
        return Ok(format!(
            "fn got_{function}(got: wit::{name}) -> {returns} {{ (got.link, super::link_info(got.attributes)) }}\n\n"
        ));
    }
    let fails = can_fail(surface, def)?;
    let mut set = String::new();
    for field in fields {
        let value = format!("got.{}", snake(&field.name));
        let wrapped = match (surface.def_of(&field.ty)?, &field.ty) {
            (Some(Def { form: Form::Handle(_), name, .. }), Ty::Of(interface, _)) => {
                format!("crate::{}::{}({value})", snake(interface), camel(name))
            }
            _ => {
                let got = got(surface, &field.ty, &value)?;
                format!("{}{}", got.code, if got.fails { "?" } else { "" })
            }
        };
        write!(set, "{}: {wrapped}, ", field.rust)?;
    }
    if def.rest {
        write!(set, "..{returns}::default()")?;
    }
    let value = format!("{returns} {{ {set} }}");
    Ok(match fails {
        true => format!("fn got_{function}(got: wit::{name}) -> Result<{returns}, Error> {{ Ok({value}) }}\n\n"),
        false => format!("fn got_{function}(got: wit::{name}) -> {returns} {{ {value} }}\n\n"),
    })
}

// ---- on the build machine ----

fn native(surface: &Surface, capability: &Capability) -> Result<String> {
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
        "/// The values for a call, while the plugin sets them.\n#[derive(Debug)]\npub(crate) struct {name} {{ {body} }}\n\n
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

/// Names the crate of the types that are not among [`VALUES`].
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

/// Code that turns a reply into what the SDK's function returns.
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
