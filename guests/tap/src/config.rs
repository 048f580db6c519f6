//! Reading the configuration. Messages are those of the native plugin.

use postern_guest::cni::{NetConf, Verb};
use postern_guest::types::{Mac, MacParseError, TapSettings};
use postern_guest::{Error, Request};

/// The keys of this plugin.
#[derive(Debug)]
pub struct Config {
    /// True if there is an IPAM plugin.
    pub layer3: bool,
    /// A bridge in the container.
    pub bridge: Option<String>,
    multi_queue: bool,
    /// The MTU as written: the kernel checks its limits.
    mtu: i64,
    owner: Option<u32>,
    group: Option<u32>,
    selinux: Option<String>,
    /// The address as written: only ADD parses it.
    mac: Option<String>,
    pub conf: NetConf,
}

impl Config {
    /// # Errors
    /// Code 999 for an unreadable or invalid configuration.
    pub fn read(request: &Request) -> Result<Self, Error> {
        let mut config = request.conf().and_then(Self::decode).map_err(load_error)?;
        // STATUS has no container, so its `CNI_ARGS` are not used.
        if request.verb != Verb::Status {
            let args = request.args(&["MAC"]).map_err(load_error)?;
            let given = |mac: &str| (!mac.is_empty()).then(|| mac.to_owned());
            let of_runtime = config
                .conf
                .runtime_config()
                .and_then(|runtime| runtime.string("mac"))
                .map_err(|error| load_error(error.into()))?
                .as_deref()
                .and_then(given);
            config.mac = of_runtime.or(args.get("MAC").and_then(given)).or(config.mac);
        }
        Ok(config)
    }

    /// Decodes all keys except the keys of the runtime.
    fn decode(conf: NetConf) -> Result<Self, Error> {
        let fields = conf.fields();
        let text = |key| Ok::<_, Error>(fields.string(key)?.filter(|value: &String| !value.is_empty()));
        Ok(Self {
            layer3: !conf.ipam_type.is_empty(),
            bridge: text("bridge")?,
            multi_queue: fields.bool("multiQueue")?.unwrap_or(false),
            mtu: fields.int("mtu")?.unwrap_or(0),
            owner: fields.uint32("owner")?,
            group: fields.uint32("group")?,
            selinux: text("selinuxContext")?,
            mac: text("mac")?,
            conf,
        })
    }

    /// Returns the settings for the new link.
    ///
    /// # Errors
    /// Code 999 for settings that no tap can have.
    pub fn settings(&self) -> Result<TapSettings, Error> {
        let mtu = u32::try_from(self.mtu).map_err(|_| Error::new(format!("invalid MTU {}", self.mtu)))?;
        // As in the native plugin, a tap with user and group, but no context, is made in another way, and has other
        // initial settings.
        let direct = self.owner.is_some() && self.group.is_some() && self.selinux.is_none();
        Ok(TapSettings {
            mtu: Some(mtu).filter(|mtu| *mtu > 0),
            mac: self.mac.as_deref().map(address).transpose()?,
            owner: self.owner,
            group: self.group,
            multi_queue: self.multi_queue,
            packet_information: direct && !self.multi_queue,
            vnet_header: direct,
            selinux_context: self.selinux.clone(),
        })
    }
}

fn address(text: &str) -> Result<Mac, Error> {
    text.parse().map_err(|error: MacParseError| match error {
        MacParseError::Syntax(_) => Error::new(format!("invalid args {text} for MAC addr: {error}")),
        MacParseError::Length(_) => Error::new(format!("failed to create tap: address {text}: it must have 6 bytes")),
    })
}

/// Adds the native plugin's text before the decoder's message.
pub fn load_error(error: Error) -> Error {
    error.decoding("failed to load netconf")
}
