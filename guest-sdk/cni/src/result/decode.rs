//! Reading of results of every version.

use super::{CniResult, CniRoute, Dns, Family, Interface, IpConfig};
use crate::error::Error;
use crate::fields::Fields;
use crate::json::Json;
use crate::quote::quote;
use crate::version::Version;
use ipnet::IpNet;

const STRUCTURE: &str = "Result";

impl CniResult {
    /// Reads the output of a plugin for ADD: at most `limit` bytes of JSON.
    ///
    /// # Errors
    /// Code 999 if the output is not exactly one result, see [`CniResult::parse`].
    pub fn parse_output(stdout: &[u8], limit: usize, config_version: &str) -> Result<CniResult, Error> {
        let json = Json::parse(stdout, limit).map_err(not_a_result)?;
        CniResult::parse(&json, config_version)
    }

    /// Reads a result, which declares its own version. If `cniVersion` (in exactly this spelling) is missing or empty,
    /// the result has the version of the configuration. `null` is an empty result of that version.
    ///
    /// # Errors
    /// Code 999: an unknown version, another spelling of `cniVersion` with a version of another shape, or a key of the
    /// wrong type.
    pub fn parse(json: &Json, config_version: &str) -> Result<CniResult, Error> {
        let entries = match json {
            Json::Null => &[],
            Json::Object(entries) => entries.as_slice(),
            other => return Err(not_a_result(other.undecodable("map[string]interface {}"))),
        };
        let declared = entries.iter().rev().find(|(key, _)| key == "cniVersion").map(|(_, value)| value);
        match declared {
            Some(Json::String(version)) if !version.is_empty() => decode(json, version),
            _ => {
                let config_version = if config_version.is_empty() { "0.1.0" } else { config_version };
                // Native plugins insert the version, then sort the keys.
                let mut entries = entries.to_vec();
                entries.push(("cniVersion".to_owned(), Json::from(config_version)));
                decode(&Json::Object(entries).sorted(), config_version)
            }
        }
    }

    /// Reads a `prevResult`. Its version must be of the configuration's family, or absent. An empty `cniVersion` is
    /// valid only for 0.1.0 and 0.2.0.
    ///
    /// # Errors
    /// Code 999.
    pub fn parse_previous(json: Json, config_version: &str) -> Result<CniResult, Error> {
        let prefix = |error: Error| error.context("could not parse prevResult");
        let mut entries = match json {
            Json::Object(entries) => entries,
            other => return Err(prefix(other.undecodable(STRUCTURE))),
        };
        // Native plugins look for the spelling `CNIVersion`, not the specification's, and insert it if it is absent or
        // empty. Then they sort the keys, so `cniVersion` comes later and wins.
        let declared = entries.iter().rev().find(|(key, _)| key == "CNIVersion").map(|(_, value)| value);
        if !declared.is_some_and(|version| *version != Json::from("")) {
            entries.push(("CNIVersion".to_owned(), Json::from(config_version)));
        }
        decode(&Json::Object(entries).sorted(), config_version).map_err(prefix)
    }
}

fn not_a_result(error: Error) -> Error {
    error.with_code(crate::code::INTERNAL).context("failed to unmarshal raw result")
}

fn decode(json: &Json, version: &str) -> Result<CniResult, Error> {
    let unsupported = || Error::internal(format!("unsupported CNI result version {}", quote(version)));
    let family = Version::parse(version).map(Family::of).ok_or_else(unsupported)?;
    let fields = json.fields(STRUCTURE)?;
    let result = match family {
        Family::Pair => pair(&fields)?,
        Family::Labelled | Family::Plain => lists(&fields, family)?,
    };
    let declared = fields.str("cniVersion")?.unwrap_or_default();
    if !family.declarations().contains(&declared) {
        let supported = family.declarations().join(" ");
        let declared = quote(declared);
        return Err(Error::internal(format!(
            "result type supports [{supported}] but unmarshalled CNIVersion is {declared}"
        )));
    }
    Ok(result)
}

