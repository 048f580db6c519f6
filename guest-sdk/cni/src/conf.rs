//! The network configuration of one plugin.

use crate::error::Error;
use crate::fields::Fields;
use crate::json::Json;
use crate::lists::Lists;
use crate::result::{CniResult, Dns};
use crate::version::Version;
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::BTreeMap;

pub(crate) const STRUCTURE: &str = "NetConf";

/// The configuration keys that all plugins share. A plugin reads its own keys from [`NetConf::fields`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetConf {
    /// `cniVersion` as written; empty if absent. The caller has already compared it with the plugin's supported
    /// versions.
    pub cni_version: String,
    /// `name`, the name of the network.
    pub name: String,
    /// `type`, the name of the plugin.
    pub plugin_type: String,
    /// `capabilities`: the data that the plugin requests from the runtime in `runtimeConfig`.
    pub capabilities: BTreeMap<String, bool>,
    /// `ipam.type`, the plugin to delegate to; empty if absent.
    pub ipam_type: String,
    /// `dns`.
    pub dns: Dns,
    /// `cni.dev/valid-attachments`, the specification's key for GC. An absent list and an empty list differ.
    pub valid_attachments: Option<Vec<ValidAttachment>>,
    /// `cni.dev/attachments`: runtimes send the same list again under this key. An absent list and an empty list
    /// differ.
    pub attachments: Option<Vec<ValidAttachment>>,
    pub(crate) raw: Json,
    pub(crate) previous: Previous,
}

/// `prevResult`, decoded at its first use, because a run asks for it up to ten times. Comparisons of configurations
/// ignore the decoded result, because it follows from `raw`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Previous(OnceCell<Result<Option<CniResult>, Error>>);

impl PartialEq for Previous {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// An attachment to this network that the runtime still has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValidAttachment {
    /// `containerID`.
    pub container_id: String,
    /// `ifname`.
    pub ifname: String,
}

impl NetConf {
    /// Makes a configuration with only its raw JSON and name; every other key counts as absent.
    pub fn unread(raw: Json) -> Self {
        let name = raw.fields(STRUCTURE).and_then(|fields| fields.string("name")).ok().flatten().unwrap_or_default();
        Self { name, raw, ..Self::default() }
    }

    /// Reads the common keys. [`validate_conf`](crate::validate_conf) checks that the configuration has a valid name.
    ///
    /// # Errors
    /// Code 999 for a key of the wrong type. Native plugins add a prefix to this message (see [`Error::context`]).
    /// `prevResult` must be an object; [`NetConf::previous_result`] decodes it.
    pub fn parse(raw: Json) -> Result<NetConf, Error> {
        let read = Self::read(&raw)?;
        Ok(NetConf { raw, ..read })
    }

    /// Works as [`NetConf::parse`], but with GC's lists read separately. Returns [`NetConf::unread`] if the keys can't
    /// be parsed.
    pub fn parse_or_unread(raw: Json, lists: Lists) -> NetConf {
        match Self::read(&raw) {
            Ok(read) => NetConf { raw, ..read }.with_lists(lists),
            Err(_) => Self::unread(raw),
        }
    }

    /// True if [`NetConf::parse`] accepts `raw`.
    pub fn is_readable(raw: &Json) -> bool {
        Self::read(raw).is_ok()
    }

    /// Checks the form of GC's lists. A plugin skips these lists, so the host must report a wrong list.
    ///
    /// # Errors
    /// Code 999 for a list of a wrong type. The message is the native bridge plugin's.
    pub fn check_lists(raw: &Json) -> Result<(), Error> {
        Lists::of(raw).map(drop).map_err(|error| error.context("failed to load netconf"))
    }

    /// Adds the lists that were read separately, if there are any.
    #[must_use]
    pub fn with_lists(self, lists: Lists) -> NetConf {
        NetConf {
            valid_attachments: lists.valid_attachments.or(self.valid_attachments),
            attachments: lists.attachments.or(self.attachments),
            ..self
        }
    }

