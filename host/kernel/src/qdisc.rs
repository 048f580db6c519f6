//! Queueing disciplines (qdiscs) and filters that limit a link's rate (`tc(8)`, `tc-tbf(8)`; `linux/pkt_sched.h`,
//! `linux/pkt_cls.h`).
//!
//! This module makes only three objects: a token bucket at a link's root, an ingress qdisc, and a filter in the ingress
//! qdisc. The filter redirects all received packets to another link. All requests are for one link, so their cost does
//! not grow with the number of links.

use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption, TcActionType, TcAttribute,
    TcFilterU32, TcFilterU32Option, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption, TcU32Key,
    TcU32Selector, TcU32SelectorFlags,
};
use nix::errno::Errno;
use nix::libc::{TCA_KIND, TCA_OPTIONS};
use postern_netlink::{Attribute, Attributes, NetlinkRequest, u32_at};
use rtnetlink::LinkIfb;

/// Length of `struct tcmsg`.
const HEADER: usize = 20;

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_U32_DIVISOR: u16 = 4;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
/// The offset of the action and of the link's index in `struct tc_mirred`.
const MIRRED_ACTION: usize = 20;
const MIRRED_INDEX: usize = 24;
const TCA_EGRESS_REDIR: u32 = 1;

/// The parent of the qdisc through which a link sends (`TC_H_ROOT`).
const ROOT: u32 = 0xffff_ffff;
/// The parent of the qdisc that sees received packets (`TC_H_INGRESS`).
const INGRESS: u32 = 0xffff_fff1;
/// The handle of every ingress qdisc, `ffff:`.
const INGRESS_HANDLE: u32 = 0xffff_0000;
/// The handle of the token buckets that are made here, `1:`, as the native plugin makes them.
const BUCKET_HANDLE: u32 = 0x0001_0000;
/// The priority of the filter that is made here.
const PRIORITY: u32 = 1;
/// `ETH_P_ALL` in network byte order, as `tcm_info` has it beside the priority.
const ALL_PROTOCOLS: u16 = 3_u16.to_be();

/// A token bucket (`tc-tbf(8)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes per second.
    pub rate: u64,
    /// The most bytes that may wait.
    pub limit: u32,
    /// The size of the bucket as the time to fill it, in ticks of 64 ns.
    pub buffer: u32,
}

/// A qdisc of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// `tbf`, `ingress`, `clsact`, `noqueue`, …
    pub kind: String,
    /// The handle, `MAJOR:MINOR` in one number; 0 for the kernel's default qdisc.
    pub handle: u32,
    /// The parameters, if the qdisc is a token bucket.
    pub bucket: Option<TokenBucket>,
}

impl Qdisc {
    /// True for the kernel's default qdisc, which nobody set.
    pub fn is_default(&self) -> bool {
        self.handle == 0
    }

    /// True for a token bucket as [`Netlink::limit_rate`] makes it, with these parameters. Some kernels cut a buffer to
    /// 2³²-1 ns.
    pub fn is_bucket(&self, bucket: &TokenBucket) -> bool {
        let kept = TokenBucket { buffer: bucket.buffer.min(LEAST_LIMIT_OF_BUFFER), ..*bucket };
        self.handle == BUCKET_HANDLE && [Some(*bucket), Some(kept)].contains(&self.bucket)
    }

    /// Reads an `RTM_NEWQDISC`.
    fn decode(payload: &[u8]) -> Option<Self> {
        let handle = u32_at(payload, 8)?;
        let attributes = Attributes(payload.get(HEADER..)?);
        let kind = attributes.first(TCA_KIND)?.text()?.to_owned();
        let bucket =
            if kind == "tbf" { attributes.first(TCA_OPTIONS).and_then(|options| bucket(&options)) } else { None };
        Some(Self { kind, handle, bucket })
    }
}

/// The longest buffer that every kernel keeps: 2³²-1 ns in ticks.
const LEAST_LIMIT_OF_BUFFER: u32 = u32::MAX >> 6;

/// Reads `struct tc_tbf_qopt`, and the separate attribute of a rate above 32 bits.
fn bucket(options: &Attribute<'_>) -> Option<TokenBucket> {
    let parameters = options.nested().first(TCA_TBF_PARMS)?.value;
    let long = options.nested().first(TCA_TBF_RATE64).and_then(|rate| rate.value.try_into().ok());
    let rate = long.map_or_else(|| u32_at(parameters, 8).map(u64::from), |rate| Some(u64::from_ne_bytes(rate)))?;
    Some(TokenBucket { rate, limit: u32_at(parameters, 24)?, buffer: u32_at(parameters, 28)? })
}

