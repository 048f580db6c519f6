//! The reader of the configuration. Messages are those of the native plugin.

use postern_guest::cni::{Dns, Fields, NetConf, Verb};
use postern_guest::masquerade::MasqueradeConfig;
use postern_guest::types::{Mac, MacParseError, PortSpec, VlanId};
use postern_guest::{Error, Request, bridge, dns_override, mtu};

/// The keys of this plugin.
#[derive(Debug)]
pub struct Config {
    /// True if there is an IPAM plugin.
    pub layer3: bool,
    pub bridge: String,
    /// Also true if only `isDefaultGateway` is set.
    pub is_gateway: bool,
    pub is_default_gateway: bool,
    pub force_address: bool,
    /// `No` without an IPAM plugin: there are no addresses to masquerade.
    pub masquerade: MasqueradeConfig,
    pub mtu: Option<u32>,
    pub promisc: bool,
    pub vlan: Option<VlanId>,
    /// The VLANs, sorted, each once.
    pub trunk: Vec<VlanId>,
    /// True if `vlan` or `vlanTrunk` is given, even an empty `vlanTrunk`.
    pub vlan_filtering: bool,
    pub preserve_default_vlan: bool,
    pub hairpin: bool,
    pub isolated: bool,
    pub mac_guard: bool,
    pub duplicate_detection: bool,
    pub container_up: bool,
    /// The address as written: only ADD parses it.
    mac: Option<String>,
    pub dns: Option<Dns>,
}

impl Config {
    /// # Errors
    /// Code 999 for an unreadable or contradictory configuration; code 7 for errors that native plugins detect too
    /// late.
    pub fn read(request: &Request) -> Result<Self, Error> {
        let conf = request.conf().map_err(load_error)?;
        let (mut config, vlan, trunk) = Self::decode(&conf).map_err(load_error)?;
        config.vlan = match vlan {
            0 => None,
            id => Some(
                vlan_id(id).ok_or_else(|| Error::new(format!("invalid VLAN ID {id} (must be between 0 and 4094)")))?,
            ),
        };
        config.vlan_filtering = config.vlan.is_some() || trunk.is_some();
        config.trunk = trunk_ids(&trunk.unwrap_or_default())?;
        // STATUS has no container, so its `CNI_ARGS` are not used.
        if request.verb != Verb::Status {
            let args = request.args(&["MAC"])?;
            let given = args.get("MAC").filter(|mac| !mac.is_empty());
            config.mac = config.mac.or(given.map(str::to_owned));
        }
        Ok(config)
    }

    /// Decodes all keys in the order in which the native decoder checks their types. VLANs are checked later.
    fn decode(conf: &NetConf) -> Result<(Self, i64, Option<Vec<TrunkEntry>>), Error> {
        let fields = conf.fields();
        let on = |key| Ok::<_, Error>(fields.bool(key)?.unwrap_or(false));
        let layer3 = !conf.ipam_type.is_empty();
        let masquerade = MasqueradeConfig::read(&fields)?;
        let given = |mac: Option<String>| mac.filter(|mac| !mac.is_empty());
        let mac = given(conf.runtime_config()?.string("mac")?).or(given(conf.args_cni()?.string("mac")?));
        let is_default_gateway = on("isDefaultGateway")?;
        let trunk = match fields.objects("vlanTrunk")? {
            Some(entries) => Some(entries.iter().map(TrunkEntry::decode).collect::<Result<_, _>>()?),
            None => None,
        };
        let config = Self {
            layer3,
            bridge: fields.string("bridge")?.unwrap_or_else(|| "cni0".to_owned()),
            is_gateway: on("isGateway")? || is_default_gateway,
            is_default_gateway,
            force_address: on("forceAddress")?,
            masquerade: if layer3 { masquerade } else { MasqueradeConfig::No },
            mtu: mtu(&fields)?,
            promisc: on("promiscMode")?,
            vlan: None,
            trunk: Vec::new(),
            vlan_filtering: false,
            preserve_default_vlan: on("preserveDefaultVlan")?,
            hairpin: on("hairpinMode")?,
            isolated: on("portIsolation")?,
            mac_guard: on("macspoofchk")?,
            duplicate_detection: on("enabledad")?,
            container_up: !on("disableContainerInterface")?,
            mac,
            dns: dns_override(conf)?,
        };
        Ok((config, fields.int("vlan")?.unwrap_or(0), trunk))
    }

