//! Printing of results in every version.

use super::{CniResult, CniRoute, Dns, Family, Interface, IpConfig};
use crate::error::Error;
use crate::json::Json;
use crate::print::pretty;
use crate::version::Version;
use ipnet::IpNet;
use std::net::IpAddr;

impl CniResult {
    /// Returns the result as native plugins print it in `version`: indented by 4, without a newline at its end. Data
    /// that the version can't express is dropped. But the route attributes of 1.1.0 are kept from 0.3.0 on, as in
    /// native plugins.
    ///
    /// # Errors
    /// Code 999 if `version` is 0.1.0 or 0.2.0 and the result has no address. The caller should check the addresses
    /// before it changes anything.
    pub fn to_json(&self, version: Version) -> Result<String, Error> {
        self.to_tree(version).map(|tree| pretty(&tree))
    }

    /// Returns the output of [`CniResult::to_json`] as a tree, for use as `prevResult` in a configuration.
    ///
    /// # Errors
    /// The errors of [`CniResult::to_json`].
    pub fn to_tree(&self, version: Version) -> Result<Json, Error> {
        let mut members = Members::default();
        members.text("cniVersion", version.as_str());
        let family = Family::of(version);
        if family == Family::Pair {
            self.pair(&mut members)?;
        } else {
            members.list("interfaces", self.interfaces.iter().map(|interface| interface.to_tree(family)));
            members.list("ips", self.ips.iter().map(|ip| ip.to_tree(family)));
            members.list("routes", self.routes.iter().map(CniRoute::to_tree));
        }
        if family != Family::Plain || !self.dns.is_empty() {
            members.put("dns", self.dns.to_tree());
        }
        let tree = members.object();
        // From 1.0.0 on, native plugins print through a map, which sorts the keys.
        Ok(if family == Family::Plain { tree.sorted() } else { tree })
    }

    /// Adds the first address of each IP family, and the routes of that family with only destination and gateway.
    fn pair(&self, members: &mut Members) -> Result<(), Error> {
        if self.ips.is_empty() {
            return Err(Error::internal("cannot convert: no valid IP addresses"));
        }
        for (name, v4) in [("ip4", true), ("ip6", false)] {
            let Some(ip) = self.ips.iter().find(|ip| is_v4(&ip.address) == v4) else { continue };
            // A route without destination counts as IPv6, because native plugins only test whether a destination is IPv4.
            let routes = self.routes.iter().filter(|route| route.dst.as_ref().is_some_and(is_v4) == v4);
            let mut pair = Members::default();
            pair.text("ip", &ip.address.to_string());
            pair.ip("gateway", ip.gateway);
            pair.list(
                "routes",
                routes.map(|route| CniRoute { dst: route.dst, gw: route.gw, ..CniRoute::default() }.to_tree()),
            );
            members.put(name, pair.object());
        }
        Ok(())
    }
}

fn is_v4(net: &IpNet) -> bool {
    matches!(net, IpNet::V4(_))
}

impl Interface {
    fn to_tree(&self, family: Family) -> Json {
        let mut members = Members::default();
        members.put("name", Json::from(self.name.as_str()));
        members.text("mac", &self.mac);
        members.text("sandbox", &self.sandbox);
        if family == Family::Plain {
            members.number("mtu", self.mtu);
            members.text("socketPath", &self.socket_path);
            members.text("pciID", &self.pci_id);
        }
        members.object()
    }
}

impl IpConfig {
    fn to_tree(&self, family: Family) -> Json {
        let mut members = Members::default();
        if family == Family::Labelled {
            members.text("version", if is_v4(&self.address) { "4" } else { "6" });
        }
        if let Some(index) = self.interface {
            members.put("interface", Json::Number(index.into()));
        }
        members.text("address", &self.address.to_string());
        members.ip("gateway", self.gateway);
        members.object()
    }
}

impl CniRoute {
    fn to_tree(&self) -> Json {
        let mut members = Members::default();
        members.text("dst", &self.dst.map_or_else(|| "<nil>".to_owned(), |dst| dst.to_string()));
        members.ip("gw", self.gw);
        members.number("mtu", self.mtu);
        members.number("advmss", self.advmss);
        members.number("priority", self.priority);
        for (name, number) in [("table", self.table), ("scope", self.scope)] {
            if let Some(number) = number {
                members.put(name, Json::from(number));
            }
        }
        members.object()
    }
}

impl Dns {
    fn to_tree(&self) -> Json {
        let texts = |texts: &[String]| texts.iter().map(|text| Json::from(text.as_str())).collect::<Vec<_>>();
        let mut members = Members::default();
        members.list("nameservers", texts(&self.nameservers));
        members.text("domain", &self.domain);
        members.list("search", texts(&self.search));
        members.list("options", texts(&self.options));
        members.object()
    }
}

/// An object that is being built. The keys have the order of the calls. Only `put` keeps empty values.
#[derive(Default)]
struct Members(Vec<(String, Json)>);

impl Members {
    fn put(&mut self, name: &str, json: Json) {
        self.0.push((name.to_owned(), json));
    }

    fn text(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.put(name, Json::from(text));
        }
    }

    fn number(&mut self, name: &str, number: i64) {
        if number != 0 {
            self.put(name, Json::from(number));
        }
    }

    fn ip(&mut self, name: &str, ip: Option<IpAddr>) {
        self.text(name, &ip.map(|ip| ip.to_string()).unwrap_or_default());
    }

    fn list(&mut self, name: &str, items: impl IntoIterator<Item = Json>) {
        let items: Vec<Json> = items.into_iter().collect();
        if !items.is_empty() {
            self.put(name, Json::Array(items));
        }
    }

    fn object(self) -> Json {
        Json::Object(self.0)
    }
}
