//! The keys of the bandwidth plugin. Plugin and host read these keys. The host accepts only the rates in these keys.

use crate::{Error, Fields, NetConf};
use serde::{Deserialize, Serialize};

/// A limit of the rate of one direction: a token bucket (`tc-tbf(8)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Bits per second.
    pub rate: u64,
    /// Bits that may be sent at once.
    pub burst: u64,
}

/// The limits of an attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandwidthConf {
    /// `ingressRate` and `ingressBurst`: towards the container.
    pub ingress: Option<RateLimit>,
    /// `egressRate` and `egressBurst`: from the container.
    pub egress: Option<RateLimit>,
}

const KEYS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];

/// The native plugin's type, as its messages name it.
const STRUCTURE: &str = "PluginConf.BandwidthEntry";

impl BandwidthConf {
    /// Reads the keys of the configuration. If the configuration has none of these keys, reads them from
    /// `runtimeConfig.bandwidth`.
    ///
    /// # Errors
    /// Code 999, with the native plugin's texts.
    pub fn read(conf: &NetConf) -> Result<Self, Error> {
        let decoding = |error: Error| error.context("failed to parse network configuration");
        let fields = conf.raw().fields(STRUCTURE).unwrap_or_else(|_| Fields::none(STRUCTURE));
        // Both places are read, so that a value of the wrong type is an error in either place.
        let own = numbers(&fields).map_err(decoding)?;
        let runtime = conf.runtime_config().and_then(|runtime| runtime.object("bandwidth")).map_err(decoding)?;
        let runtime = runtime.map_or(Ok([0; 4]), |fields| numbers(&fields)).map_err(decoding)?;
        let has_own = KEYS.iter().any(|key| !fields.spellings(key).is_empty());
        let [ingress_rate, ingress_burst, egress_rate, egress_burst] = if has_own { own } else { runtime };
        Ok(Self {
            ingress: limit("ingress", ingress_rate, ingress_burst)?,
            egress: limit("egress", egress_rate, egress_burst)?,
        })
    }

    /// True if nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

fn numbers(fields: &Fields<'_>) -> Result<[u64; 4], Error> {
    let [one, two, three, four] = KEYS.map(|key| fields.uint64(key).map(Option::unwrap_or_default));
    Ok([one?, two?, three?, four?])
}

/// Checks one limit. With a limit of less than a byte no packet could pass, and the native plugin divides by zero.
fn limit(direction: &str, rate: u64, burst: u64) -> Result<Option<RateLimit>, Error> {
    match (rate, burst) {
        (0, 0) => Ok(None),
        (_, 0) => Err(Error::internal("if rate is set, burst must also be set")),
        (0, _) => Err(Error::internal("if burst is set, rate must also be set")),
        (_, burst) if burst / 8 >= u64::from(u32::MAX) => Err(Error::internal("burst cannot be more than 4GB")),
        (rate, burst) if rate < 8 || burst < 8 => Err(Error::internal(format!(
            "{direction}Rate {rate} and {direction}Burst {burst} are in bits: each must be at least 8, one byte"
        ))),
        (rate, burst) => Ok(Some(RateLimit { rate, burst })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;

    fn read(keys: &str) -> Result<BandwidthConf, String> {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"bandwidth"{keys}}}"#);
        let conf = NetConf::parse(Json::parse(text.as_bytes(), 4096).unwrap()).unwrap();
        BandwidthConf::read(&conf).map_err(|error| error.msg)
    }

    fn limit(rate: u64, burst: u64) -> Option<RateLimit> {
        Some(RateLimit { rate, burst })
    }

    #[test]
    fn keys_of_the_configuration_win_over_those_of_the_runtime() {
        let runtime = r#","runtimeConfig":{"bandwidth":{"egressRate":800,"egressBurst":1600}}"#;
        for (keys, ingress, egress) in [
            (String::new(), None, None),
            (r#","ingressRate":8,"ingressBurst":16"#.to_owned(), limit(8, 16), None),
            (r#","INGRESSRATE":8,"ingressburst":16"#.to_owned(), limit(8, 16), None),
            (runtime.to_owned(), None, limit(800, 1600)),
            (format!(r#","ingressRate":8,"ingressBurst":16{runtime}"#), limit(8, 16), None),
            // A key with 0 or null counts as a key.
            (format!(r#","egressRate":0{runtime}"#), None, None),
            (format!(r#","egressRate":null{runtime}"#), None, None),
            (r#","runtimeConfig":{"bandwidth":null}"#.to_owned(), None, None),
            (r#","runtimeConfig":{"bandwidth":{"ingressRate":0}}"#.to_owned(), None, None),
            (
                r#","ingressRate":18446744073709551615,"ingressBurst":34359738359"#.to_owned(),
                limit(u64::MAX, 34_359_738_359),
                None,
            ),
        ] {
            let read = read(&keys).unwrap();
            assert_eq!((read.ingress, read.egress), (ingress, egress), "{keys}");
            assert_eq!(read.is_unlimited(), ingress.is_none() && egress.is_none());
        }
    }

    #[test]
    fn impossible_limits_are_told_as_native() {
        for (keys, message) in [
            (r#","ingressRate":8"#, "if rate is set, burst must also be set"),
            (r#","egressBurst":8"#, "if burst is set, rate must also be set"),
            (r#","egressRate":8,"egressBurst":34359738360"#, "burst cannot be more than 4GB"),
            (
                r#","egressRate":7,"egressBurst":8"#,
                "egressRate 7 and egressBurst 8 are in bits: each must be at least 8, one byte",
            ),
            (
                r#","ingressRate":8,"ingressBurst":1"#,
                "ingressRate 8 and ingressBurst 1 are in bits: each must be at least 8, one byte",
            ),
            (r#","runtimeConfig":{"bandwidth":{"egressRate":8}}"#, "if rate is set, burst must also be set"),
        ] {
            assert_eq!(read(keys).unwrap_err(), message, "{keys}");
        }
        for value in ["-1", "1.5", "\"8\"", "true", "[]", "18446744073709551616"] {
            let text = read(&format!(r#","ingressRate":{value}"#)).unwrap_err();
            assert!(text.starts_with("failed to parse network configuration: json: cannot unmarshal "), "{text}");
            assert!(
                text.ends_with("into Go struct field PluginConf.BandwidthEntry.ingressRate of type uint64"),
                "{text}"
            );
        }
        let text = read(r#","runtimeConfig":{"bandwidth":7}"#).unwrap_err();
        assert!(text.contains("cannot unmarshal number into Go struct field"), "{text}");
    }
}
