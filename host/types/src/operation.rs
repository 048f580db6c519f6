//! Facts about operations that the files of `surface` lack.

use crate::log::Line;
use crate::{ActsIn, Capability, Lasting, Operation};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// A guest's number for an object that the gate has given to one run. The number alone means nothing. For each handle
/// the gate keeps the kind, index and name of the object, and checks the kind at every use.
pub type Handle = u32;

impl Capability {
    /// Returns the capability with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|capability| capability.name() == name)
    }

    /// True if some operations of the capability act in the container's namespace.
    pub fn acts_in_container(self) -> bool {
        self.rows().iter().any(|row| matches!(row.acts, ActsIn::Container | ActsIn::Both))
    }

    /// True if an operation of the capability makes the attachment's own link.
    pub fn makes_links(self) -> bool {
        self.rows().iter().any(|row| row.lasting == Lasting::Link)
    }

    /// True if the attachment's record lists effects of some operations of the capability.
    pub fn is_recorded(self) -> bool {
        self.rows().iter().any(|row| row.lasting.is_recorded())
    }

    /// True if some operations of the capability act in a network namespace, by netlink or a sysctl.
    pub fn acts_in_kernel(self) -> bool {
        self.rows().iter().any(|row| row.acts != ActsIn::Nowhere)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Operation {
    /// Returns the WIT interface and function, for messages and the audit log.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// Returns the kind of effect that the operation leaves.
    pub fn lasting(&self) -> Lasting {
        self.row().lasting
    }

    /// Returns the operation as the audit log has it.
    pub fn logged(&self) -> Logged<'_> {
        Logged(self)
    }
}

/// An operation in the audit log: `{"op":"bridge-find","name":"cni0"}`. An absent value has no key.
#[derive(Debug)]
pub struct Logged<'a>(&'a Operation);

impl Serialize for Logged<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = Line(serializer.serialize_map(None)?);
        line.0.serialize_entry("op", self.0.row().log)?;
        self.0.log(&mut line)?;
        line.0.end()
    }
}
