//! The model of the surface: the interfaces of `wit/`, with the facts of `wit/surface.toml`.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use toml::{Table, Value};
use wit_parser::{FunctionKind, InterfaceId, Resolve, Type, TypeDefKind, TypeId};

/// The whole surface.
pub struct Surface {
    /// The version of the package.
    pub version: String,
    /// The capabilities, in the order of `wit/surface.toml`.
    pub capabilities: Vec<Capability>,
}

/// One interface.
pub struct Capability {
    /// Its name: `port-mappings`.
    pub name: String,
    /// The first part of its operations' names in the audit log; usually the interface's name.
    pub log: String,
    /// True if its table in a policy has keys.
    pub keys: bool,
    /// True if the generator writes its module of the SDK.
    pub sdk: bool,
    /// The first sentence of its comment in WIT.
    pub doc: String,
    /// The operations that its functions ask for, each once.
    pub operations: Vec<Operation>,
    /// Its functions, in the order of WIT.
    pub functions: Vec<Function>,
    /// Its own types, in the order of WIT.
    pub types: Vec<Def>,
}

/// An operation: the request of one function, or of all `set-*` functions of `link-sysctl` together.
pub struct Operation {
    /// Its name: `ensure-gateways`.
    pub name: String,
    /// The first sentence of its comment in WIT.
    pub doc: String,
    /// Its fields: name in Rust and type.
    pub fields: Vec<(String, Ty)>,
    /// The handles among the fields, each with the kind of its object.
    pub handles: Vec<(String, String)>,
    /// The text fields of which only the length is logged.
    pub secrets: BTreeSet<String>,
    /// Its reply.
    pub reply: Ty,
    /// The fact `acts` of `wit/surface.toml`.
    pub acts: String,
    /// The fact `leaves`.
    pub leaves: String,
    /// The fact `without-grant`.
    pub without_grant: Option<String>,
}

/// A function of an interface or of a resource.
pub struct Function {
    /// Its name without the resource.
    pub name: String,
    /// The resource of a method; `None` for a function of the interface.
    pub of: Option<String>,
    /// Its kind.
    pub kind: Kind,
    /// Its whole comment in WIT.
    pub docs: String,
    /// Its parameters: name in WIT, name in the operation, type. The resource of a method is not included.
    pub params: Vec<(String, String, Ty)>,
    /// The value that it returns on success.
    pub returns: Ty,
}

/// The task of a function.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    /// It asks the gate for this operation, such as `link.attributes`.
    Asks(String),
    /// It makes a value of the guest.
    Makes,
    /// It sets a field of a value.
    Sets(String),
    /// It reads a field of a value or of a handle.
    Reads(String),
}

