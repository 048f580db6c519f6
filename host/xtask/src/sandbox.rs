//! Writes host/sandbox/src/bindings: the imports of a guest. The written code only translates.

use crate::Written;
use crate::code::{SYSCTL, closure, heading, imports, is_common};
use crate::model::{Capability, Def, Field, Form, Function, Kind, Operation, Surface, Ty, camel, snake};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Returns a file for each capability.
pub fn files(surface: &Surface) -> Result<Vec<Written>> {
    let one = |capability: &Capability| {
        let path = format!("host/sandbox/src/bindings/{}.rs", snake(&capability.name));
        Ok((path.into(), file(surface, capability)?))
    };
    surface.capabilities.iter().map(one).collect()
}

fn file(surface: &Surface, capability: &Capability) -> Result<String> {
    let mut code = String::new();
    for def in &capability.types {
        code += &host_data(surface, capability, def)?;
    }
    writeln!(code, "impl wit::{}::Host for State {{", snake(&capability.name))?;
    for function in capability.functions.iter().filter(|function| function.of.is_none()) {
        code += &call(surface, capability, function)?;
    }
    code.push_str("}\n\n");
    for def in &capability.types {
        code += &methods(surface, capability, def)?;
    }
    for def in &capability.types {
        code += &conversions(surface, capability, def)?;
    }
    let code = code.replace(&format!("super::{}::", snake(&capability.name)), "");
    let own: Vec<_> = capability.types.iter().map(|def| camel(&def.name)).collect();
    let (code, values) = imported(&code, &own);
    let imports = imports(
        &code,
        &[
            ("super", &["Failure", "parse", "wit"]),
            ("crate::state", &["State"]),
            ("wasmtime::component", &["Resource"]),
        ],
    );
    Ok(format!("{}{values}{imports}\n{code}", heading(&format!("`postern:cni/{}`.", capability.name))))
}

/// Removes the crate's name from the types of host/types. Returns the code, and the line that imports these types. A
/// type keeps its crate's name if the file has another type of that name.
fn imported(code: &str, own: &[String]) -> (String, String) {
    let mut names = BTreeSet::new();
    let mut short = String::new();
    for (number, part) in code.split("postern_types::").enumerate() {
        let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if number > 0 && own.contains(&name) {
            short.push_str("postern_types::");
        } else if number > 0 {
            names.insert(name);
        }
        short.push_str(part);
    }
    let names: Vec<_> = names.into_iter().collect();
    let line = if names.is_empty() { String::new() } else { format!("use postern_types::{{{}}};\n", names.join(", ")) };
    (short, line)
}

/// The host's data for a resource.
fn host_data(surface: &Surface, capability: &Capability, def: &Def) -> Result<String> {
    let name = camel(&def.name);
    let about = format!("/// The host's data for a guest's `{}`.\n", def.name);
    Ok(match &def.form {
        Form::Handle(_) => {
            let mut code = format!("{about}pub struct {name} {{ pub(super) handle: postern_types::Handle, ");
            for function in known_of(capability, def) {
                write!(code, "{}: {}, ", snake(&function.name), surface.rust(&function.returns, None)?)?;
            }
            code.push_str("}\n\n");
            code
        }
        Form::Value { fields, made_with, .. } => {
            let derive = if *made_with == 0 { "#[derive(Clone, Default)]\n" } else { "#[derive(Clone)]\n" };
            let mut code = format!("{about}{derive}pub struct {name} {{ ");
            for field in fields {
                write!(code, "{}: {}, ", snake(&field.name), raw(surface, &field.ty)?)?;
            }
            code.push_str("}\n\n");
            code
        }
        Form::Enum(_) | Form::Record(_) => String::new(),
    })
}

/// The functions of a handle whose answers the gate sent with the handle.
fn known_of<'a>(capability: &'a Capability, def: &'a Def) -> impl Iterator<Item = &'a Function> {
    let is_of = |function: &&Function| function.of.as_ref() == Some(&def.name);
    capability.functions.iter().filter(is_of).filter(|function| matches!(function.kind, Kind::Reads(_)))
}

