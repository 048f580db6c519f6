//! Writes host/types/src/surface: the operations of each capability, the traits that answer the operations, and tables
//! of the operations' facts.

use crate::Written;
use crate::code::{doc, heading, imports};
use crate::model::{Capability, Operation, Surface, camel, snake};
use anyhow::Result;
use std::fmt::Write;

/// The types of host/types that an operation or a reply can have.
const VALUES: &[&str] = &[
    "Address",
    "Backend",
    "BridgeInfo",
    "DeviceKey",
    "DhcpLease",
    "Dns",
    "Forward",
    "Handle",
    "IngressPolicy",
    "IpvlanInfo",
    "IpvlanMode",
    "LeaseGrant",
    "LeaseRange",
    "LinkInfo",
    "LinkSettings",
    "LinkSysctl",
    "LoopbackState",
    "Mac",
    "MacvlanInfo",
    "MacvlanMode",
    "NatSources",
    "OpError",
    "PortSpec",
    "RateLimit",
    "Reply",
    "Route",
    "RouteSource",
    "SubnetFile",
    "TapSettings",
    "VethPair",
    "VlanInfo",
];

/// Returns a file for each capability, and one file for all capabilities.
pub fn files(surface: &Surface) -> Result<Vec<Written>> {
    let mut files = vec![("host/types/src/surface/mod.rs".into(), all(surface)?)];
    for capability in &surface.capabilities {
        let path = format!("host/types/src/surface/{}.rs", snake(&capability.name));
        files.push((path.into(), one(surface, capability)?));
    }
    Ok(files)
}