impl Netlink {
    /// Returns the qdisc through which a link sends. `None` for a link that has never been up.
    pub fn root_qdisc(&self, index: u32) -> Result<Option<Qdisc>> {
        self.qdisc(index, ROOT)
    }

    /// Returns the qdisc for received packets: of kind `ingress` or `clsact`, if there is one.
    pub fn ingress_qdisc(&self, index: u32) -> Result<Option<Qdisc>> {
        self.qdisc(index, INGRESS)
    }

    fn qdisc(&self, index: u32, parent: u32) -> Result<Option<Qdisc>> {
        let subject = Subject { operation: "look up qdisc of", object: &format_args!("link {index}") };
        let request = RouteNetlinkMessage::GetQueueDiscipline(message(index, 0, parent, 0));
        Ok(unless(&[Errno::ENOENT], self.find(subject, &request, Qdisc::decode))?.flatten())
    }

    /// Creates an ifb: a link that takes other links' packets, and returns the packets to their link after the ifb's
    /// own qdisc. The ifb is up, and has no other queue. False if a link has that name already.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel has no ifb, `EINVAL` for a bad name or MTU.
    pub fn create_ifb(&self, name: &str, mtu: u32) -> Result<bool> {
        let ifb = LinkIfb::new(name)
            .mtu(mtu)
            .up()
            .append_extra_attribute(LinkAttribute::TxQueueLen(0))
            .append_extra_attribute(LinkAttribute::NumTxQueues(1))
            .append_extra_attribute(LinkAttribute::NumRxQueues(1));
        let made = self.create(Subject { operation: "create ifb", object: &name }, name, ifb.build());
        Ok(unless(&[Errno::EEXIST], made)?.is_some())
    }