/// A type as it comes from the guest: texts are not parsed yet.
fn raw(surface: &Surface, ty: &Ty) -> Result<String> {
    Ok(match ty {
        Ty::Text(_) => "String".to_owned(),
        Ty::Option(inner) => format!("Option<{}>", raw(surface, inner)?),
        Ty::List(inner) => format!("Vec<{}>", raw(surface, inner)?),
        Ty::Of(interface, name) => format!("wit::{}::{}", snake(interface), camel(name)),
        _ => surface.rust(ty, None)?,
    })
}

/// The type of a parameter, or of a successful result, in WIT's functions.
fn wit(surface: &Surface, ty: &Ty) -> Result<String> {
    Ok(match ty {
        Ty::Option(inner) => format!("Option<{}>", wit(surface, inner)?),
        Ty::List(inner) => format!("Vec<{}>", wit(surface, inner)?),
        Ty::Of(interface, name) => match surface.def_of(ty)?.map(|def| &def.form) {
            Some(Form::Handle(_) | Form::Value { .. }) => {
                format!("Resource<super::{}::{}>", snake(interface), camel(name))
            }
            _ => format!("wit::{}::{}", snake(interface), camel(name)),
        },
        _ => raw(surface, ty)?,
    })
}

/// A function that asks the gate.
fn call(surface: &Surface, capability: &Capability, function: &Function) -> Result<String> {
    let Kind::Asks(asked) = &function.kind else { bail!("{} asks nobody", function.name) };
    let operation = surface.operation(asked)?;
    let (of, _) = asked.split_once('.').context("an operation has an interface")?;
    let own = function.of.as_ref().map(|of| (snake(of), Ty::Of(capability.name.clone(), of.clone())));
    let params = own.iter().cloned().chain(function.params.iter().map(|(_, called, ty)| (called.clone(), ty.clone())));
    let (mut header, mut body, mut given) = (String::new(), String::new(), Vec::new());
    for (called, ty) in params {
        write!(header, ", {called}: {}", wit(surface, &ty)?)?;
        argument(surface, operation, asked, (&called, &ty), &mut body, &mut given)?;
    }
    if let Some(key) = function.name.strip_prefix("set-")
        && of == SYSCTL.0
    {
        given =
            vec!["link".to_owned(), format!("key: postern_types::LinkSysctl::{}", camel(key)), "value: on".to_owned()];
    }
    let fields = if given.is_empty() { String::new() } else { format!(" {{ {} }}", given.join(", ")) };
    let ask = format!("self.call(postern_types::ops::{}::{}{fields})", camel(of), camel(&operation.name));
    let returns = wit(surface, &function.returns)?;
    let reply = match shown(surface, &function.returns, "reply")? {
        _ if function.returns == Ty::Unit => ask,
        Shown { code, .. } if code == "reply" => ask,
        Shown { code, fails } => {
            let ty = surface.rust(&function.returns, None)?;
            let ty = qualified(&ty);
            format!("let reply: {ty} = {ask}?;\n{}", if fails { code } else { format!("Ok({code})") })
        }
    };
    Ok(format!("fn {}(&mut self{header}) -> Result<{returns}, Failure> {{ {body}{reply} }}\n\n", snake(&function.name)))
}

/// Names the crate of each type.
fn qualified(ty: &str) -> String {
    let mut code = String::new();
    for part in ty.split_inclusive(|c: char| !c.is_alphanumeric() && c != ':') {
        let known = ["Option", "Vec", "String", "bool", "u8", "u16", "u32", "u64", "postern_types"];
        let word = part.trim_end_matches(|c: char| !c.is_alphanumeric());
        if !word.is_empty() && !word.contains("::") && !known.contains(&word) {
            code.push_str("postern_types::");
        }
        code.push_str(part);
    }
    code
}

