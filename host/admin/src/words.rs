//! Values of a policy, in words.

/// The objects of one grant by their keys, as written or as a network configuration fills them in.
#[derive(Clone, Copy, Debug)]
pub enum Objects<'a> {
    /// No policy limits the objects: any object.
    Any,
    /// The objects of a policy.
    Of(&'a [(String, Vec<String>)]),
}

/// The noun of an IPAM plugin's gateways.
pub const GATEWAY: &str = "gateway";

/// The condition for an act that a policy switches on or off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Never.
    Off,
    /// The condition: a part of a sentence, with a comma at its beginning. An empty text means "always".
    On(String),
}

impl Objects<'_> {
    fn values(&self, key: &str) -> Option<&[String]> {
        match self {
            Self::Any => None,
            Self::Of(objects) => {
                Some(objects.iter().find(|(name, _)| name == key).map_or(&[], |(_, values)| values.as_slice()))
            }
        }
    }

    /// Returns the meaning of a key's values: ``bridge `br0` or the bridge that the network's `bridge` names``.
    pub fn words(&self, key: &str, noun: &str) -> String {
        match self.values(key) {
            None => format!("any {noun} that a policy names"),
            Some([]) => format!("no {noun}"),
            Some(values) => values.iter().map(|value| describe(noun, value)).collect::<Vec<_>>().join(" or "),
        }
    }

    /// Like [`Objects::words`], for a key whose value `off` means "none" and is no object.
    pub fn words_but(&self, key: &str, noun: &str, off: &str) -> String {
        let Some(values) = self.values(key) else { return self.words(key, noun) };
        let described = values.iter().filter(|value| *value != off).map(|value| match placeholder(value) {
            Some((path, Some(default))) if default == off => describe(noun, &format!("${{{path}}}")),
            _ => describe(noun, value),
        });
        described.collect::<Vec<_>>().join(" or ")
    }

    /// True if the key is in the table. Without a limit by policy every key counts as present.
    pub fn has(&self, key: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(objects) => objects.iter().any(|(name, _)| name == key),
        }
    }

    /// True if the table grants looking only, for all networks.
    pub fn only_looks(&self) -> bool {
        self.values("look-only").is_some_and(|values| values.iter().any(|value| value == "true"))
    }

    /// True if the key has no values, so that the operation is refused.
    pub fn none(&self, key: &str) -> bool {
        self.values(key).is_some_and(<[String]>::is_empty)
    }

    /// Returns the condition under which one of the key's values holds: empty for always, a part of a sentence, or
    /// `None` for never.
    pub fn condition(&self, key: &str) -> Option<String> {
        let Self::Of(_) = self else { return Some(", if a policy lets it".to_owned()) };
        let values = self.values(key)?;
        if values.iter().any(|value| value == "true") {
            return Some(String::new());
        }
        let keys: Vec<String> =
            values.iter().filter_map(|value| placeholder(value)).map(|(path, _)| source(path)).collect();
        if keys.is_empty() { None } else { Some(format!(", where {} says so", keys.join(" or "))) }
    }

    /// Returns the switch for a key. The switch is off if the key's value is `off` or absent.
    pub fn switch(&self, key: &str, off: &str) -> Switch {
        let Some(values) = self.values(key) else { return Switch::On(", if a policy lets it".to_owned()) };
        let on: Vec<&String> = values.iter().filter(|value| *value != off).collect();
        match on.as_slice() {
            [] => Switch::Off,
            [only] => match placeholder(only) {
                Some((path, default)) if default == Some(off) || default.is_none() => {
                    Switch::On(format!(", where {} says so", source(path)))
                }
                Some((path, _)) => Switch::On(format!(", unless {} says otherwise", source(path))),
                None => Switch::On(String::new()),
            },
            _ => Switch::On(String::new()),
        }
    }
}

/// Returns one value with its noun. A gateway's value also names the addresses that use the gateway.
fn describe(noun: &str, value: &str) -> String {
    if noun != GATEWAY {
        return object(noun, value);
    }
    let Some((address, gateway)) = value.split_once(" via ") else {
        return format!("{} for addresses whose network contains this gateway", object(noun, value));
    };
    let list =
        |value: &str| placeholder(value).and_then(|(path, _)| path.rsplit_once(".*")).map(|(list, _)| list.to_owned());
    let which = match (list(address), list(gateway)) {
        (None, None) => "",
        (one, other) if one == other => ", of the same entry",
        _ => ", whose network contains this gateway",
    };
    format!("{} for {}{which}", object(noun, gateway), object("address", address))
}

fn object(noun: &str, value: &str) -> String {
    if value == "*" {
        return format!("any {noun}");
    }
    // The value of `${node.default-link}` for one network.
    if value.is_empty() {
        return format!("the {noun} of the default route");
    }
    match placeholder(value) {
        Some(("node.default-link", _)) => format!("the {noun} of the default route"),
        Some((path, Some("node.default-link"))) => {
            format!("the {noun} that {} names (else the {noun} of the default route)", source(path))
        }
        Some((path, default)) => {
            let each = if path.contains('*') { "every" } else { "the" };
            let otherwise = default.map(|text| format!(" (else `{text}`)")).unwrap_or_default();
            format!("{each} {noun} that {} names{otherwise}", source(path))
        }
        None if value.contains("${") => {
            let each = if value.contains(".*") { "every " } else { "" };
            format!("{each}{noun} {}", filled(value))
        }
        None if value.contains('*') => format!("any {noun} like `{value}`"),
        None => format!("{noun} `{value}`"),
    }
}

