//! The configuration. Messages are those of the native plugin.

use postern_guest::cni::NetConf;
use postern_guest::types::{DeviceKey, ErrorCode};
use postern_guest::{Error, Request, device};

/// The keys of this plugin.
#[derive(Debug)]
pub struct Config {
    /// True if there is an IPAM plugin.
    pub layer3: bool,
    /// The key that names the device, and its value.
    pub device: (DeviceKey, String),
    /// The PCI device, which a user-space driver may have.
    pci: Option<(DeviceKey, String)>,
    /// `DPDKMode`: true if a user-space driver has the device. The key counts only without a PCI device.
    userspace: bool,
    pub conf: NetConf,
}

impl Config {
    /// # Errors
    /// Code 999 for keys of a wrong type, or if no key names a device.
    pub fn read(request: &Request) -> Result<Self, Error> {
        Self::parse(request).map_err(load_error)
    }

    fn parse(request: &Request) -> Result<Self, Error> {
        let conf = request.conf()?;
        let fields = conf.fields();
        let text = |key: &str| Ok::<_, Error>(fields.string(key)?.filter(|value| !value.is_empty()));
        let (name, address, path, bus) = (text("device")?, text("hwaddr")?, text("kernelpath")?, text("pciBusID")?);
        // `DPDKMode` is not documented, but native plugins read it.
        let userspace = fields.bool("DPDKMode")?.unwrap_or(false);
        let id = match fields.object("runtimeConfig")? {
            Some(runtime) => runtime.string("deviceID")?.filter(|value| !value.is_empty()),
            None => None,
        };
        // The runtime's value takes precedence over the configuration.
        let pci = id.map(|id| (DeviceKey::Id, id)).or(bus.map(|bus| (DeviceKey::Pci, bus)));
        let named = name.map(|name| (DeviceKey::Name, name));
        let named = named.or(address.map(|address| (DeviceKey::Address, address)));
        let named = named.or(path.map(|path| (DeviceKey::Path, path))).or_else(|| pci.clone());
        let Some(device) = named else {
            return Err(Error::new(r#"specify either "device", "hwaddr", "kernelpath" or "pciBusID""#));
        };
        Ok(Self { layer3: !conf.ipam_type.is_empty(), device, pci, userspace, conf })
    }

    /// True if a user-space driver has the device. The device then has no link to move.
    ///
    /// # Errors
    /// The device is missing, or it has no driver.
    pub fn is_userspace(&self) -> Result<bool, Error> {
        let Some((by, value)) = &self.pci else { return Ok(self.userspace) };
        match device::find(*by, value) {
            Ok(found) => Ok(found.is_none()),
            // Another key names the link, or the move reports that the device is missing.
            Err(error) if error.kind() == Some(ErrorCode::NotFound) && !is_about_driver(&error) => Ok(false),
            Err(error) if *by == DeviceKey::Pci => Err(error.context("error with host device")),
            Err(error) => Err(error),
        }
    }
}

/// Adds the words of native plugins to an error about a device that can't be taken.
pub fn take_error(error: Error) -> Error {
    let is_missed = matches!(error.kind(), Some(ErrorCode::NotFound | ErrorCode::InvalidArgument));
    match is_missed && !error.object().msg.starts_with("failed to move link") {
        true => error.context("failed to find host device"),
        false => error,
    }
}

/// True if the error is about the device or its driver, and not about the link.
fn is_about_driver(error: &Error) -> bool {
    let message = &error.object().msg;
    message.contains("lstat ") || message.contains("not found or unsupported")
}

/// Adds the native plugin's text before the decoder's message.
pub fn load_error(error: Error) -> Error {
    error.decoding("failed to load netconf")
}