/// Turns a parameter into fields of the operation. Adds the code that parses the parameter to `body`, and the fields to
/// `given`.
fn argument(
    surface: &Surface,
    operation: &Operation,
    asked: &str,
    (called, ty): (&str, &Ty),
    body: &mut String,
    given: &mut Vec<String>,
) -> Result<()> {
    let def = surface.def_of(ty)?;
    match def.map(|def| &def.form) {
        Some(Form::Handle(name)) => {
            // The attributes of any handle can be read: the field is `link`.
            let field = if operation.name == "attributes" { "link" } else { name };
            writeln!(body, "let {} = self.table.get(&{called})?.handle;", snake(field))?;
            given.push(snake(field));
        }
        Some(Form::Value { fields, spread: true, .. }) => {
            writeln!(body, "let {called} = self.table.get(&{called})?.clone();")?;
            for field in fields {
                let Read { code, .. } = read(surface, asked, &field.ty, &format!("{called}.{}", snake(&field.name)))?;
                given.push(assigned(&field.rust, &code));
            }
        }
        Some(Form::Value { .. }) => {
            let field = operation.fields.iter().find(|(_, field)| field == ty).context("a value is a field")?;
            writeln!(body, "let {} = self.table.get(&{called})?.read(\"{asked}\")?;", field.0)?;
            given.push(field.0.clone());
        }
        _ => match read(surface, asked, ty, called)? {
            Read { code, .. } if code == called => given.push(called.to_owned()),
            Read { code, .. } => {
                writeln!(body, "let {called} = {code};")?;
                given.push(called.to_owned());
            }
        },
    }
    Ok(())
}

fn assigned(field: &str, code: &str) -> String {
    if field == code { field.to_owned() } else { format!("{field}: {code}") }
}

/// Code that turns the guest's data into a value.
struct Read {
    code: String,
    /// True if the code may return with `?`.
    fails: bool,
}

fn read(surface: &Surface, asked: &str, ty: &Ty, given: &str) -> Result<Read> {
    let sure = |code: String| Read { code, fails: false };
    let fails = |code: String| Read { code, fails: true };
    Ok(match ty {
        Ty::Text(_) => fails(format!("parse::text(\"{asked}\", &{given})?")),
        Ty::Option(inner) if matches!(**inner, Ty::Text(_)) => {
            fails(format!("parse::maybe(\"{asked}\", {given}.as_ref())?"))
        }
        Ty::List(inner) if matches!(**inner, Ty::Text(_)) => fails(format!("parse::list(\"{asked}\", &{given})?")),
        Ty::Option(inner) => match read(surface, asked, inner, "given")? {
            Read { code, .. } if code == "given" => sure(given.to_owned()),
            Read { code, fails: false } => sure(format!("{given}.map({})", closure("given", &code))),
            Read { .. } => bail!("an optional {given} can't be read"),
        },
        Ty::List(inner) => match (surface.def_of(inner)?, read(surface, asked, inner, "given")?) {
            (Some(Def { form: Form::Value { .. }, .. }), _) => fails(format!(
                "{given}.iter().map(|given| Ok(self.table.get(given)?.read(\"{asked}\")?)).collect::<Result<_, Failure>>()?"
            )),
            (_, Read { code, .. }) if code == "given" => sure(given.to_owned()),
            (_, Read { code, fails: false }) => {
                sure(format!("{given}.into_iter().map({}).collect()", closure("given", &code)))
            }
            (_, Read { code, fails: true }) => fails(format!(
                "{given}.into_iter().map(|given| {}).collect::<Result<Vec<_>, postern_types::OpError>>()?",
                code.trim_end_matches('?')
            )),
        },
        Ty::Of(interface, name) => match surface.def_of(ty)? {
            Some(Def { form: Form::Record(fields), checked, .. }) => {
                let module = if *interface == asked.split('.').next().unwrap_or_default() {
                    String::new()
                } else {
                    format!("super::{}::", snake(interface))
                };
                if *checked || fields.iter().any(|field| has_text(&field.ty)) {
                    fails(format!("{module}read_{}(\"{asked}\", {given})?", snake(name)))
                } else {
                    sure(format!("{module}read_{}({given})", snake(name)))
                }
            }
            Some(Def { form: Form::Enum(_), .. }) => sure(format!("read_{}({given})", snake(name))),
            _ => sure(given.to_owned()),
        },
        _ => sure(given.to_owned()),
    })
}

fn has_text(ty: &Ty) -> bool {
    match ty {
        Ty::Text(_) => true,
        Ty::Option(inner) | Ty::List(inner) => has_text(inner),
        _ => false,
    }
}

/// Code that turns a value into data for the guest.
struct Shown {
    code: String,
    /// True if the code gives a `Result`.
    fails: bool,
}