/// A type in an operation.
#[derive(Clone, PartialEq, Eq)]
pub enum Ty {
    /// Nothing.
    Unit,
    /// `bool` or a number, by its name in Rust.
    Plain(&'static str),
    /// A string.
    String,
    /// A text that is an `IpAddr`, an `IpNet` or a `Mac`. The value is the type's name in Rust.
    Text(&'static str),
    /// A value that may be absent.
    Option(Box<Ty>),
    /// A list of values.
    List(Box<Ty>),
    /// A type of an interface: the interface's name, and the type's name.
    Of(String, String),
}

/// A type of an interface.
#[derive(Clone)]
pub struct Def {
    /// Its name in WIT.
    pub name: String,
    /// Its form.
    pub form: Form,
    /// Its name in host/types.
    pub rust: String,
    /// Its name in the SDK's module, if it has one.
    pub sdk: Option<String>,
    /// True if the type in Rust has more fields, which get their defaults.
    pub rest: bool,
    /// True if `parse::Checked` checks it.
    pub checked: bool,
}

/// The form of a type.
#[derive(Clone)]
pub enum Form {
    /// Named cases, in WIT and in Rust.
    Enum(Vec<(String, String)>),
    /// Fields.
    Record(Vec<Field>),
    /// A handle: the guest's number for an object. The text is the name of the handle's field in operations.
    Handle(String),
    /// A value that a guest makes and passes as a whole. With `spread`, it is passed field by field. The constructor
    /// takes the first `made_with` fields.
    Value { fields: Vec<Field>, made_with: usize, spread: bool },
}

/// A field of a record or of a value.
#[derive(Clone)]
pub struct Field {
    /// Its name in WIT.
    pub name: String,
    /// Its name in Rust.
    pub rust: String,
    /// Its type in Rust.
    pub ty: Ty,
    /// True if the guest sets the field to `true`, without an argument.
    pub switch: bool,
    /// True if the guest can read the field.
    pub readable: bool,
}

impl Surface {
    /// Reads `wit/`.
    pub fn read(wit: &Path) -> Result<Self> {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(wit)?;
        let text = fs::read_to_string(wit.join("surface.toml"))?;
        let facts: Table = text.parse()?;
        let interfaces = &resolve.packages.get(package).context("the package is gone")?.interfaces;
        let mut capabilities = Vec::new();
        let mut tables: Vec<_> = facts.iter().collect();
        tables.sort_by_key(|(name, _)| text.find(&format!("\n[{name}]\n")));
        for (name, facts) in tables {
            let id = interfaces.get(name).with_context(|| format!("wit/surface.toml has [{name}] of no interface"))?;
            let facts = facts.as_table().with_context(|| format!("{name} is no table"))?;
            let reader = Reader { resolve: &resolve, id: *id, name, facts };
            capabilities.push(reader.capability().with_context(|| format!("interface {name}"))?);
        }
        let unknown = interfaces.keys().find(|name| *name != "types" && !facts.contains_key(*name));
        ensure!(unknown.is_none(), "wit/surface.toml has no table for the interface {unknown:?}");
        let version = resolve.packages.get(package).and_then(|package| package.name.version.as_ref());
        let version = version.context("the package has no version")?.to_string();
        Ok(Self { version, capabilities })
    }

    /// Returns the capability of this name.
    pub fn capability(&self, name: &str) -> Result<&Capability> {
        self.capabilities.iter().find(|capability| capability.name == name).with_context(|| format!("no `{name}`"))
    }

    /// Returns a type by its interface and name. The types of the interface `types` are written by hand.
    pub fn def(&self, interface: &str, name: &str) -> Result<&Def> {
        let capability = self.capability(interface)?;
        capability.types.iter().find(|def| def.name == name).with_context(|| format!("no type `{interface}.{name}`"))
    }

    /// Returns the operation of this name, `link.attributes`.
    pub fn operation(&self, name: &str) -> Result<&Operation> {
        let (interface, name) = name.split_once('.').context("an operation has an interface")?;
        let operations = &self.capability(interface)?.operations;
        operations.iter().find(|operation| operation.name == name).with_context(|| format!("no operation {name}"))
    }
}

fn interface(resolve: &Resolve, id: InterfaceId) -> Result<String> {
    resolve.interfaces.get(id).and_then(|interface| interface.name.clone()).context("an interface has a name")
}

/// Reads one interface.
struct Reader<'a> {
    resolve: &'a Resolve,
    id: InterfaceId,
    name: &'a str,
    facts: &'a Table,
}

impl Reader<'_> {
    fn capability(&self) -> Result<Capability> {
        let interface = self.resolve.interfaces.get(self.id).context("it is gone")?;
        let mut types = Vec::new();
        for (name, id) in &interface.types {
            types.extend(self.def(name, *id).with_context(|| format!("type {name}"))?);
        }
        let mut capability = Capability {
            name: self.name.to_owned(),
            log: self.facts.get("log").and_then(Value::as_str).unwrap_or(self.name).to_owned(),
            keys: self.facts.get("keys").and_then(Value::as_bool).unwrap_or(true),
            sdk: self.facts.get("sdk").and_then(Value::as_bool).unwrap_or(false),
            doc: sentence(interface.docs.contents.as_deref()),
            operations: Vec::new(),
            functions: Vec::new(),
            types,
        };
        for function in interface.functions.values() {
            self.function(function, &mut capability).with_context(|| format!("function {}", function.name))?;
        }
        let known = |key: &String| {
            ["log", "keys", "sdk"].contains(&key.as_str())
                || capability.operations.iter().any(|operation| operation.name == *key)
                || capability.types.iter().any(|def| def.name == *key)
        };
        let unknown = self.facts.keys().find(|key| !known(key));
        ensure!(unknown.is_none(), "wit/surface.toml has {unknown:?}, which is neither a function nor a type");
        Ok(capability)
    }

