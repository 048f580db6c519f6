//! Reading of the configuration.

use postern_guest::cni::Dns;
use postern_guest::masquerade::MasqueradeConfig;
use postern_guest::{Error, Request, dns_override, mtu};

/// The keys of this plugin.
#[derive(Debug)]
pub struct Config {
    pub masquerade: MasqueradeConfig,
    pub mtu: Option<u32>,
    pub dns: Option<Dns>,
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Code 999 for a key of the wrong type, code 7 for a value that makes no sense.
    pub fn read(request: &Request) -> Result<Self, Error> {
        let read = || {
            let conf = request.conf()?;
            let fields = conf.fields();
            Ok(Self { masquerade: MasqueradeConfig::read(&fields)?, mtu: mtu(&fields)?, dns: dns_override(&conf)? })
        };
        read().map_err(load_error)
    }
}

/// Adds the native plugins' prefix to a message of the decoder. Errors about decoded values get no prefix.
pub fn load_error(error: Error) -> Error {
    match error.object().code {
        postern_guest::cni::code::INTERNAL => error.context("failed to load netconf"),
        _ => error,
    }
}