fn shown(surface: &Surface, ty: &Ty, value: &str) -> Result<Shown> {
    let sure = |code: String| Shown { code, fails: false };
    let fails = |code: String| Shown { code, fails: true };
    if is_common(ty, "link-attributes") || is_common(ty, "address") {
        return Ok(sure(format!("{value}.into()")));
    }
    Ok(match ty {
        Ty::Text(_) => sure(format!("{value}.to_string()")),
        Ty::Option(inner) => match shown(surface, inner, "shown")? {
            Shown { code, .. } if code == "shown" => sure(value.to_owned()),
            Shown { code, fails: false } => sure(format!("{value}.map({})", closure("shown", &code))),
            Shown { code, fails: true } => fails(format!("{value}.map(|shown| {code}).transpose()")),
        },
        Ty::List(inner) => match (surface.def_of(inner)?, shown(surface, inner, "shown")?) {
            (Some(Def { form: Form::Value { .. }, name, .. }), _) => {
                let Ty::Of(interface, _) = &**inner else { bail!("a value has an interface") };
                fails(format!("self.push_all(\"{interface}\", {value}.into_iter().map(show_{}))", snake(name)))
            }
            (_, Shown { code, .. }) if code == "shown" => sure(value.to_owned()),
            (_, Shown { code, fails: false }) => {
                sure(format!("{value}.into_iter().map({}).collect()", closure("shown", &code)))
            }
            (_, Shown { .. }) => bail!("a list of resources can't be shown"),
        },
        Ty::Of(interface, name) => match surface.def_of(ty)? {
            Some(Def { form: Form::Handle(_), .. }) => fails(format!("self.give_{}({value})", snake(name))),
            Some(Def { form: Form::Record(fields), .. }) if has_resource(surface, fields)? => {
                fails(format!("self.give_{}_{}({value})", snake(interface), snake(name)))
            }
            Some(Def { form: Form::Record(_) | Form::Enum(_), .. }) => sure(format!("show_{}({value})", snake(name))),
            _ => sure(value.to_owned()),
        },
        _ => sure(value.to_owned()),
    })
}

fn has_resource(surface: &Surface, fields: &[Field]) -> Result<bool> {
    for field in fields {
        if matches!(surface.def_of(&field.ty)?, Some(Def { form: Form::Handle(_), .. })) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The functions of a resource.
fn methods(surface: &Surface, capability: &Capability, def: &Def) -> Result<String> {
    let (name, own) = (camel(&def.name), snake(&def.name));
    let is_handle = match &def.form {
        Form::Handle(_) => true,
        Form::Value { .. } => false,
        Form::Enum(_) | Form::Record(_) => return Ok(String::new()),
    };
    let mut code = format!("impl wit::{}::Host{name} for State {{\n", snake(&capability.name));
    for function in capability.functions.iter().filter(|function| function.of.as_ref() == Some(&def.name)) {
        code += &match &function.kind {
            Kind::Asks(_) => call(surface, capability, function)?,
            Kind::Makes => makes(surface, def, function)?,
            Kind::Sets(field) => sets(surface, def, function, field)?,
            Kind::Reads(field) => {
                let ty = if is_handle { function.returns.clone() } else { field_of(def, field)?.ty.clone() };
                let copied = surface.is_copied(&ty)? && raw(surface, &ty)? == surface.rust(&ty, None)?;
                let clone = if copied { "" } else { ".clone()" };
                format!(
                    "fn {field}(&mut self, {own}: Resource<{name}>) -> wasmtime::Result<{}> {{ Ok(self.table.get(&{own})?.{field}{clone}) }}\n\n",
                    raw(surface, &ty)?,
                    field = snake(field),
                )
            }
        };
    }
    write!(
        code,
        "fn drop(&mut self, {own}: Resource<{name}>) -> wasmtime::Result<()> {{ self.table.delete({own})?; Ok(()) }}\n}}\n\n"
    )?;
    Ok(code)
}

fn field_of<'a>(def: &'a Def, name: &str) -> Result<&'a Field> {
    let Form::Value { fields, .. } = &def.form else { bail!("{} has no fields", def.name) };
    fields.iter().find(|field| field.name == name).with_context(|| format!("no field {name}"))
}