    fn facts(&self, name: &str) -> Option<&Table> {
        self.facts.get(name).and_then(Value::as_table)
    }

    /// Reads a type; `None` for a type of another interface.
    fn def(&self, name: &str, id: TypeId) -> Result<Option<Def>> {
        let empty = Table::new();
        let facts = self.facts(name).unwrap_or(&empty);
        let text = |key: &str| facts.get(key).and_then(Value::as_str).map(str::to_owned);
        let is = |key: &str| facts.get(key).and_then(Value::as_bool).unwrap_or(false);
        let form = match &self.type_def(id)?.kind {
            TypeDefKind::Type(_) => return Ok(None),
            TypeDefKind::Enum(cases) => {
                Form::Enum(cases.cases.iter().map(|case| (case.name.clone(), field_name(facts, &case.name))).collect())
            }
            TypeDefKind::Record(record) => {
                let fields = record.fields.iter().map(|field| self.field(facts, &field.name, &field.ty));
                Form::Record(fields.collect::<Result<_>>()?)
            }
            TypeDefKind::Resource => self.resource(name, id, facts)?,
            other => bail!("a {} is not understood here", other.as_str()),
        };
        let rust = match &form {
            Form::Handle(_) => text("info").unwrap_or_else(|| "LinkInfo".to_owned()),
            _ => text("rust").unwrap_or_default(),
        };
        let sdk = text("sdk");
        Ok(Some(Def { name: name.to_owned(), form, rust, sdk, rest: is("rest"), checked: is("checked") }))
    }

    /// A resource with a constructor is a value of the guest; the host gives out all other resources.
    fn resource(&self, name: &str, id: TypeId, facts: &Table) -> Result<Form> {
        let interface = self.resolve.interfaces.get(self.id).context("it is gone")?;
        let own = || interface.functions.values().filter(|function| function.kind.resource() == Some(id));
        let Some(made) = own().find(|function| matches!(function.kind, FunctionKind::Constructor(_))) else {
            return Ok(Form::Handle(facts.get("as").and_then(Value::as_str).unwrap_or(name).to_owned()));
        };
        let mut fields = Vec::new();
        for param in &made.params {
            fields.push(self.field(facts, &param.name, &param.ty)?);
        }
        let made_with = fields.len();
        for function in own() {
            let Some(set) = function.item_name().strip_prefix("set-") else { continue };
            let given = function.params.iter().find(|param| param.name != "self");
            let mut field = self.field(facts, set, given.map_or(&Type::Bool, |param| &param.ty))?;
            field.switch = given.is_none();
            let optional = facts.get(set).and_then(|facts| facts.get("optional")).is_some();
            // A field that is not set is absent. For a `bool` or a list, `false` or an empty list stands for absence.
            if optional || !matches!(field.ty, Ty::Plain("bool") | Ty::List(_)) {
                field.ty = Ty::Option(Box::new(field.ty));
            }
            fields.push(field);
        }
        for field in &mut fields {
            field.readable = own().any(|function| function.item_name() == field.name);
        }
        Ok(Form::Value { fields, made_with, spread: facts.contains_key("spread") })
    }

    fn field(&self, facts: &Table, name: &str, ty: &Type) -> Result<Field> {
        let text = match facts.get(name) {
            Some(Value::String(text)) => Some(text.as_str()),
            Some(fact) => fact.get("text").and_then(Value::as_str),
            None => None,
        };
        let ty = self.ty(ty, text)?;
        Ok(Field { name: name.to_owned(), rust: field_name(facts, name), ty, switch: false, readable: false })
    }

