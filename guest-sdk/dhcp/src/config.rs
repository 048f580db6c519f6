//! The configuration's keys for the client: the options that it requests and the options that it provides.
//!
//! | key of `ipam` | meaning |
//! |---|---|
//! | `request` | list of `{option, skipDefault}`: options to ask for, beside routers and subnet mask; with `skipDefault` in any entry these two are not asked for |
//! | `provide` | list of `{option, value, fromArg}`: options to send; the value of the key `fromArg` of `CNI_ARGS` wins |
//! | `priority` | metric of all routes of the lease |
//!
//! `families` is read by [`crate::families`].
//!
//! An option is a name of [`NAMES`] or a decimal number. If the native daemon has a message for the case, the client
//! uses this message.

use postern_cni::{Error, Fields, Json, quote};
use std::collections::BTreeMap;

/// The names of options that the native plugin knows.
pub const NAMES: [(&str, u8); 6] = [
    ("dhcp-client-identifier", CLIENT_IDENTIFIER),
    ("subnet-mask", SUBNET_MASK),
    ("routers", ROUTERS),
    ("host-name", 12),
    ("user-class", 77),
    ("vendor-class-identifier", 60),
];

const CLIENT_IDENTIFIER: u8 = 61;
const ROUTERS: u8 = 3;
const SUBNET_MASK: u8 = 1;
const CLASSLESS_ROUTES: u8 = 121;

/// Options that the protocol itself needs. An operator's text in one of these options breaks the exchange. The native
/// daemon sends the text anyway.
const RESERVED: [(u8, &str); 8] = [
    (0, "padding"),
    (50, "the requested address"),
    (52, "option overload"),
    (53, "the message type"),
    (54, "the server identifier"),
    (55, "the list of requested options (use ipam.request)"),
    (57, "the largest message"),
    (255, "the end of the options"),
];

/// The longest value of an option.
const LONGEST: usize = 255;

/// The bytes for provided options in a message of 1,400 bytes, the largest that the host sends. The other 800 bytes are
/// for the header (240), the client identifier and the requested options (257 each), and the protocol's own options.
const ROOM: usize = 600;

/// The size limit of a configuration; the host's own limit is lower.
const LIMIT: usize = 16 << 20;

/// The client's settings from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The options to ask for, in the order of the packet.
    pub request: Vec<u8>,
    /// The options to send, without the identifier.
    pub provide: BTreeMap<u8, Vec<u8>>,
    /// The identifier, if the operator provides it.
    pub id: Option<Vec<u8>>,
    /// The metric of all routes.
    pub priority: Option<u32>,
}

impl Options {
    /// Reads the configuration of a network and `CNI_ARGS`.
    ///
    /// # Errors
    /// Code 6 for a configuration that is no JSON, 7 for options that can't be sent, 999 for keys of a wrong type.
    pub fn read(configuration: &str, args: &str) -> Result<Self, Error> {
        let json = Json::parse(configuration.as_bytes(), LIMIT)?;
        let fields = json.fields("NetConf").map_err(netconf)?;
        let ipam = fields.object("ipam").map_err(netconf)?;
        let ipam = ipam.ok_or_else(|| Error::config("dhcp: the configuration has no 'ipam' object"))?;
        let args = pairs(args);
        let mut options = Self { request: requested(&ipam)?, priority: priority(&ipam)?, ..Self::default() };
        for entry in ipam.objects("provide").map_err(netconf)?.unwrap_or_default() {
            options.provide_one(&entry, &args)?;
        }
        options.id = options.provide.remove(&CLIENT_IDENTIFIER);
        let size: usize = options.provide.values().map(|value| 2 + value.len()).sum();
        if size > ROOM {
            return Err(Error::config(format!(
                "dhcp: the options of ipam.provide take {size} bytes, and a message has room for {ROOM}: provide fewer \
                 or shorter ones"
            )));
        }
        Ok(options)
    }

    /// Returns the default: routers and subnet mask are requested.
    pub fn none() -> Self {
        Self { request: vec![ROUTERS, SUBNET_MASK], ..Self::default() }
    }

    /// True if the configuration asks for this option.
    pub fn requests(&self, code: u8) -> bool {
        self.request.contains(&code)
    }

