use super::PREVIOUS;
use crate::common::U32;
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "sbr",
    about: "Routes the packets from an address of the container by the link with this address",
    source: "https://www.cni.dev/plugins/current/meta/sbr/",
    role: Role::Chained,
    ipam: Delegation::None,
    since: Version::V0_1_0,
    keys: &[
        Key::number("table", 0, U32, "Routing table that another program fills [default: one table per address]")
            .sample("100"),
        Key::new(
            "gateways",
            Kind::List(&Kind::Text(Form::RequiredIp)),
            "Next hops that replace the next hops of `prevResult`, at most one of each IP version",
        )
        .sample(r#"["10.1.2.254"]"#),
        Key::flag("addSourceHints", "The main table keeps routes to the link's own networks"),
    ],
    runtime: &[],
    args: &[],
    example: PREVIOUS,
};