    fn function(&self, function: &wit_parser::Function, capability: &mut Capability) -> Result<()> {
        let of = match function.kind.resource() {
            Some(id) => Some(self.type_def(id)?.name.clone().context("a resource has a name")?),
            None => None,
        };
        let own = of.as_ref().and_then(|of| capability.types.iter().find(|def| def.name == *of));
        let name = function.item_name();
        let (returns, can_fail) = self.returns(function.result.as_ref())?;
        let kind = match own.map(|def| &def.form) {
            Some(Form::Value { .. }) if matches!(function.kind, FunctionKind::Constructor(_)) => Kind::Makes,
            Some(Form::Value { .. }) => match name.strip_prefix("set-") {
                Some(field) => Kind::Sets(field.to_owned()),
                None => Kind::Reads(name.to_owned()),
            },
            Some(Form::Handle(_)) if !can_fail => Kind::Reads(name.to_owned()),
            // The attributes of any handle can be read.
            Some(Form::Handle(_)) if name == "attributes" => Kind::Asks("link.attributes".to_owned()),
            _ if name.starts_with("set-") => Kind::Asks(format!("{}.set", self.name)),
            _ => Kind::Asks(format!("{}.{name}", self.name)),
        };
        let row = match &kind {
            Kind::Asks(operation) => operation.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('.')),
            _ => None,
        };
        let facts = row.and_then(|row| self.facts(row));
        let empty = Table::new();
        let mut params = Vec::new();
        for param in function.params.iter().filter(|param| param.name != "self") {
            let text = facts.unwrap_or(&empty).get(&param.name).and_then(Value::as_str);
            let ty = self.ty(&param.ty, text)?;
            params.push((param.name.clone(), snake(&param.name), ty));
        }
        if let Some(row) = row
            && !capability.operations.iter().any(|operation| operation.name == row)
        {
            let facts = facts.with_context(|| format!("wit/surface.toml has no row for {row}"))?;
            let operation = self.operation(row, function, own, &params, &returns, facts, &capability.types)?;
            capability.operations.push(operation);
        }
        let docs = function.docs.contents.clone().unwrap_or_default();
        capability.functions.push(Function { name: name.to_owned(), of, kind, docs, params, returns });
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "it joins what WIT and the table say of one function")]
    fn operation(
        &self,
        name: &str,
        function: &wit_parser::Function,
        own: Option<&Def>,
        params: &[(String, String, Ty)],
        returns: &Ty,
        facts: &Table,
        types: &[Def],
    ) -> Result<Operation> {
        let mut fields = Vec::new();
        if let Some(Def { name, form: Form::Handle(called), .. }) = own {
            fields.push((snake(called), Ty::Of(self.name.to_owned(), name.clone())));
        }
        if function.item_name().starts_with("set-") {
            // The key is the function's name.
            fields.push(("link".to_owned(), Ty::Of("link".to_owned(), "link".to_owned())));
            fields.push(("key".to_owned(), Ty::Of(self.name.to_owned(), "key".to_owned())));
            fields.push(("value".to_owned(), Ty::Plain("bool")));
        } else {
            for (_, called, ty) in params {
                match ty {
                    Ty::Of(of, value) if *of == self.name => {
                        let def = types.iter().find(|def| def.name == *value);
                        match def.map(|def| &def.form) {
                            Some(Form::Value { fields: spread, spread: true, .. }) => {
                                fields.extend(spread.iter().map(|field| (field.rust.clone(), field.ty.clone())));
                            }
                            Some(Form::Value { .. }) => {
                                let called =
                                    self.facts(value).and_then(|facts| facts.get("as")).and_then(Value::as_str);
                                fields.push((snake(called.unwrap_or(value)), ty.clone()));
                            }
                            _ => fields.push((called.clone(), ty.clone())),
                        }
                    }
                    _ => fields.push((called.clone(), ty.clone())),
                }
            }
        }
        let fact = |key: &str| facts.get(key).and_then(Value::as_str).map(str::to_owned);
        let needed = |key: &str| fact(key).with_context(|| format!("its row has no `{key}`"));
        let mut handles = Vec::new();
        let mut secrets = BTreeSet::new();
        for (field, ty) in &fields {
            match fact(&field.replace('_', "-")) {
                Some(fact) if fact == "secret" => {
                    ensure!(*ty == Ty::String, "{field} is no text");
                    secrets.insert(field.clone());
                }
                Some(fact) if text_type(&fact).is_none() => handles.push((field.clone(), camel(&fact))),
                Some(_) | None => {}
            }
        }
        let names: BTreeSet<_> = fields.iter().map(|(field, _)| field.replace('_', "-")).collect();
        let own = |key: &str| matches!(key, "acts" | "leaves" | "without-grant") || names.contains(key);
        let unknown = facts.keys().find(|key| !own(key));
        ensure!(unknown.is_none(), "its row has {unknown:?}, which is none of its parameters");
        Ok(Operation {
            name: name.to_owned(),
            doc: sentence(function.docs.contents.as_deref()),
            fields,
            handles,
            secrets,
            reply: returns.clone(),
            acts: camel(&needed("acts")?),
            leaves: camel(&needed("leaves")?),
            without_grant: fact("without-grant").map(|grant| camel(&grant)),
        })
    }

    /// Returns the type of a success, and true if the function can fail.
    fn returns(&self, result: Option<&Type>) -> Result<(Ty, bool)> {
        let Some(result) = result else { return Ok((Ty::Unit, false)) };
        if let Type::Id(id) = result
            && let TypeDefKind::Result(result) = &self.type_def(*id)?.kind
        {
            let ok = result.ok.as_ref().map(|ok| self.ty(ok, None)).transpose()?;
            return Ok((ok.unwrap_or(Ty::Unit), true));
        }
        Ok((self.ty(result, None)?, false))
    }

    fn ty(&self, ty: &Type, text: Option<&str>) -> Result<Ty> {
        Ok(match ty {
            Type::Bool => Ty::Plain("bool"),
            Type::U8 => Ty::Plain("u8"),
            Type::U16 => Ty::Plain("u16"),
            Type::U32 => Ty::Plain("u32"),
            Type::U64 => Ty::Plain("u64"),
            Type::String => text.and_then(text_type).map_or(Ty::String, Ty::Text),
            Type::Id(id) => match &self.type_def(*id)?.kind {
                TypeDefKind::Option(inner) => Ty::Option(Box::new(self.ty(inner, text)?)),
                TypeDefKind::List(inner) => Ty::List(Box::new(self.ty(inner, text)?)),
                TypeDefKind::Handle(wit_parser::Handle::Own(id) | wit_parser::Handle::Borrow(id)) => self.named(*id)?,
                TypeDefKind::Type(inner) => self.ty(inner, text)?,
                _ => self.named(*id)?,
            },
            other => bail!("a {other:?} is not understood here"),
        })
    }

    /// Returns a type with the interface that defines it.
    fn named(&self, id: TypeId) -> Result<Ty> {
        let def = self.type_def(id)?;
        if let TypeDefKind::Type(Type::Id(id)) = def.kind {
            return self.named(id);
        }
        let wit_parser::TypeOwner::Interface(owner) = def.owner else { bail!("a type has an interface") };
        Ok(Ty::Of(interface(self.resolve, owner)?, def.name.clone().context("a type has a name")?))
    }

    fn type_def(&self, id: TypeId) -> Result<&wit_parser::TypeDef> {
        self.resolve.types.get(id).context("a type is gone")
    }
}

/// Returns the type of a text of this form.
fn text_type(form: &str) -> Option<&'static str> {
    match form {
        "ip" => Some("IpAddr"),
        "cidr" => Some("IpNet"),
        "mac" => Some("Mac"),
        _ => None,
    }
}

/// Returns a field's or case's name in Rust.
fn field_name(facts: &Table, name: &str) -> String {
    let named = facts.get(name).and_then(|fact| fact.get("field")).and_then(Value::as_str);
    snake(named.unwrap_or(name))
}

/// Returns the first sentence of a comment.
fn sentence(docs: Option<&str>) -> String {
    let docs = docs.unwrap_or_default();
    let paragraph = docs.split("\n\n").next().unwrap_or_default().replace('\n', " ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
    paragraph.get(..end).unwrap_or_default().trim().to_owned()
}

/// Returns `port-mappings` as `port_mappings`.
pub fn snake(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns `port-mappings` as `PortMappings`.
pub fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    name.split(['-', '_']).map(capital).collect()
}