    fn provide_one(&mut self, entry: &Fields<'_>, args: &BTreeMap<&str, &str>) -> Result<(), Error> {
        let name = entry.string("option").map_err(netconf)?.unwrap_or_default();
        let value = entry.string("value").map_err(netconf)?.unwrap_or_default();
        let from = entry.string("fromArg").map_err(netconf)?.unwrap_or_default();
        let code = parse(&name)?;
        if let Some((_, what)) = RESERVED.iter().find(|(reserved, _)| *reserved == code) {
            return Err(Error::config(format!(
                "dhcp: ipam.provide has option {name}, {what}, which the client sets itself: remove the entry"
            )));
        }
        if value.len() > LONGEST {
            return Err(Error::internal(format!("value too long for option {}: {}", quote(&name), quote(&value))));
        }
        if !value.is_empty() {
            self.provide.insert(code, value.clone().into_bytes());
        }
        let Some(given) = args.get(from.as_str()).filter(|_| !from.is_empty()) else { return Ok(()) };
        if given.len() > LONGEST {
            let (name, from) = (quote(&name), quote(&from));
            return Err(Error::internal(format!(
                "value too long for option {name} from CNI_ARGS {from}: {}",
                quote(&value)
            )));
        }
        self.provide.insert(code, given.as_bytes().to_vec());
        Ok(())
    }
}

/// Reads `CNI_ARGS` as the native daemon does: a part without `=` is ignored, and a later key wins.
fn pairs(args: &str) -> BTreeMap<&str, &str> {
    args.split(';').filter_map(|pair| pair.split_once('=')).collect()
}

/// Returns the options to ask for. RFC 3442 wants the classless routes before routers and static routes.
fn requested(ipam: &Fields<'_>) -> Result<Vec<u8>, Error> {
    let mut codes = Vec::new();
    let mut has_defaults = true;
    for entry in ipam.objects("request").map_err(netconf)?.unwrap_or_default() {
        has_defaults &= !entry.bool("skipDefault").map_err(netconf)?.unwrap_or_default();
        let name = entry.string("option").map_err(netconf)?.unwrap_or_default();
        if !name.is_empty() {
            codes.push(parse(&name)?);
        }
    }
    if has_defaults {
        codes.extend([ROUTERS, SUBNET_MASK]);
    }
    let mut ordered = Vec::with_capacity(codes.len());
    let first = codes.iter().filter(|code| **code == CLASSLESS_ROUTES).take(1);
    for code in first.chain(&codes) {
        if !ordered.contains(code) {
            ordered.push(*code);
        }
    }
    Ok(ordered)
}

/// Reads `priority`; 0 counts as absent, as in results.
fn priority(ipam: &Fields<'_>) -> Result<Option<u32>, Error> {
    let Some(number) = ipam.int("priority").map_err(netconf)? else { return Ok(None) };
    let wrong = |_| Error::config(format!("dhcp: ipam.priority is {number}: a metric is 0 to {}", u32::MAX));
    u32::try_from(number).map(|number| Some(number).filter(|number| *number != 0)).map_err(wrong)
}

/// Returns the number of an option.
fn parse(name: &str) -> Result<u8, Error> {
    if let Some((_, code)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(*code);
    }
    // Go accepts no sign here, but Rust accepts a plus.
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let quoted = quote(name);
    let wrong = |cause| {
        Error::internal(format!(
            "Can not parse option {quoted}: Can not parse option: strconv.ParseUint: parsing {quoted}: {cause}"
        ))
    };
    if !digits {
        return Err(wrong("invalid syntax"));
    }
    name.trim_start_matches('0').parse().or_else(|_| match name.trim_start_matches('0') {
        "" => Ok(0),
        _ => Err(wrong("value out of range")),
    })
}