/// Returns a value with placeholders: `<the network's a>-<the network's b>`.
fn filled(value: &str) -> String {
    let (mut words, mut rest) = (String::new(), value);
    while let Some((before, (inside, after))) =
        rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        let (path, default) = inside.split_once('|').unwrap_or((inside, ""));
        let otherwise = if default.is_empty() { String::new() } else { format!(", else {}", default.trim()) };
        words.push_str(&format!("{before}<{}{otherwise}>", source(path.trim())));
        rest = after;
    }
    words + rest
}

/// Returns path and default of a value that is exactly one placeholder.
fn placeholder(value: &str) -> Option<(&str, Option<&str>)> {
    let inside = value.strip_prefix("${")?.strip_suffix('}').filter(|inside| !inside.contains('}'))?;
    Some(match inside.split_once('|') {
        Some((path, default)) => (path.trim(), Some(default.trim())),
        None => (inside.trim(), None),
    })
}

/// Returns the source of a placeholder's value, in words.
fn source(path: &str) -> String {
    // The stars are only for the parser: for a reader the word "every" is enough.
    let keys = |path: &str| path.split('.').filter(|key| *key != "*").collect::<Vec<_>>().join(".");
    match path.split_once('.') {
        Some(("args", rest)) => format!("`{}` of CNI_ARGS", keys(rest)),
        Some((_, rest)) => format!("the network's `{}`", keys(rest)),
        None => format!("`{path}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: &[&str]) -> String {
        let objects = [("names".to_owned(), values.iter().map(|value| (*value).to_owned()).collect())];
        Objects::Of(&objects).words("names", "bridge")
    }

    #[test]
    fn placeholders_become_words() {
        assert_eq!(words(&["${config.bridge | cni0}"]), "the bridge that the network's `bridge` names (else `cni0`)");
        assert_eq!(words(&["${config.ipam.type}"]), "the bridge that the network's `ipam.type` names");
        assert_eq!(words(&["${config.ipam.ranges.*.*}"]), "every bridge that the network's `ipam.ranges` names");
        assert_eq!(words(&["${args.IP.*}"]), "every bridge that `IP` of CNI_ARGS names");
        assert_eq!(words(&["br0", "br-*", "*"]), "bridge `br0` or any bridge like `br-*` or any bridge");
        assert_eq!(words(&["x${config.a | b}y"]), "bridge x<the network's `a`, else b>y");
        assert_eq!(
            words(&["${config.v.*.min}-${config.v.*.max}"]),
            "every bridge <the network's `v.min`>-<the network's `v.max`>"
        );
        assert_eq!(words(&[]), "no bridge");
        assert_eq!(Objects::Any.words("names", "bridge"), "any bridge that a policy names");
    }

    #[test]
    fn a_gateway_is_one_for_certain_addresses() {
        let words = |value: &str| {
            let objects = [("gateways".to_owned(), vec![value.to_owned()])];
            Objects::Of(&objects).words("gateways", GATEWAY)
        };
        assert_eq!(
            words("${config.ipam.addresses.*.address} via ${config.ipam.addresses.*.gateway}"),
            "every gateway that the network's `ipam.addresses.gateway` names for every address that the network's \
             `ipam.addresses.address` names, of the same entry"
        );
        assert_eq!(
            words("${args.IP.*} via ${args.GATEWAY.*}"),
            "every gateway that `GATEWAY` of CNI_ARGS names for every address that `IP` of CNI_ARGS names, whose \
             network contains this gateway"
        );
        assert_eq!(words("10.1.2.3/24 via 10.1.2.1"), "gateway `10.1.2.1` for address `10.1.2.3/24`");
        assert_eq!(words("10.1.2.1"), "gateway `10.1.2.1` for addresses whose network contains this gateway");
    }

    #[test]
    fn switches() {
        let switch = |values: &[&str]| {
            let objects = [("promisc".to_owned(), values.iter().map(|value| (*value).to_owned()).collect())];
            Objects::Of(&objects).switch("promisc", "false")
        };
        assert_eq!(switch(&[]), Switch::Off);
        assert_eq!(switch(&["false"]), Switch::Off);
        assert_eq!(switch(&["true"]), Switch::On(String::new()));
        assert_eq!(
            switch(&["${config.promiscMode | false}"]),
            Switch::On(", where the network's `promiscMode` says so".to_owned())
        );
        assert_eq!(
            switch(&["${config.promiscMode | true}"]),
            Switch::On(", unless the network's `promiscMode` says otherwise".to_owned())
        );
        assert!(matches!(Objects::Any.switch("promisc", "false"), Switch::On(when) if when.contains("policy")));
    }
}