/// Returns the file of one capability.
fn one(surface: &Surface, capability: &Capability) -> Result<String> {
    let name = camel(&capability.name);
    let (mut variants, mut answers, mut asks, mut rows) = (String::new(), String::new(), String::new(), String::new());
    let (mut row_of, mut handles, mut logged) = (String::new(), String::new(), String::new());
    for operation in &capability.operations {
        let variant = camel(&operation.name);
        let constant = snake(&operation.name).to_uppercase();
        let method = snake(&operation.name);
        let fields = fields(surface, operation, &name)?;
        let list = |each: &dyn Fn(&str) -> String| -> String { fields.iter().map(|(field, ..)| each(field)).collect() };
        let pattern = if fields.is_empty() { String::new() } else { format!("{{ {} }}", list(&|f| format!("{f}, "))) };
        let any = if fields.is_empty() { "" } else { "{ .. }" };
        let typed: String = fields.iter().map(|(field, ty, _)| format!("{field}: {ty}, ")).collect();
        let body = if fields.is_empty() { String::new() } else { format!("{{ {typed} }}") };
        writeln!(variants, "{}{variant}{body},", doc(&operation.doc))?;
        let params: String = fields.iter().map(|(field, _, lent)| format!(", {field}: {lent}")).collect();
        let reply = surface.rust(&operation.reply, None)?;
        let full = format!("{}.{}", capability.name, operation.name);
        writeln!(answers, "/// Answers `{full}`.")?;
        write!(answers, "fn {method}(&mut self{params}) -> Result<{reply}, OpError>;\n\n")?;
        let mut given = Vec::new();
        for ((field, _, _), (_, ty)) in fields.iter().zip(&operation.fields) {
            given.push(if surface.is_copied(ty)? { format!("*{field}") } else { field.clone() });
        }
        let given = given.join(", ");
        writeln!(asks, "Self::{variant} {pattern} => node.{method}({given}).and_then(|reply| Reply::of(&reply)),")?;
        writeln!(rows, "const {constant}: Row = {};", row(capability, operation))?;
        writeln!(row_of, "Self::{variant} {any} => &{constant},")?;
        if !operation.handles.is_empty() {
            let named: String = operation.handles.iter().map(|(field, _)| format!("{field}, ")).collect();
            let pairs: Vec<_> =
                operation.handles.iter().map(|(field, takes)| format!("({field}, Takes::{takes})")).collect();
            writeln!(handles, "Self::{variant} {{ {named} .. }} => vec![{}],", pairs.join(", "))?;
        }
        let added = list(&|field| match operation.secrets.contains(field) {
            true => format!("line.add(\"{field}_bytes\", &{field}.len())?;"),
            false => format!("line.add(\"{field}\", {field})?;"),
        });
        writeln!(logged, "Self::{variant} {pattern} => {{ {added} }}")?;
    }
    if handles.lines().count() < capability.operations.len() {
        handles.push_str("_ => Vec::new(),\n");
    }
    let (line, logged) = match logged.contains("add") {
        true => ("line", format!("match self {{ {logged} }}")),
        false => ("_line", String::new()),
    };
    let constants: Vec<_> =
        capability.operations.iter().map(|operation| snake(&operation.name).to_uppercase()).collect();
    let handles = match handles.as_str() {
        "_ => Vec::new(),\n" => "Vec::new()".to_owned(),
        handles => format!("match self {{ {handles} }}"),
    };
    let code = format!(
        "{rows}
         /// The operations of `{wit}`.
         #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
         #[serde(rename_all = \"kebab-case\")]
         #[allow(missing_docs, reason = \"a variant's own line and `wit/{wit}.wit` describe its fields\")]
         pub enum {name} {{ {variants} }}

         /// Answers the operations. Each function returns the reply, or the error that the guest gets.
         pub trait Host {{ {answers} }}

         impl {name} {{
             /// Lets `node` answer this operation.
             ///
             /// # Errors
             /// The error that the guest gets.
             pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {{
                 match self {{ {asks} }}
             }}

             pub(super) fn log<M: SerializeMap>(&self, {line}: &mut Line<M>) -> Result<(), M::Error> {{
                 {logged}
                 Ok(())
             }}
         }}

         impl From<{name}> for Operation {{
             fn from(operation: {name}) -> Self {{
                 Self::{name}(operation)
             }}
         }}

         impl OperationTable for {name} {{
             const ROWS: &'static [Row] = &[{constants}];

             fn row(&self) -> &'static Row {{
                 match self {{ {row_of} }}
             }}

             fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {{
                 {handles}
             }}
         }}
        ",
        wit = capability.name,
        constants = constants.join(", "),
    );
    let imported = imports(
        &code,
        &[
            ("crate::log", &["Line"]),
            ("crate::table", &["ActsIn", "Lasting", "OperationTable", "Row", "Takes", "WithoutGrant"]),
            ("super", &["Operation"]),
            ("crate", &VALUES.iter().copied().filter(|value| *value != name).collect::<Vec<_>>()),
            ("ipnet", &["IpNet"]),
            ("serde", &["Deserialize", "Serialize"]),
            ("serde::ser", &["SerializeMap"]),
            ("std::net", &["IpAddr"]),
        ],
    );
    let about = capability.doc.trim_end_matches('.');
    Ok(format!("{}{imported}\n{code}", heading(&format!("`{}`: {}.", capability.name, lower(about)))))
}

/// Returns for each field of an operation its name, its type in the enum, and its type as a parameter.
fn fields(surface: &Surface, operation: &Operation, own: &str) -> Result<Vec<(String, String, String)>> {
    let mut fields = Vec::new();
    for (field, ty) in &operation.fields {
        // An operation can have the same name as a value of its capability.
        let distinct = |name: String| {
            if name.trim_start_matches('&') == own { name.replace(own, &format!("crate::{own}")) } else { name }
        };
        fields.push((
            field.clone(),
            distinct(surface.rust(ty, Some("Handle"))?),
            distinct(surface.lent(ty, "Handle")?),
        ));
    }
    Ok(fields)
}

fn row(capability: &Capability, operation: &Operation) -> String {
    let Operation { name, acts, leaves, without_grant, .. } = operation;
    let without_grant =
        without_grant.as_ref().map_or(String::new(), |grant| format!(".without_grant(WithoutGrant::{grant})"));
    format!(
        "Row::new(\"{wit}.{name}\", \"{log}-{name}\", ActsIn::{acts}, Lasting::{leaves}){without_grant}",
        wit = capability.name,
        log = capability.log,
    )
}

