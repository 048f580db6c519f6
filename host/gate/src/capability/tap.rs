//! `tap`: the attachment's own link, whose frames a program in the container reads and writes.
//!
//! The thread in the container's namespace makes the tap, with a descriptor that the thread opened before its
//! confinement. At first the tap ends with this descriptor. A complete and recorded tap is made persistent.

use super::inner;
use crate::capability::facts::{ALWAYS, Facts};
use crate::cause::{self, no_address};
use crate::effect::{InnerKind, InnerLink};
use crate::errors::{kernel_error, link_gone, native_error};
use crate::gate::Gate;
use crate::right::Right;
use nix::errno::Errno;
use postern_kernel::{KernelError, Link, TapSpec, random_mac, tap};
use postern_policy::Granted;
use postern_types::{ErrorCode, Handle, LinkInfo, Mac, OpError, TapSettings, host};
use std::borrow::Cow;

pub(crate) const FACTS: Facts =
    Facts { keeps: |_, granted| Some(Right::Tap(granted.and_then(Granted::tap_context).map(Cow::Owned))), ..ALWAYS };

impl host::Tap for Gate<'_> {
    fn create(&mut self, settings: &TapSettings) -> Result<LinkInfo, OpError> {
        inner::is_free(self, InnerKind::Tap)?;
        let mac = settings.mac.unwrap_or_else(|| Mac(random_mac()));
        let effect = InnerLink { kind: InnerKind::Tap, mac: Some(mac), ..InnerLink::default() }.recorded();
        self.run.journal.intend(self.run.view(), effect.clone())?;
        let spec = TapSpec {
            name: self.run.request.ifname.clone(),
            mac: mac.0,
            owner: settings.owner,
            group: settings.group,
            multi_queue: settings.multi_queue,
            packet_information: settings.packet_information,
            vnet_header: settings.vnet_header,
        };
        let container = self.run.system.container_required()?;
        container.make_tap(&spec).map_err(|error| refused(error, &spec))?;
        let netlink = container.netlink().map_err(kernel_error)?;
        // Root in the container may have renamed the tap meanwhile. Another link with the tap's name is not accepted.
        let is_own = |link: &Link| link.kind == InnerKind::Tap.in_kernel() && link.mac == Some(mac.0);
        let made = netlink.link_by_name(&spec.name).map_err(kernel_error)?.filter(is_own);
        let made = made.ok_or_else(|| link_gone(&spec.name))?;
        self.run.journal.known_link(&effect, made.index)?;
        if let Some(mtu) = settings.mtu {
            let set = netlink.set_mtu(made.index, mtu);
            set.map_err(|error| {
                let error = native_error(error, &spec.name, format_args!("failed to set MTU {mtu} of the tap"));
                cause::Asked { mac: None, mtu: Some(mtu), largest: cause::LARGEST_MTU_OF_TAP }.explain(error)
            })?;
        }
        container.keep_tap().map_err(kernel_error)?;
        self.run.own.container_mac = Some(mac);
        let mtu = settings.mtu.unwrap_or(made.mtu);
        inner::show(self, Link { mtu, ..made })
    }

    fn join(&mut self, handle: Handle, bridge: &str) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        // The link named `name` may belong to another plugin, or to the container.
        if !inner::is_recorded(self, InnerKind::Tap, index)? {
            let message = format!("\"{name}\" is no tap that this attachment made");
            return Err(OpError::new(ErrorCode::InvalidHandle, name, message));
        }
        let netlink = self.run.system.container_netlink()?;
        let Some(found) = netlink.link_by_name(bridge).map_err(kernel_error)? else {
            let message = format!("failed to get bridge {bridge}: Link not found");
            return Err(OpError::new(ErrorCode::NotFound, bridge, message)
                .hint("`bridge` names a bridge in the container's own namespace: make the bridge first"));
        };
        let what = format!("failed to set tap {name} as a port of bridge {bridge}");
        if found.kind != "bridge" {
            let message = format!("{what}: operation not supported");
            return Err(OpError::new(ErrorCode::Unsupported, bridge, message).hint("name a bridge as `bridge`"));
        }
        netlink.set_master(index, Some(found.index)).map_err(|error| native_error(error, &name, what))?;
        Ok(())
    }
}

/// Returns the error, with a hint, if the node lacks something that each tap of this network needs.
pub fn not_ready(error: KernelError) -> OpError {
    let (object, what, errno) = (&error.object, &error.message, error.errno);
    let made = |code, object: &str, message: String| OpError { errno, ..OpError::new(code, object, message) };
    match error.operation {
        "open" => made(ErrorCode::Unsupported, tap::TUN, format!("failed to create tap: open {object}: {what}")).hint(
            "the host needs this file where the runtime runs: `modprobe tun`, and `mknod /dev/net/tun c 10 200` if no program \
             makes it",
        ),
        "set context" => {
            let message = format!("failed set socket label: write {}: {what}", tap::EXEC_CONTEXT);
            made(ErrorCode::InvalidArgument, object, message).hint(
                "the node needs SELinux with a policy that has this context and lets the runtime's domain set it (`setexec`); \
                 else leave `selinuxContext` out",
            )
        }
        "start in context" => {
            made(ErrorCode::Kernel, object, format!("failed to create tap: start a process in {object}: {what}")).hint(
                "the node's SELinux policy has to allow the transition from the runtime's domain to this context, with the file \
                 of postern as entry point; `ausearch -m avc` shows the refusals",
            )
        }
        _ => native_error(error, "", "failed to create tap"),
    }
}

fn refused(error: KernelError, spec: &TapSpec) -> OpError {
    let KernelError { operation, object, message: what, errno, .. } = error.clone();
    let refused = |code, object: &str, message: String| OpError {
        errno,
        ..OpError::new(code, object, format!("failed to create tap: {message}"))
    };
    match (operation, errno.map(Errno::from_raw)) {
        ("open" | "set context" | "start in context", _) => not_ready(error),
        ("set owner of tap", Some(Errno::EINVAL)) => {
            refused(ErrorCode::InvalidArgument, &object, format!("owner {object}: {what}")).hint(
                "name as `owner` a user that is in `/proc/self/uid_map` of the runtime; a rootless runtime has few",
            )
        }
        ("set group of tap", Some(Errno::EINVAL)) => {
            refused(ErrorCode::InvalidArgument, &object, format!("group {object}: {what}")).hint(
                "name as `group` a group that is in `/proc/self/gid_map` of the runtime; a rootless runtime has few",
            )
        }
        ("set address of", Some(Errno::EADDRNOTAVAIL)) => refused(
            ErrorCode::InvalidArgument,
            &Mac(spec.mac).to_string(),
            match no_address(Mac(spec.mac)) {
                Some((why, _)) => format!("address {}: {what}: {why}", Mac(spec.mac)),
                None => format!("address {}: {what}", Mac(spec.mac)),
            },
        )
        .hint("name a unicast address as `mac`"),
        // With `IFF_TUN_EXCL` this error means that a link had the name before.
        (_, Some(Errno::EBUSY | Errno::EEXIST)) => {
            refused(ErrorCode::Exists, &spec.name, format!("the container has \"{}\" already", spec.name))
                .hint("the attachment exists already: run DEL first")
        }
        _ => native_error(error, &spec.name, "failed to create tap"),
    }
}
