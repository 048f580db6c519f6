//! Reading the configuration. Messages are those of the native plugin.

use postern_guest::cni::{CniResult, Fields, Json, NetConf, Verb};
use postern_guest::types::{LinkSettings, Mac};
use postern_guest::{Error, Request};
use std::collections::{BTreeMap, BTreeSet};

/// The keys of this plugin, after all sources were merged by their precedence.
#[derive(Debug)]
pub struct Config {
    /// Sysctls by their keys as written.
    pub sysctls: BTreeMap<String, String>,
    /// The address as written, and not empty.
    pub mac: Option<String>,
    promisc: Option<bool>,
    mtu: i64,
    allmulti: Option<bool>,
    tx_queue_length: Option<i64>,
}

impl Config {
    /// Reads the configuration, and `prevResult`.
    ///
    /// # Errors
    /// Code 999 for an unreadable configuration.
    pub fn read(request: &Request) -> Result<(Self, Option<CniResult>), Error> {
        let conf = request.conf()?;
        let mut config = Self::decode(&conf)?;
        let named = |fields: &Fields<'_>| Ok::<_, Error>(fields.string("mac")?.filter(|mac| !mac.is_empty()));
        // STATUS has no container, so its `CNI_ARGS` are not used.
        if request.verb != Verb::Status {
            let args = request.args(&["MAC"])?;
            let of_args = args.get("MAC").filter(|mac| !mac.is_empty()).map(str::to_owned);
            let of_runtime = named(&conf.runtime_config().map_err(load_error)?).map_err(load_error)?;
            config.mac = of_runtime.or(of_args).or(config.mac);
        }
        let fields = conf.fields();
        if let Some(args) = fields.object("args").map_err(load_error)?
            && let Some(cni) = args.object("cni").map_err(load_error)?
        {
            let over = Self::of(&cni).map_err(load_error)?;
            config.sysctls.extend(over.sysctls);
            config.mac = over.mac.or(config.mac);
            config.promisc = over.promisc.or(config.promisc);
            config.allmulti = over.allmulti.or(config.allmulti);
            config.tx_queue_length = over.tx_queue_length.or(config.tx_queue_length);
            // A value of 0 in `args.cni` counts, too.
            config.mtu = cni.int("mtu")?.unwrap_or(config.mtu);
        }
        Ok((config, conf.previous_result()?))
    }

    fn decode(conf: &NetConf) -> Result<Self, Error> {
        let fields = conf.fields();
        unique(&fields)?;
        fields.string("dataDir").map_err(load_error)?;
        Self::of(&fields).map_err(load_error)
    }

    /// Reads the keys of this object alone.
    fn of(fields: &Fields<'_>) -> Result<Self, Error> {
        let text = |(key, value): (&str, &Json)| match value {
            Json::String(text) => Ok((key.to_owned(), text.clone())),
            Json::Null => Ok((key.to_owned(), String::new())),
            other => Err(fields.mismatch("sysctl", other, "string")),
        };
        Ok(Self {
            sysctls: fields.map("sysctl")?.unwrap_or_default().into_iter().map(text).collect::<Result<_, _>>()?,
            mac: fields.string("mac")?.filter(|mac| !mac.is_empty()),
            promisc: fields.bool("promisc")?,
            mtu: fields.int("mtu")?.unwrap_or(0),
            allmulti: fields.bool("allmulti")?,
            tx_queue_length: fields.int("txQLen")?,
        })
    }

    /// Returns the settings that ADD changes. Like in the native plugin, a false `promisc` changes nothing.
    ///
    /// # Errors
    /// Code 999 for an invalid address, code 7 for a number out of range.
    pub fn to_set(&self) -> Result<LinkSettings, Error> {
        let settings = self.settings()?;
        Ok(LinkSettings { promisc: settings.promisc.filter(|on| *on), ..settings })
    }

    /// Returns the settings that CHECK compares.
    ///
    /// # Errors
    /// The errors of [`Config::to_set`].
    pub fn to_check(&self) -> Result<LinkSettings, Error> {
        self.settings()
    }

    fn settings(&self) -> Result<LinkSettings, Error> {
        let mac = |text: &String| {
            text.parse::<Mac>().map_err(|error| Error::new(format!("invalid args {text} for MAC addr: {error}")))
        };
        let number = |key: &str, number: i64| {
            u32::try_from(number)
                .map_err(|_| Error::config(format!("{key} {number} is out of range: invalid argument")))
        };
        Ok(LinkSettings {
            mac: self.mac.as_ref().map(mac).transpose()?,
            mtu: Some(self.mtu).filter(|mtu| *mtu != 0).map(|mtu| number("mtu", mtu)).transpose()?,
            promisc: self.promisc,
            allmulti: self.allmulti,
            tx_queue_length: self.tx_queue_length.map(|length| number("txQLen", length)).transpose()?,
        })
    }
}

/// Refuses a sysctl that the configuration has twice: it is not clear which value counts. A key with dots equals the
/// key with slashes.
fn unique(fields: &Fields<'_>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for (_, json) in fields.entries().iter().filter(|(key, _)| key.eq_ignore_ascii_case("sysctl")) {
        let Json::Object(entries) = json else { continue };
        for (key, _) in entries {
            if !seen.insert(key.replace('/', ".")) {
                return Err(Error::new("duplicated sysctl keys are not allowed"));
            }
        }
    }
    Ok(())
}

/// Adds the native plugin's text before the decoder's message.
fn load_error(error: impl Into<Error>) -> Error {
    error.into().decoding("failed to load netconf")
}
