//! The keys of portmap, for the plugin and for the host. Only the host uses the keys for the packet filter, such as
//! `backend`.

use crate::{Error, Fields, Json, NetConf};

/// An entry of `runtimeConfig.portMappings`, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// `hostPort`, above 0.
    pub host_port: i64,
    /// `containerPort`, above 0.
    pub container_port: i64,
    /// `protocol`; empty if absent.
    pub protocol: String,
    /// `hostIP`; empty if absent.
    pub host_ip: String,
}

/// The keys of portmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMap {
    /// `runtimeConfig.portMappings`.
    pub mappings: Vec<PortMapping>,
    /// `backend`.
    pub backend: Option<String>,
    /// `snat`, true by default.
    pub snat: bool,
    /// `masqAll`.
    pub masq_all: bool,
    /// `markMasqBit`, 0 to 31.
    pub mark_bit: Option<u8>,
    /// `externalSetMarkChain`.
    pub set_mark_chain: Option<String>,
    /// `conditionsV4` and `conditionsV6`.
    pub conditions: [Option<Vec<String>>; 2],
}

/// The names of the keys with conditions.
pub const CONDITIONS: [&str; 2] = ["conditionsV4", "conditionsV6"];

impl PortMap {
    /// Reads the keys.
    ///
    /// # Errors
    /// Code 999, with the native plugin's texts.
    pub fn read(conf: &NetConf) -> Result<Self, Error> {
        let fields = conf.raw().fields("PortMapConf").unwrap_or_else(|_| Fields::none("PortMapConf"));
        let decode = || -> Result<(Option<i64>, Self), Error> {
            let bit = fields.int("markMasqBit")?;
            let read = Self {
                mappings: Self::mappings_of(&conf.runtime_config()?)?,
                backend: fields.string("backend")?,
                snat: fields.bool("snat")?.unwrap_or(true),
                masq_all: fields.bool("masqAll")?.unwrap_or(false),
                mark_bit: bit.and_then(|bit| u8::try_from(bit).ok()),
                set_mark_chain: fields.string("externalSetMarkChain")?,
                conditions: [fields.strings("conditionsV4")?, fields.strings("conditionsV6")?],
            };
            Ok((bit, read))
        };
        let (bit, read) = decode().map_err(|error| error.context("failed to parse network configuration"))?;
        if bit.is_some() && read.set_mark_chain.is_some() {
            return Err(Error::internal("Cannot specify externalSetMarkChain and markMasqBit"));
        }
        if bit.is_some_and(|bit| !(0..=31).contains(&bit)) {
            return Err(Error::internal("MasqMarkBit must be between 0 and 31"));
        }
        for mapping in &read.mappings {
            for (whose, port) in [("container", mapping.container_port), ("host", mapping.host_port)] {
                if port <= 0 {
                    return Err(Error::internal(format!("Invalid {whose} port number: {port}")));
                }
            }
        }
        Ok(read)
    }

