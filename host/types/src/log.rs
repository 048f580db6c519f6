//! The form of values in JSON, for the audit log and the record: an absent value has no key.
//!
//! The channel has the same values in a form without keys. In this form no value may be left out.

use crate::{
    Backend, DeviceKey, Dns, IngressPolicy, IpvlanMode, LinkSettings, LinkSysctl, Mac, MacvlanMode, NatSources,
    PortSpec, RateLimit, TapSettings,
};
use ipnet::IpNet;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::net::IpAddr;

/// A value that can be absent.
pub trait Absent {
    /// True if the value is absent.
    fn is_absent(&self) -> bool {
        false
    }
}

impl<T> Absent for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T> Absent for Vec<T> {}

/// Values of these types are always present, like lists.
macro_rules! present {
    ($($name:ty),+ $(,)?) => {
        $(impl Absent for $name {})+
    };
}

present!(bool, u8, u16, u32, u64, usize, String, IpAddr, IpNet, Mac);
present!(Backend, DeviceKey, IngressPolicy, IpvlanMode, LinkSysctl, MacvlanMode, NatSources);
present!(Dns, LinkSettings, PortSpec, RateLimit, TapSettings);

/// One operation in the audit log, while it is written.
pub struct Line<M>(pub M);

impl<M: SerializeMap> Line<M> {
    /// Adds a field, unless its value is absent.
    pub fn add(&mut self, key: &'static str, value: &(impl Serialize + Absent)) -> Result<(), M::Error> {
        if value.is_absent() { Ok(()) } else { self.0.serialize_entry(key, value) }
    }
}

/// Makes a value whose absent fields have no key in JSON. `serde`'s own attribute would also leave these fields out of
/// the channel's form.
macro_rules! sparse {
    ($($name:ident { $($field:ident $(as $key:literal)?),+ $(,)? })+) => {
        $(impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                use $crate::log::Absent;
                let Self { $($field),+ } = self;
                let in_json = serializer.is_human_readable();
                let mut value = serializer.serialize_struct(stringify!($name), [$(stringify!($field)),+].len())?;
                $({
                    let key = $crate::log::key!($field $(as $key)?);
                    if in_json && $field.is_absent() { value.skip_field(key)? } else { value.serialize_field(key, $field)? }
                })+
                value.end()
            }
        })+
    };
}

/// Returns a field's key.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident as $key:literal) => {
        $key
    };
}

pub(crate) use {key, sparse};