fn pair(fields: &Fields<'_>) -> Result<CniResult, Error> {
    let mut result = CniResult { dns: Dns::of(fields)?, ..CniResult::default() };
    for name in ["ip4", "ip6"] {
        let Some(ip) = fields.object(name)? else { continue };
        result.ips.push(IpConfig { interface: None, address: address(&ip, "ip", name)?, gateway: ip.ip("gateway")? });
        result.routes.extend(routes(&ip)?);
    }
    Ok(result)
}

fn lists(fields: &Fields<'_>, family: Family) -> Result<CniResult, Error> {
    let interfaces = fields.entries_or_null("interfaces")?;
    let ips = fields.entries_or_null("ips")?;
    // A `null` entry has no data. A `null` interface keeps its place, because addresses use indexes of interfaces.
    let unnamed = || Ok(Interface::default());
    let interfaces =
        interfaces.iter().map(|entry| entry.as_ref().map_or_else(unnamed, |fields| interface(fields, family)));
    Ok(CniResult {
        interfaces: interfaces.collect::<Result<_, _>>()?,
        ips: ips.iter().flatten().map(|fields| ip_config(fields, family)).collect::<Result<_, _>>()?,
        routes: routes(fields)?,
        dns: Dns::of(fields)?,
    })
}

fn interface(fields: &Fields<'_>, family: Family) -> Result<Interface, Error> {
    let mut interface = Interface {
        name: fields.string("name")?.unwrap_or_default(),
        mac: fields.string("mac")?.unwrap_or_default(),
        sandbox: fields.string("sandbox")?.unwrap_or_default(),
        ..Interface::default()
    };
    // Results before 1.0.0 do not have these keys.
    if family == Family::Plain {
        interface.mtu = fields.int("mtu")?.unwrap_or(0);
        interface.socket_path = fields.string("socketPath")?.unwrap_or_default();
        interface.pci_id = fields.string("pciID")?.unwrap_or_default();
    }
    Ok(interface)
}

fn ip_config(fields: &Fields<'_>, family: Family) -> Result<IpConfig, Error> {
    if family == Family::Labelled {
        // `version` must be a text. It is not compared with the address, which already shows the IP version.
        fields.str("version")?;
    }
    Ok(IpConfig {
        interface: fields.int("interface")?,
        address: address(fields, "address", "ips")?,
        gateway: fields.ip("gateway")?,
    })
}

/// Reads an address, and refuses a missing address at once. Native plugins pass a missing address on as `<nil>`, and
/// the next reader refuses `<nil>`.
fn address(fields: &Fields<'_>, key: &str, place: &str) -> Result<IpNet, Error> {
    fields.cidr(key)?.ok_or_else(|| Error::internal(format!("result has an entry without {key} in {place}")))
}

/// Reads routes. The attributes of 1.1.0 are read in every version, as the native type has them in every version.
fn routes(fields: &Fields<'_>) -> Result<Vec<CniRoute>, Error> {
    let read = |fields: &Fields<'_>| {
        Ok(CniRoute {
            dst: fields.cidr("dst")?,
            gw: fields.ip("gw")?,
            mtu: fields.int("mtu")?.unwrap_or(0),
            advmss: fields.int("advmss")?.unwrap_or(0),
            priority: fields.int("priority")?.unwrap_or(0),
            table: fields.int("table")?,
            scope: fields.int("scope")?,
        })
    };
    fields.entries_or_null("routes")?.iter().flatten().map(read).collect()
}

impl Dns {
    /// Reads the `dns` object among these fields; without `dns` nothing is set.
    pub(crate) fn of(fields: &Fields<'_>) -> Result<Dns, Error> {
        Ok(fields.object("dns")?.map(|dns| Dns::parse(&dns)).transpose()?.unwrap_or_default())
    }

    /// Reads the members of a `dns` object.
    ///
    /// # Errors
    /// Code 999 for a member of the wrong type.
    pub fn parse(fields: &Fields<'_>) -> Result<Dns, Error> {
        Ok(Dns {
            nameservers: fields.strings("nameservers")?.unwrap_or_default(),
            domain: fields.string("domain")?.unwrap_or_default(),
            search: fields.strings("search")?.unwrap_or_default(),
            options: fields.strings("options")?.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), 10_000).unwrap()
    }