fn makes(surface: &Surface, def: &Def, function: &Function) -> Result<String> {
    let Form::Value { fields, made_with, .. } = &def.form else { bail!("a handle is not made by a guest") };
    let name = camel(&def.name);
    let mut params = String::new();
    for (_, called, ty) in &function.params {
        write!(params, ", {called}: {}", raw(surface, ty)?)?;
    }
    let mut set: Vec<_> = function.params.iter().map(|(_, called, _)| called.clone()).collect();
    for field in fields.iter().skip(*made_with) {
        let empty = if matches!(field.ty, Ty::Option(_)) { "None" } else { "Default::default()" };
        set.push(format!("{}: {empty}", snake(&field.name)));
    }
    let made = if *made_with == 0 { format!("{name}::default()") } else { format!("{name} {{ {} }}", set.join(", ")) };
    Ok(format!(
        "fn new(&mut self{params}) -> wasmtime::Result<Resource<{name}>> {{ Ok(self.table.push({made})?) }}\n\n"
    ))
}

fn sets(surface: &Surface, def: &Def, function: &Function, field: &str) -> Result<String> {
    let (name, own) = (camel(&def.name), snake(&def.name));
    let set = field_of(def, field)?;
    let (params, value) = match &function.params[..] {
        [] => (String::new(), "true".to_owned()),
        [(_, called, ty), ..] => (format!(", {called}: {}", raw(surface, ty)?), called.clone()),
    };
    let value = if matches!(set.ty, Ty::Option(_)) { format!("Some({value})") } else { value };
    Ok(format!(
        "fn {}(&mut self, {own}: Resource<{name}>{params}) -> wasmtime::Result<()> {{ self.table.get_mut(&{own})?.{} = {value}; Ok(()) }}\n\n",
        snake(&function.name),
        snake(field),
    ))
}

/// Conversions between values of WIT and values of host/types, if a function needs them.
fn conversions(surface: &Surface, capability: &Capability, def: &Def) -> Result<String> {
    let ty = Ty::Of(capability.name.clone(), def.name.clone());
    let (is_given, is_returned) = surface.uses(&ty)?;
    let (name, function) = (camel(&def.name), snake(&def.name));
    let module = format!("wit::{}::{name}", snake(&capability.name));
    let mut code = String::new();
    let rust = format!("postern_types::{}", surface.rust(&ty, None)?);
    match &def.form {
        Form::Enum(cases) => {
            let arms = |from: &str, to: &str, there: bool| -> String {
                let arm = |(wit, rust): &(String, String)| {
                    let (wit, rust) = (camel(wit), camel(rust));
                    let (one, two) = if there { (wit, rust) } else { (rust, wit) };
                    format!("{from}::{one} => {to}::{two},\n")
                };
                cases.iter().map(arm).collect()
            };
            if is_given {
                write!(
                    code,
                    "fn read_{function}(given: {module}) -> {rust} {{ match given {{ {} }} }}\n\n",
                    arms(&module, &rust, true)
                )?;
            }
            if is_returned {
                write!(
                    code,
                    "fn show_{function}(shown: {rust}) -> {module} {{ match shown {{ {} }} }}\n\n",
                    arms(&rust, &module, false)
                )?;
            }
        }
        Form::Record(fields) => {
            if is_given {
                code += &read_record(surface, def, fields, &module, &rust)?;
            }
            if is_returned && has_resource(surface, fields)? {
                code += &give_record(surface, capability, def, fields, (&module, &rust))?;
            } else if is_returned {
                let mut set = String::new();
                for field in fields {
                    let Shown { code, .. } = shown(surface, &field.ty, &format!("shown.{}", field.rust))?;
                    write!(set, "{}, ", assigned(&snake(&field.name), &code))?;
                }
                write!(code, "fn show_{function}(shown: {rust}) -> {module} {{ {module} {{ {set} }} }}\n\n")?;
            }
        }
        Form::Handle(_) => {
            let at = if def.rust == "LinkInfo" { "shown.handle" } else { "shown.link.handle" };
            let mut set = format!("handle: {at}, ");
            for known in known_of(capability, def) {
                write!(set, "{0}: shown.{0}, ", snake(&known.name))?;
            }
            write!(
                code,
                "impl State {{ pub(super) fn give_{function}(&mut self, shown: {rust}) -> Result<Resource<{name}>, Failure> {{ Ok(self.table.push({name} {{ {set} }})?) }} }}\n\n"
            )?;
        }
        Form::Value { fields, spread, .. } => {
            if !spread {
                let (mut set, mut uses) = (String::new(), false);
                for field in fields {
                    let own = format!("self.{}", snake(&field.name));
                    let Read { code, fails } = read(surface, "@", &field.ty, &own)?;
                    let code = code.replace("\"@\"", "operation");
                    uses |= fails;
                    let clone = if code == own && !surface.is_copied(&field.ty)?
                        || field.ty == Ty::Option(Box::new(Ty::String))
                    {
                        ".clone()"
                    } else {
                        ""
                    };
                    write!(set, "{}: {code}{clone}, ", field.rust)?;
                }
                let operation = if uses { "operation" } else { "_operation" };
                write!(
                    code,
                    "impl {name} {{ fn read(&self, {operation}: &str) -> Result<{rust}, postern_types::OpError> {{ Ok({rust} {{ {set} }}) }} }}\n\n"
                )?;
            }
            if is_returned {
                let mut set = String::new();
                for field in fields {
                    let Shown { code, .. } = shown(surface, &field.ty, &format!("shown.{}", field.rust))?;
                    write!(set, "{}: {code}, ", snake(&field.name))?;
                }
                write!(code, "fn show_{function}(shown: {rust}) -> {name} {{ {name} {{ {set} }} }}\n\n")?;
            }
        }
    }
    Ok(code)
}

