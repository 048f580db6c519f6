use super::{PREVIOUS, mac};
use crate::common::U32;
use crate::key::{Form, Key, Kind};
use crate::{Delegation, Plugin, Role};
use postern_cni::Version;

pub const PLUGIN: Plugin = Plugin {
    name: "tuning",
    about: "Sets sysctls of the container, and attributes of its link",
    source: "https://www.cni.dev/plugins/current/meta/tuning/",
    role: Role::Chained,
    ipam: Delegation::None,
    since: Version::V0_1_0,
    keys: &[
        SYSCTL,
        MAC,
        PROMISC,
        MTU,
        ALLMULTI,
        QUEUE,
        Key::text("dataDir", "Directory of the native plugin's files")
            .default("\"/run/cni/tuning\"")
            .sample("\"/run/cni/tuning\""),
    ],
    runtime: &[mac("Address of the link")],
    args: &[SYSCTL, MAC, PROMISC, MTU, ALLMULTI, QUEUE],
    example: PREVIOUS,
};

const SYSCTL: Key = Key::new(
    "sysctl",
    Kind::Map(&Kind::Text(Form::Free)),
    "Keys below `net` with their values; the first `IFNAME` stands for the link's name",
)
.sample(r#"{"net.core.somaxconn": "500"}"#);
const MAC: Key = mac("Address of the link");
const PROMISC: Key = Key::new("promisc", Kind::Bool, "The link takes frames for any address");
const MTU: Key = Key::number("mtu", 0, U32, "MTU in bytes; 0 keeps the present MTU").sample("1400");
const ALLMULTI: Key = Key::new("allmulti", Kind::Bool, "The link takes all multicast frames");
const QUEUE: Key = Key::number("txQLen", 0, U32, "Length of the queue for sending, in packets").sample("500");