    /// Reads the common keys, without the raw configuration.
    fn read(raw: &Json) -> Result<NetConf, Error> {
        let fields = raw.fields(STRUCTURE)?;
        let mut capabilities = BTreeMap::new();
        for (name, value) in fields.map("capabilities")?.unwrap_or_default() {
            match value {
                Json::Bool(on) => capabilities.insert(name.to_owned(), *on),
                Json::Null => capabilities.insert(name.to_owned(), false),
                other => return Err(fields.mismatch("capabilities", other, "bool")),
            };
        }
        let ipam_type = match fields.object("ipam")? {
            Some(ipam) => ipam.string("type")?.unwrap_or_default(),
            None => String::new(),
        };
        let dns = Dns::of(&fields)?;
        fields.map("prevResult")?;
        let read = NetConf {
            cni_version: fields.string("cniVersion")?.unwrap_or_default(),
            name: fields.string("name")?.unwrap_or_default(),
            plugin_type: fields.string("type")?.unwrap_or_default(),
            capabilities,
            ipam_type,
            dns,
            ..Self::default()
        };
        Ok(read.with_lists(Lists::of(raw)?))
    }

    /// Returns the complete configuration as it was written.
    pub fn raw(&self) -> &Json {
        &self.raw
    }

    /// Returns all keys; a plugin reads its own keys from them.
    pub fn fields(&self) -> Fields<'_> {
        // Parsing has checked that `raw` is an object. A NetConf that was made in another way has no keys.
        self.raw.fields(STRUCTURE).unwrap_or_else(|_| Fields::none(STRUCTURE))
    }

    /// Returns `runtimeConfig`, the runtime's data about this container. An absent object has no keys.
    ///
    /// # Errors
    /// Code 999 if `runtimeConfig` isn't an object.
    pub fn runtime_config(&self) -> Result<Fields<'_>, Error> {
        Ok(self.fields().object("runtimeConfig")?.unwrap_or_else(|| Fields::none(STRUCTURE)))
    }

    /// Returns `args.cni`, the standard part of `args`. An absent object has no keys.
    ///
    /// # Errors
    /// Code 999 if `args` or `args.cni` isn't an object.
    pub fn args_cni(&self) -> Result<Fields<'_>, Error> {
        let args = self.fields().object("args")?;
        let cni = args.map(|args| args.object("cni")).transpose()?.flatten();
        Ok(cni.unwrap_or_else(|| Fields::none(STRUCTURE)))
    }

    /// Returns the version of the configuration, if it is a known version.
    pub fn version(&self) -> Option<Version> {
        Version::parse(&self.cni_version)
    }

    /// Returns `prevResult` as written; `null` counts as absent.
    pub fn raw_previous_result(&self) -> Option<Json> {
        // Several objects under this key are merged; `null` discards the objects before it.
        let map = self.fields().map("prevResult").ok().flatten()?;
        Some(Json::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()))
    }

    /// Returns `prevResult`, decoded with the version of the configuration.
    ///
    /// # Errors
    /// Code 999, `could not parse prevResult: …`.
    pub fn previous_result(&self) -> Result<Option<CniResult>, Error> {
        let decode =
            || self.raw_previous_result().map(|raw| CniResult::parse_previous(raw, &self.cni_version)).transpose();
        self.previous.0.get_or_init(decode).clone()
    }

    /// Returns the attachments that GC must keep: all attachments of both lists. Removing a valid attachment is worse
    /// than keeping an invalid attachment. Returns `None` if there is no list. Then GC may remove nothing. An empty list
    /// means that no attachment is valid.
    pub fn still_valid(&self) -> Option<Vec<&ValidAttachment>> {
        if self.valid_attachments.is_none() && self.attachments.is_none() {
            return None;
        }
        // Runtimes send the same list twice, and it may be long.
        let second = self.attachments.as_ref().filter(|list| Some(*list) != self.valid_attachments.as_ref());
        let mut all: Vec<_> = self.valid_attachments.iter().chain(second).flatten().collect();
        if second.is_some() && self.valid_attachments.is_some() {
            all.sort();
            all.dedup();
        }
        Some(all)
    }
}