fn netconf(error: Error) -> Error {
    error.context("error parsing netconf")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ipam: &str, args: &str) -> Result<Options, Error> {
        Options::read(&format!(r#"{{"cniVersion":"1.0.0","name":"n","type":"macvlan","ipam":{ipam}}}"#), args)
    }

    #[test]
    fn defaults() {
        assert_eq!(read(r#"{"type":"dhcp"}"#, "").unwrap(), Options::none());
        assert_eq!(Options::none().request, [3, 1]);
    }

    #[test]
    fn requested_options() {
        for (request, expected) in [
            (r#"[{"option":"6"},{"option":"host-name"}]"#, &[6, 12, 3, 1][..]),
            // One entry that skips the default is enough.
            (r#"[{"option":"6"},{"option":"121","skipDefault":true},{"option":"routers"}]"#, &[121, 6, 3]),
            (r#"[{"skipDefault":true}]"#, &[]),
            (r#"[{"option":"subnet-mask"},{"option":"1"}]"#, &[1, 3]),
            (r#"[{"option":"007"}]"#, &[7, 3, 1]),
        ] {
            let options = read(&format!(r#"{{"request":{request}}}"#), "").unwrap();
            assert_eq!(options.request, expected, "{request}");
        }
    }

    #[test]
    fn provided_options() {
        let provide = r#"{"provide":[{"option":"12","value":"a"},{"option":"host-name","fromArg":"NAME"},
            {"option":"60","value":"v","fromArg":"NONE"},{"option":"77","value":""},{"option":"80","fromArg":"EMPTY"}]}"#;
        let options = read(provide, "IgnoreUnknown=1;NAME=b=c;EMPTY=;x").unwrap();
        let expected = [(12, "b=c"), (60, "v"), (80, "")];
        assert_eq!(options.provide, expected.map(|(code, value)| (code, value.as_bytes().to_vec())).into());
        assert_eq!(read(provide, "").unwrap().provide.get(&12).unwrap(), b"a");
    }

    #[test]
    fn priorities() {
        for (text, expected) in [("7", Some(7)), ("0", None), ("null", None), ("4294967295", Some(u32::MAX))] {
            assert_eq!(read(&format!(r#"{{"priority":{text}}}"#), "").unwrap().priority, expected);
        }
    }

    /// Each message has a flag: true if it is the native daemon's message.
    #[test]
    fn everything_that_is_refused() {
        let long = "x".repeat(256);
        let many: Vec<String> =
            (100..110).map(|code| format!(r#"{{"option":"{code}","value":"{}"}}"#, "y".repeat(100))).collect();
        for (ipam, args, code, message, native) in [
            (
                r#"{"request":[{"option":"dns"}]}"#,
                "",
                999,
                r#"Can not parse option "dns": Can not parse option: strconv.ParseUint: parsing "dns": invalid syntax"#,
                true,
            ),
            (
                r#"{"request":[{"option":"256"}]}"#,
                "",
                999,
                r#"Can not parse option "256": Can not parse option: strconv.ParseUint: parsing "256": value out of range"#,
                true,
            ),
            (
                r#"{"request":[{"option":"-1"}]}"#,
                "",
                999,
                r#"Can not parse option "-1": Can not parse option: strconv.ParseUint: parsing "-1": invalid syntax"#,
                true,
            ),
            (
                r#"{"provide":[{"value":"x"}]}"#,
                "",
                999,
                r#"Can not parse option "": Can not parse option: strconv.ParseUint: parsing "": invalid syntax"#,
                true,
            ),
            (
                &format!(r#"{{"provide":[{{"option":"12","value":"{long}"}}]}}"#),
                "",
                999,
                &format!(r#"value too long for option "12": "{long}""#),
                true,
            ),
            (
                r#"{"provide":[{"option":"12","fromArg":"A"}]}"#,
                &format!("A={long}"),
                999,
                r#"value too long for option "12" from CNI_ARGS "A": """#,
                true,
            ),
            (
                r#"{"request":[{"option":6}]}"#,
                "",
                999,
                "error parsing netconf: json: cannot unmarshal number into Go struct field NetConf.ipam.request.option of type string",
                true,
            ),
            (
                r#"{"provide":{}}"#,
                "",
                999,
                "error parsing netconf: json: cannot unmarshal object into Go struct field NetConf.ipam.provide of type []interface {}",
                false,
            ),
            (
                r#"{"provide":[{"option":"53","value":"x"}]}"#,
                "",
                7,
                "dhcp: ipam.provide has option 53, the message type, which the client sets itself: remove the entry",
                false,
            ),
            (r#"{"priority":-1}"#, "", 7, "dhcp: ipam.priority is -1: a metric is 0 to 4294967295", false),
            (
                &format!(r#"{{"provide":[{}]}}"#, many.join(",")),
                "",
                7,
                "dhcp: the options of ipam.provide take 1020 bytes, and a message has room for 600: provide fewer or shorter ones",
                false,
            ),
            ("null", "", 7, "dhcp: the configuration has no 'ipam' object", false),
        ] {
            let error = read(ipam, args).unwrap_err();
            assert_eq!((error.code, error.msg.as_str()), (code, message), "native: {native}");
        }
    }
}
