//! Netlink requests that this process sends itself, in the network namespace of the calling thread. In a virtual
//! machine, the start of a program such as `ip` takes longer than its requests.

use anyhow::{Context, Result, bail, ensure};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::os::fd::AsRawFd;

/// Types and flags of messages, from linux/netlink.h, linux/rtnetlink.h and linux/netfilter/nf_tables.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const RTM_NEWLINK: u16 = 16;
const RTM_GETRULE: u16 = 34;
/// `NFT_MSG_GETTABLE` of the subsystem `NFNL_SUBSYS_NFTABLES`.
const NFT_GETTABLE: u16 = (10 << 8) | 1;
const AF_INET6: u8 = 10;
/// The length of a message's header.
const HEADER: usize = 16;

/// Sets the link `lo` up.
///
/// # Errors
/// The kernel refuses the request.
pub fn lo_up() -> Result<()> {
    // struct ifinfomsg: family and type 0, index 1, flags and their mask IFF_UP.
    let mut link = vec![0; 4];
    for word in [1u32, 1, 1] {
        link.extend(word.to_ne_bytes());
    }
    ask(SockProtocol::NetlinkRoute, RTM_NEWLINK, NLM_F_ACK, &link).map(drop).context("lo up")
}

/// Returns the kernel's answer on IPv6 rules, as bytes: equal answers mean equal rules.
///
/// # Errors
/// The kernel refuses the request.
pub fn rules_v6() -> Result<Vec<u8>> {
    let mut header = [0; 12];
    header[0] = AF_INET6;
    ask(SockProtocol::NetlinkRoute, RTM_GETRULE, NLM_F_DUMP, &header).context("IPv6 rules")
}

/// True if there is a table of nf_tables.
///
/// # Errors
/// The kernel refuses the request.
pub fn has_nft_tables() -> Result<bool> {
    Ok(!ask(SockProtocol::NetlinkNetFilter, NFT_GETTABLE, NLM_F_DUMP, &[0; 4])
        .context("tables of nf_tables")?
        .is_empty())
}

/// Sends one request, and returns the contents of all messages of the answer.
fn ask(protocol: SockProtocol, kind: u16, flags: u16, content: &[u8]) -> Result<Vec<u8>> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let mut request = u32::try_from(HEADER + content.len())?.to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    // Number of the request, and port of the socket.
    request.extend([0; 8]);
    request.extend(content);
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = buffer.get(..length).context("a message")?;
        while let [a, b, c, d, e, f, ..] = *rest {
            let (length, kind) = (usize::try_from(u32::from_ne_bytes([a, b, c, d]))?, u16::from_ne_bytes([e, f]));
            let content = rest.get(HEADER..length).context("a message that is cut off")?;
            match kind {
                NLMSG_DONE => return Ok(answer),
                NLMSG_ERROR => {
                    let code =
                        content.first_chunk().map(|code| i32::from_ne_bytes(*code)).context("an error without code")?;
                    ensure!(code == 0, std::io::Error::from_raw_os_error(-code));
                    return Ok(answer);
                }
                _ => answer.extend(content),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        if length == 0 {
            bail!("the kernel does not answer");
        }
    }
}
