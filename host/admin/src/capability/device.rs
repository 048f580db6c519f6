//! `device`, for people.

use super::{OperationTexts, Page};
use crate::learn::{Key, Source, WidestValue};
use crate::plan::Names;
use crate::sentences::{group, say, switched};
use crate::words::Objects;
use postern_policy::capability::device::{DEFAULT_LINK, PORTS, key_of};
use postern_types::{DeviceKey, LinkInfo, OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "move links of the node",
    always: None,
    groups: &[
        group(&["find"], |objects| devices(objects).map(|devices| format!("look at {devices}"))),
        group(&["take"], |objects| {
            devices(objects)
                .map(|devices| format!("move {devices} from this node into the container, away from the node"))
        }),
        group(&["take"], |objects| {
            switched(
                objects,
                DEFAULT_LINK,
                "false",
                "move a device even if a default route of this node leads through the device",
            )
        }),
        group(&["take"], |objects| switched(objects, PORTS, "false", "move a device even if it is a port of a bridge")),
        group(&["give-back"], |_| say("move its device back to this node, as it was before")),
    ],
    keys: &[
        Key::some("names", Source::Value("device", None), WidestValue::Values(&["*"])),
        Key::some("addresses", Source::Value("hwaddr", None), WidestValue::Configured),
        Key::some("paths", Source::Value("kernelpath", None), WidestValue::Configured),
        Key::some(
            "ids",
            Source::Parts(&[
                ("/pciBusID", "${config.pciBusID}"),
                ("/runtimeConfig/deviceID", "${config.runtimeConfig.deviceID}"),
            ]),
            WidestValue::Values(&["*"]),
        ),
        Key::one(DEFAULT_LINK, Source::Value("", None), WidestValue::LeftOut),
        Key::one(PORTS, Source::Value("", None), WidestValue::LeftOut),
    ],
    objects: |operation| match operation.value("/by") {
        Some(by) => operation.values(&[(key_of(by).0, "/value")]),
        None => Vec::new(),
    },
};

/// Returns the devices that a policy grants, in words.
fn devices(objects: &Objects<'_>) -> Option<String> {
    let nouns = [("names", "link"), ("addresses", "link with the address"), ("paths", "device at"), ("ids", "device")];
    let named = nouns.iter().filter(|(key, _)| !objects.none(key)).map(|(key, noun)| objects.words(key, noun));
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", or "))
}

impl OperationTexts for ops::Device {
    fn words(&self, names: &Names<'_>, outcome: &Result<Reply, OpError>) -> String {
        match self {
            Self::Find { by, value } => match outcome.as_ref().map(Reply::read::<Option<LinkInfo>>) {
                Ok(Ok(None)) => format!("look at {}, which a driver of user space uses", device(*by, value)),
                Ok(_) | Err(_) => format!("look at {}", device(*by, value)),
            },
            Self::Take { by, value } => {
                format!("move {} from the host into the container, as {}", device(*by, value), names.request.ifname)
            }
            Self::GiveBack => "move the attachment's device back to the host".to_owned(),
        }
    }
}

fn device(by: DeviceKey, value: &str) -> String {
    match by {
        DeviceKey::Name => format!("link {value}"),
        DeviceKey::Address => format!("the link with the address {value}"),
        DeviceKey::Path => format!("the link of {value}"),
        DeviceKey::Pci => format!("the link of PCI device {value}"),
        DeviceKey::Id => format!("the link of device {value}"),
    }
}