pub(crate) fn attachments(fields: &Fields<'_>, name: &str) -> Result<Option<Vec<ValidAttachment>>, Error> {
    let Some(items) = fields.objects(name)? else { return Ok(None) };
    let read = |item: &Fields<'_>| {
        Ok(ValidAttachment {
            container_id: item.string("containerID")?.unwrap_or_default(),
            ifname: item.string("ifname")?.unwrap_or_default(),
        })
    };
    items.iter().map(read).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NetConf, Error> {
        NetConf::parse(Json::parse(text.as_bytes(), 10_000).unwrap())
    }

    #[test]
    fn common_keys() {
        let conf = parse(
            r#"{"CNIVersion":"1.1.0","name":"n","type":"bridge","capabilities":{"mac":true,"MAC":false},"isGateway":true,
                "ipam":{"type":"static","x":1},"IPAM":{"TYPE":"host-local"},"dns":{"nameservers":["a"],"domain":"d"},
                "runtimeConfig":{"mac":"m"},"args":{"cni":{"ips":["1"]}}}"#,
        )
        .unwrap();
        assert_eq!(conf.version(), Some(Version::V1_1_0));
        assert_eq!(
            (conf.name.as_str(), conf.plugin_type.as_str(), conf.ipam_type.as_str()),
            ("n", "bridge", "host-local")
        );
        assert_eq!(conf.capabilities, BTreeMap::from([("mac".into(), true), ("MAC".into(), false)]));
        assert_eq!((conf.dns.nameservers.as_slice(), conf.dns.domain.as_str()), (["a".to_owned()].as_slice(), "d"));
        assert_eq!(conf.fields().bool("isGateway").unwrap(), Some(true));
        assert_eq!(conf.runtime_config().unwrap().str("mac").unwrap(), Some("m"));
        assert_eq!(conf.args_cni().unwrap().strings("ips").unwrap().unwrap(), ["1"]);
        assert_eq!(conf.still_valid(), None);
        let empty = parse("null").unwrap();
        assert!(empty.runtime_config().unwrap().entries().is_empty());
        assert_eq!(empty.version(), Some(Version::V0_1_0));
    }

    #[test]
    fn wrong_types() {
        for text in [
            r#"{"cniVersion":1}"#,
            r#"{"type":[]}"#,
            r#"{"capabilities":{"mac":"true"}}"#,
            r#"{"ipam":"host-local"}"#,
            r#"{"ipam":{"type":{}}}"#,
            r#"{"dns":[]}"#,
            r#"{"prevResult":"x"}"#,
            r#"{"prevResult":[]}"#,
            r#"{"cni.dev/valid-attachments":{}}"#,
            r#"{"cni.dev/valid-attachments":[null]}"#,
            r#"{"cni.dev/attachments":[{"ifname":1}]}"#,
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.code, 999);
            assert!(error.msg.starts_with("json: cannot unmarshal "), "{text}: {error}");
        }
    }

    #[test]
    fn an_absent_list_is_no_empty_list() {
        assert_eq!(parse("{}").unwrap().still_valid(), None);
        assert_eq!(parse(r#"{"cni.dev/valid-attachments":null}"#).unwrap().still_valid(), None);
        assert_eq!(parse(r#"{"cni.dev/valid-attachments":[]}"#).unwrap().still_valid(), Some(vec![]));
        assert_eq!(parse(r#"{"cni.dev/attachments":[]}"#).unwrap().still_valid(), Some(vec![]));
        let conf = parse(
            r#"{"cni.dev/valid-attachments":[{"containerID":"b","ifname":"eth0"},{"containerID":"a","ifname":"eth0"}],
                "cni.dev/attachments":[{"containerID":"a","ifname":"eth0"},{"containerid":"a","IFNAME":"eth1"}]}"#,
        )
        .unwrap();
        let valid = conf.still_valid().unwrap();
        let pairs: Vec<_> = valid.iter().map(|a| (a.container_id.as_str(), a.ifname.as_str())).collect();
        assert_eq!(pairs, [("a", "eth0"), ("a", "eth1"), ("b", "eth0")]);
    }

    #[test]
    fn previous_results() {
        assert_eq!(parse("{}").unwrap().previous_result().unwrap(), None);
        assert_eq!(parse(r#"{"prevResult":null}"#).unwrap().previous_result().unwrap(), None);
        assert_eq!(parse(r#"{"prevResult":{}}"#).unwrap().previous_result().unwrap(), Some(CniResult::default()));
        let conf = parse(r#"{"cniVersion":"1.1.0","prevResult":{"cniVersion":"0.4.0"}}"#).unwrap();
        let error = conf.previous_result().unwrap_err();
        assert!(error.msg.starts_with("could not parse prevResult: result type supports [1.0.0 1.1.0]"), "{error}");
    }
}