fn read_record(surface: &Surface, def: &Def, fields: &[Field], module: &str, rust: &str) -> Result<String> {
    let (mut set, mut can_fail) = (String::new(), def.checked);
    for field in fields {
        let Read { code, fails } = read(surface, "@", &field.ty, &format!("given.{}", snake(&field.name)))?;
        can_fail |= fails;
        write!(set, "{}: {}, ", field.rust, code.replace("\"@\"", "operation"))?;
    }
    let function = snake(&def.name);
    let value = format!("{rust} {{ {set} }}");
    Ok(match (can_fail, def.checked) {
        (false, _) => format!("fn read_{function}(given: {module}) -> {rust} {{ {value} }}\n\n"),
        (true, checked) => {
            let value = if checked { format!("parse::checked(operation, {value})") } else { format!("Ok({value})") };
            format!(
                "fn read_{function}(operation: &str, given: {module}) -> Result<{rust}, postern_types::OpError> {{ {value} }}\n\n"
            )
        }
    })
}

/// Returns the function that gives the guest a record with a link and its attributes. The gate answers with link and
/// attributes as one value.
fn give_record(
    surface: &Surface,
    capability: &Capability,
    def: &Def,
    fields: &[Field],
    (module, rust): (&str, &str),
) -> Result<String> {
    let mut set = String::new();
    for field in fields {
        let name = snake(&field.name);
        let whole = fields.len() == 2 && def.rust.is_empty();
        let link = match field.name.as_str() {
            "attributes" => Some("link".to_owned()),
            other => other.strip_suffix("-attributes").map(snake),
        };
        let at = |field: &str| if whole { "shown".to_owned() } else { format!("shown.{field}") };
        match (link, surface.def_of(&field.ty)?) {
            (Some(link), _) => write!(set, "{name}: {}.into(), ", at(&link))?,
            (None, Some(Def { form: Form::Handle(_), name: of, .. })) => {
                let Ty::Of(interface, _) = &field.ty else { bail!("a handle has an interface") };
                write!(
                    set,
                    "{name}: self.table.push(super::{}::{} {{ handle: {}.handle }})?, ",
                    snake(interface),
                    camel(of),
                    at(&name)
                )?;
            }
            (None, _) => {
                let Shown { code, .. } = shown(surface, &field.ty, &at(&field.rust))?;
                write!(set, "{}, ", assigned(&name, &code))?;
            }
        }
    }
    Ok(format!(
        "impl State {{ fn give_{}_{}(&mut self, shown: {rust}) -> Result<{module}, Failure> {{ Ok({module} {{ {set} }}) }} }}\n\n",
        snake(&capability.name),
        snake(&def.name),
    ))
}
