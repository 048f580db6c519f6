//! The request of the runtime.

use crate::error::Error;
use crate::plugin::CONFIGURATION_LIMIT;
use postern_cni::{Args, CniResult, CniRoute, Dns, Env, Fields, Interface, Json, NetConf, Verb, Version};

/// One call of the plugin. The host has validated environment and configuration; a plugin reads the parts that it
/// needs.
#[derive(Clone, Debug)]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The `CNI_*` variables.
    pub env: Env,
    /// The version of the configuration, which the plugin supports.
    pub version: Version,
    /// The configuration as it was written, without GC's lists of valid attachments. The lists are long, and the host
    /// uses them itself ([`attachments::collect`](crate::attachments::collect)). [`Request::conf`] returns the lists
    /// too.
    pub json: Json,
    /// Standard input, byte for byte.
    pub stdin: Vec<u8>,
}

impl Request {
    /// Returns the configuration with the keys that every plugin has.
    ///
    /// # Errors
    /// Code 999 for a key of the wrong type.
    pub fn conf(&self) -> Result<NetConf, Error> {
        let json = match self.verb {
            Verb::Gc => Json::parse(&self.stdin, CONFIGURATION_LIMIT)?,
            _ => self.json.clone(),
        };
        Ok(NetConf::parse(json)?)
    }

    /// Returns `ipam.type`, the plugin to delegate to; empty if absent. For GC this function is much cheaper than
    /// [`Request::conf`].
    ///
    /// # Errors
    /// Code 999 for a key of the wrong type, as for [`Request::conf`].
    pub fn ipam_type(&self) -> Result<String, Error> {
        Ok(NetConf::parse(self.json.clone())?.ipam_type)
    }

    /// Returns `CNI_ARGS`, for a plugin that knows the keys `known`.
    ///
    /// # Errors
    /// Code 999 for a malformed pair, or for another key unless `IgnoreUnknown` is set.
    pub fn args(&self, known: &[&str]) -> Result<Args, Error> {
        Ok(Args::parse(&self.env.args, known)?)
    }

    /// Returns the container's interface in `result`: the interface named `CNI_IFNAME` in the sandbox `CNI_NETNS`.
    ///
    /// # Errors
    /// Code 999 if the result lacks this interface.
    pub fn own_interface<'r>(&self, result: &'r CniResult) -> Result<&'r Interface, Error> {
        let own = |interface: &&Interface| interface.name == self.env.ifname && interface.sandbox == self.env.netns;
        // The double blank in the message comes from native plugins: they print an empty sandbox between the blanks.
        result.interfaces.iter().rfind(own).ok_or_else(|| {
            let netns = &self.env.netns;
            Error::new(format!("Sandbox in prevResult  doesn't match configured netns: {netns}"))
        })
    }
}

/// Returns the configuration's `dns` if it has any key. This `dns` replaces IPAM's `dns`.
///
/// # Errors
/// Code 999 for a key of the wrong type.
pub fn dns_override(conf: &NetConf) -> Result<Option<Dns>, Error> {
    let Some(dns) = conf.fields().object("dns")? else { return Ok(None) };
    let lists = dns.list("nameservers")?.or(dns.list("search")?).or(dns.list("options")?);
    Ok((lists.is_some() || !conf.dns.domain.is_empty()).then(|| conf.dns.clone()))
}

/// Returns the key `mtu`, in bytes; `None` for 0 and less, so that the kernel chooses the MTU.
///
/// # Errors
/// Code 999 for a value of the wrong type, code 7 for a value that is too large.
pub fn mtu(fields: &Fields<'_>) -> Result<Option<u32>, Error> {
    match fields.int("mtu")? {
        Some(mtu) if mtu > 0 => {
            u32::try_from(mtu).map(Some).map_err(|_| Error::config(format!("mtu {mtu} is out of range")))
        }
        _ => Ok(None),
    }
}

/// Returns the list of routes under the key `routes`, attributes of 1.1.0 included. IPAM plugins pass the list on
/// unchanged.
///
/// # Errors
/// Code 999 for a key of the wrong type, a malformed address, or a route without `dst`. No plugin could read a result
/// with this route.
pub fn routes(fields: &Fields<'_>) -> Result<Vec<CniRoute>, Error> {
    let read = |route: &Fields<'_>| {
        Ok(CniRoute {
            dst: Some(route.cidr("dst")?.ok_or_else(|| Error::new("an entry of 'routes' has no 'dst'"))?),
            gw: route.ip("gw")?,
            mtu: route.int("mtu")?.unwrap_or(0),
            advmss: route.int("advmss")?.unwrap_or(0),
            priority: route.int("priority")?.unwrap_or(0),
            table: route.int("table")?,
            scope: route.int("scope")?,
        })
    };
    fields.objects("routes")?.unwrap_or_default().iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> NetConf {
        NetConf::parse(Json::parse(text.as_bytes(), 1000).unwrap()).unwrap()
    }

    #[test]
    fn dns_counts_as_soon_as_a_key_is_given() {
        for (text, given) in [
            ("{}", false),
            (r#"{"dns":{}}"#, false),
            (r#"{"dns":{"domain":""}}"#, false),
            (r#"{"dns":{"domain":"a"}}"#, true),
            (r#"{"dns":{"nameservers":[]}}"#, true),
            (r#"{"dns":{"search":["a"]}}"#, true),
            (r#"{"dns":{"options":[]}}"#, true),
        ] {
            assert_eq!(dns_override(&conf(text)).unwrap().is_some(), given, "{text}");
        }
    }

    #[test]
    fn routes_with_every_attribute() {
        let conf = conf(
            r#"{"routes":[{"dst":"10.1.2.3/8","gw":"1.2.3.4","mtu":1,"advmss":2,"priority":3,"table":0,"scope":0}]}"#,
        );
        let routes = routes(&conf.fields()).unwrap();
        assert_eq!(routes.first().unwrap().table, Some(0));
        assert_eq!(routes.first().unwrap().dst.unwrap().to_string(), "10.1.2.3/8");
    }
}
