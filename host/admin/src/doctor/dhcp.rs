//! DHCP: checks that the services that networks use answer, and that the services' leases belong to attachments.

use super::{Examination, Node, Remedy, Severity};
use postern_account::dhcp::{START, Untold, is_of, leases};
use postern_dhcp_channel::{SWITCH, Standing};
use postern_gate::policies;
use postern_policy::capability::dhcp::socket;
use postern_types::Capability;
use std::collections::BTreeMap;

pub fn examine(examination: &mut Examination, node: &Node) {
    examination.area = "dhcp";
    let mut asked = BTreeMap::new();
    for list in &node.lists {
        for (entry, request) in list.requests() {
            let is_dhcp =
                |catalog| policies::load_with(None, catalog, entry.ipam()).is_ok_and(|it| it.knows(Capability::Dhcp));
            if entry.ipam().is_empty() || !node.catalog_of(entry.ipam()).is_some_and(is_dhcp) {
                continue;
            }
            let conf = postern_cni::NetConf::parse_or_unread(request.into(), postern_cni::Lists::default());
            let socket = socket(&conf);
            let answer = asked.entry(socket.clone()).or_insert_with(|| leases(&socket));
            let why = format!("every ADD of network \"{}\" fails", list.name());
            match answer {
                Err(Untold::Absent(reason)) => {
                    let what = format!("no DHCP service answers at this socket: {reason}");
                    let remedy = Remedy::Command(START.to_owned());
                    examination.found(Severity::Error, &socket, what, &why, remedy);
                }
                Err(Untold::Native) => {
                    let what =
                        "the server at this socket is a native daemon (cni-dhcp.service), which Postern does not use"
                            .to_owned();
                    examination.found(Severity::Error, &socket, what, &why, Remedy::Command(SWITCH.to_owned()));
                }
                Err(Untold::Other(reason)) if nix::unistd::geteuid().is_root() => {
                    let what = format!("the DHCP service at this socket {reason}");
                    let remedy = Remedy::Words("see `systemctl status postern-dhcp.service`".to_owned());
                    examination.found(Severity::Error, &socket, what, &why, remedy);
                }
                Ok(_) | Err(Untold::Other(_)) => {}
            }
        }
    }
    for (socket, answer) in &asked {
        let Ok(leases) = answer else { continue };
        examination.look("dhcp", format!("leases of the DHCP service at {socket}: {}", leases.len()));
        for held in leases {
            let name = format!("{}/{}/{}", held.network, held.container_id, held.ifname);
            let is_known =
                node.accounts.iter().any(|account| account.header.as_ref().is_some_and(|header| is_of(held, header)));
            // The account of the attachment reports faults of its lease.
            if is_known {
                continue;
            }
            let family = held.family.name();
            let what = match &held.standing {
                Standing::Lost(why) => format!(
                    "the service keeps a lost {family} lease of {name} ({why}), and this attachment has no record"
                ),
                Standing::Acquiring | Standing::Bound | Standing::Remembered => {
                    format!("the service keeps an {family} lease of {name}, and this attachment has no record")
                }
            };
            let why = "the record may have been removed by hand; the service ends the lease when the namespace is gone";
            examination.found(Severity::Note, socket, what, why, Remedy::None);
        }
    }
}
