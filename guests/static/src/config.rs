//! Reading of the configuration. Messages are those of the native plugin, without a prefix.

use ipnet::IpNet;
use postern_guest::cni::{CniRoute, Dns, Fields, IpConfig, NetConf, Version, parse_cidr, parse_ip};
use postern_guest::{Error, Request, routes_of};

/// The parts of the result.
#[derive(Debug)]
pub struct Config {
    pub ips: Vec<IpConfig>,
    pub routes: Vec<CniRoute>,
    pub dns: Dns,
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Code 999 for everything that can't be read.
    pub fn read(request: &Request) -> Result<Self, Error> {
        let conf = request.conf()?;
        let fields = conf.fields();
        let Some(ipam) = fields.object("ipam")? else {
            return Err(Error::new("IPAM config missing 'ipam' key"));
        };
        let routes = routes_of(&ipam)?;
        let dns = ipam.object("dns")?.map(|dns| Dns::parse(&dns)).transpose()?.unwrap_or_default();
        // The keys that replace `addresses` are read first, as in the native decoder. So errors in these keys come
        // before errors in `addresses`.
        let (by_args, by_runtime) = (replacement(&conf.args_cni()?)?, replacement(&conf.runtime_config()?)?);
        let configured = ipam.objects("addresses")?.unwrap_or_default();
        let arguments = arguments(request, by_args.is_some())?;
        let ips = match by_runtime.or(by_args) {
            Some(texts) => texts.iter().map(|text| replacing_address(text)).collect::<Result<_, _>>()?,
            None => {
                let mut ips = configured.iter().map(configured_address).collect::<Result<Vec<_>, _>>()?;
                ips.extend(arguments);
                ips
            }
        };
        one_per_family(request.version, &conf, &ips)?;
        Ok(Self { ips, routes, dns })
    }
}

/// Reads `ips` of `args.cni` or of `runtimeConfig`; an empty list counts as absent.
fn replacement(fields: &Fields<'_>) -> Result<Option<Vec<String>>, Error> {
    Ok(fields.strings("ips")?.filter(|ips| !ips.is_empty()))
}

fn configured_address(fields: &Fields<'_>) -> Result<IpConfig, Error> {
    let gateway = fields.ip("gateway")?;
    let text = fields.str("address")?.unwrap_or_default();
    let address = parse_cidr(text)
        .map_err(|_| Error::new(format!("the 'address' field is expected to be in CIDR notation, got: '{text}'")))?;
    Ok(IpConfig { interface: None, address, gateway })
}

fn replacing_address(text: &str) -> Result<IpConfig, Error> {
    let address = parse_cidr(text)
        .map_err(|_| Error::new(format!("an entry in the 'ips' field is NOT in CIDR notation, got: '{text}'")))?;
    Ok(IpConfig { interface: None, address, gateway: None })
}

/// Reads the addresses of `CNI_ARGS`. Each address gets the last gateway of `CNI_ARGS` that lies in the address's
/// network. By CNI's conventions, `ips` in `args` replaces `CNI_ARGS`. If `args` has `ips` (`are_silenced`), the
/// addresses of `CNI_ARGS` are not even read.
fn arguments(request: &Request, are_silenced: bool) -> Result<Vec<IpConfig>, Error> {
    let args = request.args(&["IP", "GATEWAY"])?;
    if are_silenced {
        return Ok(Vec::new());
    }
    let mut ips = Vec::new();
    for text in items(args.get("IP")).map(str::trim) {
        let address = parse_cidr(text)
            .map_err(|_| Error::new(format!("the 'ip' field is expected to be in CIDR notation, got: '{text}'")))?;
        ips.push(IpConfig { interface: None, address, gateway: None });
    }
    for text in items(args.get("GATEWAY")) {
        let invalid = |_| Error::new(format!("invalid gateway address: {text}"));
        let gateway = parse_ip(text.trim()).map_err(invalid)?;
        for ip in ips.iter_mut().filter(|ip| ip.address.contains(&gateway)) {
            ip.gateway = Some(gateway);
        }
    }
    Ok(ips)
}

fn items(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.filter(|list| !list.is_empty()).into_iter().flat_map(|list| list.split(','))
}

/// Refuses two addresses of one family before version 0.3.0: older results have room for one address of each family.
fn one_per_family(version: Version, conf: &NetConf, ips: &[IpConfig]) -> Result<(), Error> {
    let count = |v4: bool| ips.iter().filter(|ip| matches!(ip.address, IpNet::V4(_)) == v4).count();
    if version < Version::V0_3_0 && (count(true) > 1 || count(false) > 1) {
        let version = &conf.cni_version;
        return Err(Error::new(format!("CNI version {version} does not support more than 1 address per family")));
    }
    Ok(())
}
