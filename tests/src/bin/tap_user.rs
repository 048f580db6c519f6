//! A program that reads and writes a tap's frames, like a virtual machine. `postern-tap-user NAME QUEUES ADDRESS
//! SECONDS` opens the tap QUEUES times and prints `open`. For SECONDS it answers ARP requests for ADDRESS and pings to
//! ADDRESS.
#![allow(unsafe_code, reason = "ioctl(2) has no safe form")]

use anyhow::{Context, Result, ensure};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// The hardware address of the program's end of the tap.
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0xbb, 1];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, queues, address, seconds] = arguments.as_slice() else {
        anyhow::bail!("usage: postern-tap-user NAME QUEUES ADDRESS SECONDS");
    };
    let (queues, address): (usize, Ipv4Addr) = (queues.parse()?, address.parse()?);
    let mut files = Vec::new();
    for number in 0..queues {
        files.push(open(name, queues > 1).with_context(|| format!("queue {number} of {name}"))?);
    }
    println!("open");
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    while Instant::now() < end {
        let mut ready: Vec<PollFd<'_>> =
            files.iter().map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut ready, PollTimeout::from(100u8))?;
        let ready: Vec<bool> = ready.iter().map(|fd| fd.any().unwrap_or_default()).collect();
        for (file, _) in files.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let mut frame = [0; 2048];
            let length = file.read(&mut frame)?;
            if let Some(answer) = frame.get_mut(..length).and_then(|frame| answer(frame, address)) {
                file.write_all(&answer)?;
            }
        }
    }
    Ok(())
}

/// Opens an existing tap.
fn open(name: &str, several: bool) -> Result<File> {
    ensure!(name.len() < libc::IFNAMSIZ, "{name} is too long");
    // `TUNSETIFF` would make a missing tap.
    std::fs::metadata(format!("/proc/sys/net/ipv4/conf/{name}")).with_context(|| format!("there is no {name}"))?;
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").context("/dev/net/tun")?;
    let mut request = [0_u8; 40];
    request.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
    let several = if several { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = u16::try_from(libc::IFF_TAP | libc::IFF_NO_PI | several)?.to_ne_bytes();
    request.iter_mut().skip(libc::IFNAMSIZ).zip(flags).for_each(|(to, byte)| *to = byte);
    // SAFETY: the kernel reads and writes one `struct ifreq`, which has 40 bytes.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    nix::errno::Errno::result(answer).context("TUNSETIFF")?;
    Ok(file)
}

/// Returns the answer to an ARP request for this address, or to a ping to this address.
fn answer(frame: &mut [u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let sender: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
    let kind: [u8; 2] = frame.get(12..14)?.try_into().ok()?;
    let mut answer = frame.to_vec();
    answer.get_mut(..6)?.copy_from_slice(&sender);
    answer.get_mut(6..12)?.copy_from_slice(&MAC);
    match kind {
        ARP if frame.get(38..42)? == address.octets() && frame.get(20..22)? == [0, 1] => {
            answer.get_mut(20..22)?.copy_from_slice(&[0, 2]);
            answer.get_mut(32..42)?.copy_from_slice(frame.get(22..32)?);
            answer.get_mut(22..28)?.copy_from_slice(&MAC);
            answer.get_mut(28..32)?.copy_from_slice(&address.octets());
            Some(answer)
        }
        // A header without options, and an echo request.
        IPV4 if frame.get(14)? == &0x45
            && frame.get(23)? == &1
            && frame.get(30..34)? == address.octets()
            && frame.get(34)? == &8 =>
        {
            answer.get_mut(26..30)?.copy_from_slice(&address.octets());
            answer.get_mut(30..34)?.copy_from_slice(frame.get(26..30)?);
            *answer.get_mut(34)? = 0;
            // The checksum changes by the difference of the two types.
            let sum = u16::from_be_bytes(frame.get(36..38)?.try_into().ok()?);
            let (sum, carry) = sum.overflowing_add(0x0800);
            answer.get_mut(36..38)?.copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
            Some(answer)
        }
        _ => None,
    }
}
