//! Reading the configuration. Messages are those of the native plugin.

use postern_guest::cni::{CniResult, NetConf};
use postern_guest::types::IngressPolicy;
use postern_guest::{Error, Request};

/// The keys of this plugin. The host reads `backend`, `iptablesAdminChainName` and `firewalldZone` itself; here these
/// keys only have to be texts.
#[derive(Debug)]
pub struct Config {
    /// `ingressPolicy` as written; only ADD interprets it.
    ingress: String,
    /// `prevResult`, the result of the earlier plugins.
    pub previous: Option<CniResult>,
}

impl Config {
    /// # Errors
    /// Code 999 for an unreadable configuration.
    pub fn read(request: &Request) -> Result<Self, Error> {
        request.conf().and_then(|conf| Self::decode(&conf)).map_err(load_error)
    }

    fn decode(conf: &NetConf) -> Result<Self, Error> {
        let fields = conf.fields();
        for key in ["backend", "iptablesAdminChainName", "firewalldZone"] {
            fields.string(key)?;
        }
        let ingress = fields.string("ingressPolicy")?.unwrap_or_default();
        Ok(Self { ingress, previous: conf.previous_result()? })
    }

    /// Returns `prevResult`, which ADD and CHECK need.
    ///
    /// # Errors
    /// Code 999 if `prevResult` is absent.
    pub fn required(self) -> Result<CniResult, Error> {
        self.previous.ok_or_else(|| Error::new("missing prevResult from earlier plugin"))
    }

    /// Returns the isolation of the bridge; `None` if `ingressPolicy` is `open` or absent.
    ///
    /// # Errors
    /// Code 999 for an unknown policy.
    pub fn ingress(&self) -> Result<Option<IngressPolicy>, Error> {
        match self.ingress.as_str() {
            "" | "open" => Ok(None),
            other => IngressPolicy::parse(other)
                .map(Some)
                .ok_or_else(|| Error::new(format!("unknown ingress policy: {other:?}"))),
        }
    }
}

/// Adds the native plugin's text before the decoder's message.
fn load_error(error: Error) -> Error {
    error.decoding("failed to load netconf")
}