    /// Returns the packet filter that the configuration names or implies: `iptables` or `nftables`. `None` means the
    /// node's default.
    ///
    /// # Errors
    /// Code 999, with the native plugin's texts: an unknown backend, or options of the other backend.
    pub fn backend(&self) -> Result<Option<&'static str>, Error> {
        let of_conditions = |wanted: bool| {
            let is_of = |first: &String| first.starts_with(['-', '!']) == wanted;
            let names = CONDITIONS.into_iter().zip(&self.conditions);
            let names = names.filter(|(_, words)| words.iter().flatten().next().is_some_and(is_of));
            names.map(|(name, _)| name).collect::<Vec<_>>()
        };
        let (mut of_iptables, of_nftables) = (of_conditions(true), of_conditions(false));
        if self.set_mark_chain.is_some() {
            of_iptables.insert(0, "externalSetMarkChain");
        }
        let named = match self.backend.as_deref() {
            Some("iptables") => Some("iptables"),
            Some("nftables") => Some("nftables"),
            Some(other) => return Err(Error::internal(format!("unrecognized backend \"{other}\""))),
            None if !of_iptables.is_empty() || self.mark_bit.is_some() => Some("iptables"),
            None if !of_nftables.is_empty() => Some("nftables"),
            None => None,
        };
        let (foreign, others) = match named {
            Some("iptables") => (of_nftables, "nftables"),
            Some(_) => (of_iptables, "iptables"),
            None => return Ok(None),
        };
        match foreign.as_slice() {
            [] => Ok(named),
            some => Err(Error::internal(format!(
                "{} backend was requested but configuration contains {others}-specific options [{}]",
                named.unwrap_or_default(),
                some.join(" ")
            ))),
        }
    }

    fn mappings_of(runtime: &Fields<'_>) -> Result<Vec<PortMapping>, Error> {
        let Some(list) = runtime.list("portMappings")? else { return Ok(Vec::new()) };
        // Messages name the structure `PortMapEntry` alone: with the full path, each mapping would copy the path.
        let read = |mapping: &Json| {
            let wrong = |_| runtime.mismatch("portMappings", mapping, "main.PortMapEntry");
            let fields = mapping.fields("PortMapEntry").map_err(wrong)?;
            Ok(PortMapping {
                host_port: fields.int("hostPort")?.unwrap_or(0),
                container_port: fields.int("containerPort")?.unwrap_or(0),
                protocol: fields.string("protocol")?.unwrap_or_default(),
                host_ip: fields.string("hostIP")?.unwrap_or_default(),
            })
        };
        list.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<PortMap, String> {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"n"{keys}}}"#);
        let conf = NetConf::parse(Json::parse(text.as_bytes(), 4096).unwrap()).unwrap();
        PortMap::read(&conf).map_err(|error| error.msg)
    }

    #[test]
    fn keys_match_in_any_case() {
        let map = read(
            r#","SNAT":false,"masqAll":true,"markMasqBit":5,"conditionsV4":["-s","10.0.0.1"],
            "runtimeConfig":{"portMappings":[{"HostPort":80,"ContainerPort":81,"Protocol":"tcp","HostIP":"127.0.0.1"}]}"#,
        )
        .unwrap();
        let mapping =
            PortMapping { host_port: 80, container_port: 81, protocol: "tcp".into(), host_ip: "127.0.0.1".into() };
        assert_eq!(map.mappings, [mapping]);
        assert_eq!((map.snat, map.masq_all, map.mark_bit), (false, true, Some(5)));
        assert_eq!(map.conditions, [Some(vec!["-s".to_owned(), "10.0.0.1".to_owned()]), None]);
        assert!(read("").unwrap().snat);
    }

    #[test]
    fn the_backend_follows_from_the_options() {
        let backend = |keys: &str| read(keys).unwrap().backend().map_err(|error| error.msg);
        assert_eq!(backend(""), Ok(None));
        assert_eq!(backend(r#","conditionsV4":[],"backend":"nftables","markMasqBit":3"#), Ok(Some("nftables")));
        assert_eq!(backend(r#","conditionsV6":["!","-d","::1"]"#), Ok(Some("iptables")));
        assert_eq!(backend(r#","conditionsV4":["ip","daddr","1.2.3.4"]"#), Ok(Some("nftables")));
        assert_eq!(backend(r#","externalSetMarkChain":"X""#), Ok(Some("iptables")));
        assert_eq!(backend(r#","backend":"pf""#), Err("unrecognized backend \"pf\"".to_owned()));
        let iptables = "iptables backend was requested but configuration contains nftables-specific options";
        let nftables = "nftables backend was requested but configuration contains iptables-specific options";
        for (keys, message) in [
            (r#","markMasqBit":3,"conditionsV4":["ip"]"#, format!("{iptables} [conditionsV4]")),
            (r#","conditionsV4":["-d"],"conditionsV6":["ip6"]"#, format!("{iptables} [conditionsV6]")),
            (
                r#","backend":"iptables","conditionsV4":["ip"],"conditionsV6":["ip6"]"#,
                format!("{iptables} [conditionsV4 conditionsV6]"),
            ),
            (
                r#","backend":"nftables","externalSetMarkChain":"X","conditionsV4":["-d"]"#,
                format!("{nftables} [externalSetMarkChain conditionsV4]"),
            ),
        ] {
            assert_eq!(backend(keys), Err(message));
        }
    }

    #[test]
    fn errors_are_the_native_ones() {
        for (keys, message) in [
            (r#","markMasqBit":3,"externalSetMarkChain":"X""#, "Cannot specify externalSetMarkChain and markMasqBit"),
            (r#","markMasqBit":32"#, "MasqMarkBit must be between 0 and 31"),
            (r#","markMasqBit":-1"#, "MasqMarkBit must be between 0 and 31"),
            (r#","runtimeConfig":{"portMappings":[{"hostPort":0,"containerPort":80}]}"#, "Invalid host port number: 0"),
            (r#","runtimeConfig":{"portMappings":[{"hostPort":80}]}"#, "Invalid container port number: 0"),
            (r#","runtimeConfig":{"portMappings":[null]}"#, "Invalid container port number: 0"),
        ] {
            assert_eq!(read(keys).unwrap_err(), message);
        }
        let error = read(r#","runtimeConfig":{"portMappings":[{"hostPort":"80"}]}"#).unwrap_err();
        assert!(error.starts_with("failed to parse network configuration: json: cannot unmarshal string"), "{error}");
        assert!(read(r#","backend":5"#).unwrap_err().contains("cannot unmarshal number"));
        assert!(read(r#","runtimeConfig":{"portMappings":5}"#).unwrap_err().contains("cannot unmarshal number"));
    }
}