    /// Gives a link a token bucket with the handle `1:` as its root qdisc.
    ///
    /// # Errors
    /// `EEXIST` if the link has a root qdisc that somebody set. `EINVAL` for a rate or buffer that lets nothing pass.
    /// `ENODEV` if the link is missing. `ENOENT` if the kernel has no token buckets.
    pub fn limit_rate(&self, index: u32, bucket: &TokenBucket) -> Result<()> {
        let subject = Subject { operation: "limit the rate of", object: &format_args!("link {index}") };
        let message = RouteNetlinkMessage::NewQueueDiscipline(bucket_message(index, bucket));
        self.acknowledged(subject, &message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Redirects all packets that a link receives to another link, which sends them: an ingress qdisc and a filter.
    ///
    /// # Errors
    /// `EEXIST` if the link has an ingress qdisc or clsact. `ENODEV` if one of the links is missing. `ENOENT` if the
    /// kernel lacks the qdisc, the filter or the action.
    pub fn redirect_ingress(&self, index: u32, to: u32) -> Result<()> {
        let subject = Subject { operation: "redirect", object: &format_args!("link {index} to link {to}") };
        let mut qdisc = message(index, INGRESS_HANDLE, INGRESS, 0);
        qdisc.attributes = vec![TcAttribute::Kind("ingress".to_owned())];
        let qdisc = RouteNetlinkMessage::NewQueueDiscipline(qdisc);
        self.acknowledged(subject, &qdisc, NLM_F_CREATE | NLM_F_EXCL)?;
        let filter = RouteNetlinkMessage::NewTrafficFilter(redirect_message(index, to));
        self.acknowledged(subject, &filter, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Returns the filters of a link's ingress qdisc: for each filter, the link that it redirects to. `None` stands for
    /// a filter that redirects to no link.
    pub fn redirects(&self, index: u32) -> Result<Vec<Option<u32>>> {
        let subject = Subject { operation: "list filters of", object: &format_args!("link {index}") };
        let filters = RouteNetlinkMessage::GetTrafficFilter(message(index, 0, INGRESS_HANDLE, 0));
        let filters = self.dump(subject, NetlinkRequest::new(&filters, 0), |payload| {
            // A u32 filter also lists its hash tables. A hash table has a size and matches nothing.
            let options = Attributes(payload.get(HEADER..)?).first(TCA_OPTIONS);
            let filter = options.filter(|options| options.nested().first(TCA_U32_DIVISOR).is_none());
            Some(filter.map(|options| redirect(&options)))
        });
        // These errors mean that the link has no ingress qdisc.
        Ok(unless(&[Errno::ENOENT, Errno::EINVAL], filters)?.unwrap_or_default())
    }

    /// Deletes the root qdisc of a link, which then gets the kernel's default. False if the link had the default
    /// already.
    pub fn delete_root_qdisc(&self, index: u32) -> Result<bool> {
        self.delete_qdisc(index, BUCKET_HANDLE, ROOT)
    }

    /// Deletes the ingress qdisc of a link, with its filters. False if the link has no ingress qdisc. A clsact, which
    /// takes the same place, stays.
    pub fn delete_ingress_qdisc(&self, index: u32) -> Result<bool> {
        let found = unless(&[Errno::ENODEV], self.ingress_qdisc(index))?.flatten();
        Ok(found.is_some_and(|qdisc| qdisc.kind == "ingress") && self.delete_qdisc(index, INGRESS_HANDLE, INGRESS)?)
    }

    fn delete_qdisc(&self, index: u32, handle: u32, parent: u32) -> Result<bool> {
        let subject = Subject { operation: "delete qdisc of", object: &format_args!("link {index}") };
        let request = RouteNetlinkMessage::DelQueueDiscipline(message(index, handle, parent, 0));
        let none = [Errno::ENOENT, Errno::EINVAL, Errno::ENODEV];
        Ok(unless(&none, self.acknowledged(subject, &request, 0))?.is_some())
    }
}

fn message(index: u32, handle: u32, parent: u32, info: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.handle = TcHandle::from(handle);
    message.header.parent = TcHandle::from(parent);
    message.header.info = info;
    message
}

fn bucket_message(index: u32, bucket: &TokenBucket) -> TcMessage {
    let mut message = message(index, BUCKET_HANDLE, ROOT, 0);
    // `struct tc_tbf_qopt`: the rate and the peak rate with three words each, then limit, buffer and MTU. A rate that
    // needs 64 bits has its own attribute.
    let rate = u32::try_from(bucket.rate).unwrap_or(u32::MAX);
    let words = [0, 0, rate, 0, 0, 0, bucket.limit, bucket.buffer, 0];
    let parameters = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    let mut options = vec![TcOption::Other(DefaultNla::new(TCA_TBF_PARMS, parameters))];
    if u32::try_from(bucket.rate).is_err() {
        options.push(TcOption::Other(DefaultNla::new(TCA_TBF_RATE64, bucket.rate.to_ne_bytes().to_vec())));
    }
    message.attributes = vec![TcAttribute::Kind("tbf".to_owned()), TcAttribute::Options(options)];
    message
}

fn redirect_message(index: u32, to: u32) -> TcMessage {
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    // A key with an empty mask fits every packet.
    selector.nkeys = 1;
    selector.keys = vec![TcU32Key::default()];
    let mut mirror = TcMirror::default();
    mirror.generic.action = TcActionType::Stolen;
    mirror.eaction = TcMirrorActionType::EgressRedir;
    mirror.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror))]),
    ];
    let options = [
        TcFilterU32Option::ClassId(TcHandle { major: 1, minor: 1 }),
        TcFilterU32Option::Selector(selector),
        TcFilterU32Option::Action(vec![action]),
    ];
    let mut message = message(index, 0, INGRESS_HANDLE, PRIORITY << 16 | u32::from(ALL_PROTOCOLS));
    message.attributes = vec![
        TcAttribute::Kind(TcFilterU32::KIND.to_owned()),
        TcAttribute::Options(options.into_iter().map(TcOption::U32).collect()),
    ];
    message
}

/// Returns the link that a filter's action redirects to; `None` for any other filter.
fn redirect(options: &Attribute<'_>) -> Option<u32> {
    let actions = options.nested().first(TCA_U32_ACT)?;
    let action = actions.nested().iter().next()?;
    if action.nested().first(TCA_ACT_KIND)?.text() != Some("mirred") {
        return None;
    }
    let parameters = action.nested().first(TCA_ACT_OPTIONS)?.nested().first(TCA_MIRRED_PARMS)?.value;
    (u32_at(parameters, MIRRED_ACTION)? == TCA_EGRESS_REDIR).then(|| u32_at(parameters, MIRRED_INDEX)).flatten()
}