    /// Checks the further conditions of ADD. Returns the address of the container's end.
    ///
    /// # Errors
    /// Code 999 for contradictions, and for an invalid address.
    pub fn validate(&self) -> Result<Option<Mac>, Error> {
        if self.layer3 && !self.container_up {
            return Err(Error::new("cannot use IPAM when DisableContainerInterface flag is set"));
        }
        if self.hairpin && self.promisc {
            return Err(Error::new("cannot set hairpin mode and promiscuous mode at the same time"));
        }
        self.address()
    }

    /// Returns the address of the container's end, if the network gives an address.
    ///
    /// # Errors
    /// Code 999 for an invalid address.
    pub fn address(&self) -> Result<Option<Mac>, Error> {
        let Some(mac) = &self.mac else { return Ok(None) };
        mac.parse().map(Some).map_err(|error| match error {
            MacParseError::Syntax(_) => Error::new(format!("failed to make veth pair: {error}")),
            MacParseError::Length(_) => Error::new("failed to make veth pair: invalid argument"),
        })
    }

    /// Returns the options for making the bridge.
    pub fn options(&self) -> bridge::Options {
        bridge::Options::default().mtu(self.mtu).vlan_filtering(self.vlan_filtering).promisc(self.promisc)
    }

    /// Returns the settings of the port.
    pub fn port(&self) -> PortSpec {
        PortSpec {
            hairpin: self.hairpin,
            isolated: self.isolated,
            vlan: self.vlan,
            trunk: self.trunk.clone(),
            preserve_default_vlan: self.preserve_default_vlan,
        }
    }
}

/// Adds the native plugins' text before the decoder's message. An error about a decoded value stays unchanged.
pub fn load_error(error: Error) -> Error {
    match error.object().code {
        postern_guest::cni::code::INTERNAL => error.context("failed to load netconf"),
        _ => error,
    }
}

/// An entry of `vlanTrunk`: a range, one VLAN, or both.
#[derive(Debug, Default)]
struct TrunkEntry {
    min: Option<i64>,
    max: Option<i64>,
    id: Option<i64>,
}

impl TrunkEntry {
    fn decode(fields: &Fields<'_>) -> Result<Self, Error> {
        Ok(Self { min: fields.int("minID")?, max: fields.int("maxID")?, id: fields.int("id")? })
    }
}

fn vlan_id(id: i64) -> Option<VlanId> {
    VlanId::try_from(id).ok().filter(|id| (1..=4094).contains(id))
}

/// Returns every VLAN in the entries, once, ascending.
fn trunk_ids(entries: &[TrunkEntry]) -> Result<Vec<VlanId>, Error> {
    let id = |id, name| vlan_id(id).ok_or_else(|| Error::new(format!("incorrect trunk {name} parameter")));
    let mut ranges = Vec::new();
    for entry in entries {
        match (entry.min, entry.max) {
            (Some(min), Some(max)) => {
                let (min, max) = (id(min, "minID")?, id(max, "maxID")?);
                if min > max {
                    return Err(Error::new("minID is greater than maxID in trunk parameter"));
                }
                ranges.push(min..=max);
            }
            (None, None) => {}
            (min, _) => {
                let missing = if min.is_some() { "maxID" } else { "minID" };
                let message = format!("minID and maxID should be configured simultaneously, {missing} is missing");
                return Err(Error::new(message));
            }
        }
        if let Some(single) = entry.id {
            let single = id(single, "id")?;
            ranges.push(single..=single);
        }
    }
    Ok((1..=4094).filter(|id| ranges.iter().any(|range| range.contains(id))).collect())
}
