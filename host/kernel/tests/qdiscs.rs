//! Queueing disciplines and redirection against a real kernel, compared with iproute2.

mod common;

use common::{isolated, link, run};
use nix::errno::Errno;
use postern_kernel::{Netlink, TokenBucket};

/// 1 Mbit/s, a burst of 12,500 bytes, and 25 ms of waiting packets.
const BUCKET: TokenBucket = TokenBucket { rate: 125_000, limit: 15_625, buffer: 1_562_500 };

#[test]
fn a_token_bucket_is_as_tc_shows_it() {
    isolated(|| {
        let host = Netlink::open().unwrap();
        run("ip", "link add v1 type veth peer name v2");
        let v1 = link(&host, "v1").index;
        // A link that was never up has only a placeholder.
        assert_eq!(host.root_qdisc(v1).unwrap().filter(|qdisc| !qdisc.is_default()), None);
        assert_eq!(host.ingress_qdisc(v1).unwrap().filter(|qdisc| !qdisc.is_default()), None);
        run("ip", "link set v1 up");
        assert_eq!(
            host.root_qdisc(v1).unwrap().map(|qdisc| (qdisc.is_default(), qdisc.kind)),
            Some((true, "noqueue".into()))
        );
        host.limit_rate(v1, &BUCKET).unwrap();
        let shown = run("tc", "qdisc show dev v1 root");
        assert!(shown.starts_with("qdisc tbf 1: root"), "{shown}");
        assert!(shown.contains("rate 1Mbit burst 12500b lat 25"), "{shown}");
        let qdisc = host.root_qdisc(v1).unwrap().unwrap();
        assert!(qdisc.is_bucket(&BUCKET), "{qdisc:?}");
        assert!(!qdisc.is_bucket(&TokenBucket { rate: 1, ..BUCKET }));
        // A qdisc that somebody set is never replaced.
        assert!(host.limit_rate(v1, &BUCKET).unwrap_err().is(Errno::EEXIST));
        assert!(host.delete_root_qdisc(v1).unwrap());
        assert!(!host.delete_root_qdisc(v1).unwrap());
        // A rate beyond 32 bits, and a buffer that some kernels cut.
        let large = TokenBucket { rate: 5_000_000_000, limit: u32::MAX, buffer: u32::MAX };
        host.limit_rate(v1, &large).unwrap();
        let shown = run("tc", "qdisc show dev v1 root");
        assert!(shown.contains("rate 40Gbit"), "{shown}");
        let qdisc = host.root_qdisc(v1).unwrap().unwrap();
        assert!(qdisc.is_bucket(&large), "{qdisc:?}");
        // A bucket made by tc with the same handle has other parameters.
        run("tc", "qdisc replace dev v1 root handle 1: tbf rate 2mbit burst 10kb latency 25ms");
        assert!(!host.root_qdisc(v1).unwrap().unwrap().is_bucket(&BUCKET));
        run("tc", "qdisc replace dev v1 root handle 7: tbf rate 1mbit burst 12500b limit 15625");
        let other = host.root_qdisc(v1).unwrap().unwrap();
        assert!(other.bucket == Some(BUCKET) && !other.is_bucket(&BUCKET), "{other:?}");
        assert!(!host.delete_root_qdisc(v1).unwrap(), "a qdisc with another handle stays");
        assert!(run("tc", "qdisc show dev v1 root").contains("tbf 7:"));
        for index in [0, 4711] {
            assert!(host.root_qdisc(index).unwrap_err().is(Errno::ENODEV));
            assert!(!host.delete_root_qdisc(index).unwrap());
        }
    });
}

#[test]
fn received_packets_are_redirected_to_an_ifb() {
    isolated(|| {
        let host = Netlink::open().unwrap();
        run("ip", "link add v1 type veth peer name v2");
        let v1 = link(&host, "v1").index;
        assert!(host.create_ifb("bwp0123456789ab", 1400).unwrap());
        assert!(!host.create_ifb("bwp0123456789ab", 1400).unwrap());
        assert!(!host.create_ifb("v1", 1400).unwrap());
        let ifb = link(&host, "bwp0123456789ab");
        assert_eq!((ifb.kind.as_str(), ifb.up, ifb.mtu), ("ifb", true, 1400));
        assert!(run("ip", "link show bwp0123456789ab").contains("mtu 1400 qdisc noqueue"), "no queue");
        assert!(host.redirects(v1).unwrap().is_empty());
        host.redirect_ingress(v1, ifb.index).unwrap();
        let shown = run("tc", "filter show dev v1 ingress");
        assert!(shown.contains("flowid 1:1") && shown.contains("match 00000000/00000000 at 0"), "{shown}");
        assert!(shown.contains("mirred (Egress Redirect to device bwp0123456789ab) stolen"), "{shown}");
        assert_eq!(host.redirects(v1).unwrap(), [Some(ifb.index)]);
        assert_eq!(host.ingress_qdisc(v1).unwrap().map(|qdisc| qdisc.kind), Some("ingress".into()));
        assert!(host.redirect_ingress(v1, ifb.index).unwrap_err().is(Errno::EEXIST));
        // A foreign filter.
        run("tc", "filter add dev v1 parent ffff: prio 9 protocol ip u32 match u8 0 0 flowid 2:2");
        let mut redirects = host.redirects(v1).unwrap();
        redirects.sort();
        assert_eq!(redirects, [None, Some(ifb.index)]);
        assert!(host.delete_ingress_qdisc(v1).unwrap() && !host.delete_ingress_qdisc(v1).unwrap());
        assert_eq!(run("tc", "qdisc show dev v1 ingress"), "");
        // A clsact takes the same place, and must stay.
        run("tc", "qdisc add dev v1 clsact");
        assert_eq!(host.ingress_qdisc(v1).unwrap().map(|qdisc| qdisc.kind), Some("clsact".into()));
        assert!(host.redirect_ingress(v1, ifb.index).unwrap_err().is(Errno::EEXIST));
        assert!(!host.delete_ingress_qdisc(v1).unwrap(), "it is no ingress qdisc");
    });
}