/// Returns the file of all capabilities.
fn all(surface: &Surface) -> Result<String> {
    let each = |line: &dyn Fn(&str, &str, &str) -> String| -> String {
        let of = |capability: &Capability| line(&camel(&capability.name), &snake(&capability.name), &capability.name);
        surface.capabilities.iter().map(of).collect()
    };
    let modules = each(&|_, file, _| format!("mod {file};\n"));
    let hosts: Vec<_> =
        surface.capabilities.iter().map(|capability| format!("host::{}", camel(&capability.name))).collect();
    Ok(format!(
        "{heading}{modules}
         use crate::log::Line;
         use crate::table::{{OperationTable, Row, Takes}};
         use crate::{{Handle, OpError, Reply}};
         use serde::ser::SerializeMap;
         use serde::{{Deserialize, Serialize}};

         /// The operations: an enum for each capability.
         pub mod ops {{ {ops} }}

         /// The traits that answer the operations, one for each capability.
         pub mod host {{ {host} }}

         /// A WIT interface with privileges, which a policy grants. The order is that of `wit/surface.toml`.
         #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
         #[allow(missing_docs, reason = \"`wit/` describes each\")]
         pub enum Capability {{ {variants} }}

         impl Capability {{
             /// All capabilities.
             pub const ALL: &'static [Self] = &[{all}];

             /// The name of the WIT interface, and of the policy's table.
             pub const fn name(self) -> &'static str {{
                 match self {{ {names} }}
             }}

             /// The rows of the capability's operations.
             pub const fn rows(self) -> &'static [Row] {{
                 match self {{ {rows} }}
             }}
         }}

         /// One privileged request. If it lacks names, paths or keys, the gate takes them from the operator's
         /// configuration, the run's environment or its own record.
         #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
         #[serde(rename_all = \"kebab-case\")]
         #[allow(missing_docs, reason = \"`wit/` describes each\")]
         pub enum Operation {{ {operations} }}

         /// Answers every operation.
         pub trait Host: {hosts} {{}}

         impl Operation {{
             /// Lets `node` answer this operation.
             ///
             /// # Errors
             /// The error that the guest gets.
             pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {{
                 match self {{ {asks} }}
             }}

             /// Returns the capability that policy has to grant.
             pub fn capability(&self) -> Capability {{
                 match self {{ {capability} }}
             }}

             /// Returns the operation's row in the table of the capability.
             pub fn row(&self) -> &'static Row {{
                 match self {{ {row} }}
             }}

             /// Returns the operation's handles, each with the kind of object that the handle must stand for.
             pub fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {{
                 match self {{ {handles} }}
             }}

             pub(crate) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {{
                 match self {{ {log} }}
             }}
         }}

        ",
        heading = heading("All that a guest can ask for, by capability."),
        ops = each(&|name, file, _| format!("pub use super::{file}::{name};\n")),
        host = each(&|name, file, _| format!("pub use super::{file}::Host as {name};\n")),
        variants = each(&|name, _, _| format!("{name}, ")),
        all = each(&|name, _, _| format!("Self::{name}, ")),
        names = each(&|name, _, wit| format!("Self::{name} => \"{wit}\", ")),
        rows = each(&|name, _, _| format!("Self::{name} => ops::{name}::ROWS, ")),
        operations = each(&|name, _, _| format!("{name}(ops::{name}), ")),
        hosts = hosts.join(" + "),
        asks = each(&|name, _, _| format!("Self::{name}(operation) => operation.ask(node), ")),
        capability = each(&|name, _, _| format!("Self::{name}(_) => Capability::{name}, ")),
        row = each(&|name, _, _| format!("Self::{name}(operation) => operation.row(), ")),
        handles = each(&|name, _, _| format!("Self::{name}(operation) => operation.handles(), ")),
        log = each(&|name, _, _| format!("Self::{name}(operation) => operation.log(line), ")),
    ))
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}