    fn output(text: &str, config_version: &str) -> Result<CniResult, String> {
        CniResult::parse_output(text.as_bytes(), 10_000, config_version).map_err(|error| {
            assert_eq!(error.code, 999);
            error.msg
        })
    }

    fn previous(text: &str, config_version: &str) -> Result<CniResult, String> {
        CniResult::parse_previous(json(text), config_version).map_err(|error| {
            assert_eq!(error.code, 999);
            error.msg
        })
    }

    #[test]
    fn an_output_without_version_has_that_of_the_configuration() {
        let ips = |text, version| output(text, version).unwrap().ips.len();
        assert_eq!(ips(r#"{"ip4":{"ip":"10.0.0.1/8"},"ips":[]}"#, ""), 1);
        assert_eq!(ips(r#"{"ip4":{"ip":"10.0.0.1/8"}}"#, "0.2.0"), 1);
        assert_eq!(ips(r#"{"ip4":{"ip":"10.0.0.1/8"}}"#, "1.1.0"), 0);
        assert_eq!(ips(r#"{"ips":[{"address":"10.0.0.1/8"}],"cniVersion":""}"#, "1.1.0"), 1);
        assert_eq!(ips(r#"{"ips":[{"address":"10.0.0.1/8"}],"cniVersion":"1.0.0"}"#, "0.2.0"), 1);
        assert_eq!(output("null", "1.0.0"), Ok(CniResult::default()));
        // After sorting, the inserted version is the last spelling.
        assert_eq!(ips(r#"{"ips":[{"address":"10.0.0.1/8"}],"CNIVersion":"0.2.0"}"#, "1.1.0"), 1);
    }

    #[test]
    fn outputs_that_are_no_result() {
        let refused = |text: &str| output(text, "1.0.0").unwrap_err();
        assert_eq!(refused(""), "failed to unmarshal raw result: unexpected end of JSON input");
        assert!(refused("{}{}").starts_with("failed to unmarshal raw result: trailing characters"));
        assert_eq!(
            refused("[]"),
            "failed to unmarshal raw result: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
        assert_eq!(refused(r#"{"cniVersion":"7.0.0"}"#), r#"unsupported CNI result version "7.0.0""#);
        assert_eq!(
            refused(r#"{"cniVersion":"1.0.0","CNIVERSION":"0.4.0"}"#),
            r#"result type supports [1.0.0 1.1.0] but unmarshalled CNIVersion is "0.4.0""#
        );
        assert_eq!(refused(r#"{"ips":[{"address":"10.1.0.0"}]}"#), "invalid CIDR address: 10.1.0.0");
        assert_eq!(refused(r#"{"ips":[{"gateway":"10.1.0.0"}]}"#), "result has an entry without address in ips");
        for list in ["interfaces", "ips", "routes"] {
            assert!(refused(&format!(r#"{{"{list}":[1]}}"#)).contains("cannot unmarshal number"));
            assert!(refused(&format!(r#"{{"{list}":{{}}}}"#)).contains("cannot unmarshal object"));
        }
    }

    #[test]
    fn a_previous_result_belongs_to_the_family_of_the_configuration() {
        for version in Version::ALL {
            assert_eq!(previous("{}", version.as_str()), Ok(CniResult::default()));
            for other in Version::ALL {
                let accepted = previous(&format!(r#"{{"cniVersion":"{other}"}}"#), version.as_str()).is_ok();
                assert_eq!(accepted, Family::of(version) == Family::of(other), "{other} in {version}");
            }
        }
        assert_eq!(
            previous(r#"{"cniVersion":"0.4.0"}"#, "1.1.0").unwrap_err(),
            r#"could not parse prevResult: result type supports [1.0.0 1.1.0] but unmarshalled CNIVersion is "0.4.0""#
        );
        assert_eq!(
            previous(r#"{"cniVersion":""}"#, "0.4.0").unwrap_err(),
            r#"could not parse prevResult: result type supports [0.3.0 0.3.1 0.4.0] but unmarshalled CNIVersion is """#
        );
        assert_eq!(
            previous(r#"{"cniVersion":"1.0.0"}"#, "0.2.0").unwrap_err(),
            r#"could not parse prevResult: result type supports [ 0.1.0 0.2.0] but unmarshalled CNIVersion is "1.0.0""#
        );
        assert!(previous(r#"{"cniVersion":""}"#, "0.2.0").is_ok());
        assert!(previous(r#"{"CNIVersion":""}"#, "1.0.0").is_ok());
        assert!(previous(r#"{"CNIVersion":"0.4.0"}"#, "1.0.0").is_err());
        assert!(previous(r#"{"cniVersion":"1.0.0","CNIVersion":"0.4.0"}"#, "1.0.0").is_ok());
        assert!(previous("[]", "1.0.0").unwrap_err().contains("cannot unmarshal array"));
    }

    /// An index is passed on unchecked, and `null` has no data (cni#1191).
    #[test]
    fn entries_that_tell_nothing_are_read() {
        let text = r#"{"interfaces":[null,{"name":"eth0"},{}],"routes":[null,{"dst":"10.0.0.0/8"}],
            "ips":[{"interface":-1,"address":"10.1.0.2/16"},null,{"interface":9,"address":"10.1.0.3/16"},
                   {"interface":1,"address":"10.1.0.4/16"},{"interface":0,"address":"10.1.0.5/16"}]}"#;
        for version in ["0.3.0", "0.4.0", "1.0.0", "1.1.0"] {
            let read = previous(text, version).unwrap();
            assert_eq!((read.interfaces.len(), read.routes.len(), read.ips.len()), (3, 1, 4));
            let of: Vec<Option<&str>> =
                read.ips.iter().map(|ip| read.interface_of(ip).map(|link| link.name.as_str())).collect();
            assert_eq!(of, [None, None, Some("eth0"), None]);
            let printed = read.to_json(Version::parse(version).unwrap()).unwrap();
            assert!(printed.contains("\"interface\": -1") && printed.contains("\"interface\": 9"), "{printed}");
            assert_eq!(output(&printed, version).unwrap(), read);
        }
        assert!(previous(r#"{"ips":[{"interface":18446744073709551615,"address":"10.1.0.2/16"}]}"#, "1.0.0").is_err());
    }

    #[test]
    fn the_containers_interface_has_any_sandbox() {
        let own = |entries: &str| {
            previous(&format!(r#"{{"interfaces":[{entries}]}}"#), "1.1.0")
                .unwrap()
                .own_interfaces("eth0", "/run/netns/c1")
        };
        let (bare, id) = (r#"{"name":"eth0"}"#, r#"{"name":"eth0","sandbox":"0af3"}"#);
        let exact = r#"{"name":"eth0","sandbox":"/run/netns/c1"}"#;
        assert_eq!(own(&format!("{bare},{id},{exact},null")), [2]);
        assert_eq!(own(&format!("{bare},{id},{id}")), [1, 2]);
        assert_eq!(own(&format!(r#"{{"name":"cni0"}},{bare}"#)), [1]);
        assert_eq!(own(r#"{"name":"eth1","sandbox":"/run/netns/c1"}"#), [0_usize; 0]);
    }

    #[test]
    fn attributes_foreign_to_the_type_vanish() {
        let text = r#"{"interfaces":[{"name":"a","mtu":1400,"pciID":"x"}],"routes":[{"dst":"10.1.2.3/8","mtu":9}]}"#;
        let labelled = output(text, "0.4.0").unwrap();
        assert_eq!(labelled.interfaces, [Interface { name: "a".into(), ..Interface::default() }]);
        assert_eq!(labelled.routes[0].mtu, 9);
        let plain = output(text, "1.0.0").unwrap();
        assert_eq!((plain.interfaces[0].mtu, plain.interfaces[0].pci_id.as_str()), (1400, "x"));
        assert!(output(r#"{"ips":[{"version":4,"address":"10.0.0.1/8"}]}"#, "0.4.0").is_err());
        assert!(output(r#"{"ips":[{"version":4,"address":"10.0.0.1/8"}]}"#, "1.0.0").is_ok());
    }
}
