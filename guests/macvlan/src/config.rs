//! Reading the configuration. Messages are those of the native plugin.

use postern_guest::cni::{NetConf, Verb};
use postern_guest::types::{LinkInfo, Mac, MacParseError, MacvlanMode};
use postern_guest::{Error, Request, macvlan, parent};

/// The keys of this plugin.
#[derive(Debug)]
pub struct Config {
    /// True if there is an IPAM plugin.
    pub layer3: bool,
    /// Empty for the link of the default route.
    pub master: String,
    pub mode: MacvlanMode,
    /// The MTU as written: it is compared with the master's MTU later.
    mtu: i64,
    pub in_container: bool,
    pub queue: Option<u32>,
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
            let args = request.args(&["MAC"])?;
            let given = |mac: &str| (!mac.is_empty()).then(|| mac.to_owned());
            let of_runtime = config.conf.runtime_config()?.string("mac")?.as_deref().and_then(given);
            config.mac = of_runtime.or(args.get("MAC").and_then(given)).or(config.mac);
        }
        Ok(config)
    }

    /// Decodes all keys except the keys of the runtime.
    fn decode(conf: NetConf) -> Result<Self, Error> {
        let fields = conf.fields();
        let mode = fields.string("mode")?.filter(|mode| !mode.is_empty()).unwrap_or_else(|| "bridge".to_owned());
        Ok(Self {
            layer3: !conf.ipam_type.is_empty(),
            master: fields.string("master")?.unwrap_or_default(),
            mode: MacvlanMode::parse(&mode).ok_or_else(|| Error::new(format!("unknown macvlan mode: \"{mode}\"")))?,
            mtu: fields.int("mtu")?.unwrap_or(0),
            in_container: fields.bool("linkInContainer")?.unwrap_or(false),
            queue: fields.uint32("bcqueuelen")?.filter(|queue| *queue != 0),
            mac: fields.string("mac")?.filter(|mac| !mac.is_empty()),
            conf,
        })
    }

    /// Returns the link to stack on.
    ///
    /// # Errors
    /// The link is missing, or the network wants a larger MTU than the link has.
    pub fn parent(&self) -> Result<parent::Parent, Error> {
        let parent = parent::find(&self.master, self.in_container).map_err(|error| match self.master.as_str() {
            "" => error,
            master => error.context(format!("failed to lookup master \"{master}\"")),
        })?;
        let LinkInfo { mtu: most, .. } = parent.attributes()?;
        if self.mtu < 0 || self.mtu > i64::from(most) {
            return Err(Error::new(format!("invalid MTU {}, must be [0, master MTU({most})]", self.mtu)));
        }
        Ok(parent)
    }

    /// Returns the settings for the new link.
    ///
    /// # Errors
    /// Code 999 for an invalid address.
    pub fn options(&self) -> Result<macvlan::Options, Error> {
        let mac = self.mac.as_deref().map(address).transpose()?;
        let mtu = u32::try_from(self.mtu).ok().filter(|mtu| *mtu > 0);
        Ok(macvlan::Options::new(self.mode).mtu(mtu).mac(mac).broadcast_queue(self.queue))
    }
}

fn address(text: &str) -> Result<Mac, Error> {
    text.parse().map_err(|error: MacParseError| match error {
        MacParseError::Syntax(_) => Error::new(format!("invalid args {text} for MAC addr: {error}")),
        MacParseError::Length(_) => Error::new("failed to create macvlan: invalid argument"),
    })
}

/// Adds the text of the native plugin's ADD and CHECK before the decoder's message.
fn load_error(error: Error) -> Error {
    error.decoding("failed to load netconf")
}

/// Adds the text of the native plugin's DEL before the decoder's message.
pub fn del_error(error: Error) -> Error {
    error.decoding("failed to load netConf")
}
