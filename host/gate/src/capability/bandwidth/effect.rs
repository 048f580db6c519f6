//! Limits of the rate of an attachment's traffic: token buckets, and the ifb that shapes the traffic from the
//! container.

use crate::capability::leaves::{EffectKind, Reapplied};
use crate::context::{Context, View};
use crate::effect::in_record;
use crate::errors::{about, kernel_error, link_gone};
use crate::others;
use crate::right::Right;
use postern_kernel::{Link, Netlink, Qdisc, TokenBucket};
use postern_types::{ErrorCode, LinkName, OpError, RateLimit};
use serde::{Deserialize, Serialize};

/// The kernel's name for links that shape traffic.
pub const IFB: &str = "ifb";

/// The most milliseconds that a packet waits in a token bucket, as with the native plugin.
const LATENCY: u64 = 25;

/// The bytes of the longest packet.
const PACKET: u64 = 64 << 10;

/// Limits of the rate of an attachment's traffic. The record also has the interface index of the ifb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// The host end's name.
    #[serde(rename = "port")]
    pub host: String,
    /// The host end's interface index. A later link with the host end's name belongs to another attachment, which may
    /// have equal limits.
    pub index: u32,
    /// The limit towards the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<RateLimit>,
    /// The limit from the container, and the name of the ifb that applies the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<(RateLimit, String)>,
}

/// Returns the token bucket of a limit.
///
/// The kernel takes the size of a bucket as the time to fill it, in ticks of 64 ns. The largest time is 274 s: a larger
/// bucket is made smaller. containerd asks for the largest possible burst. The native plugin cuts large numbers to
/// their lowest 32 bits, and its CHECK expects the cut numbers. This function cuts them too, unless the bucket would be
/// too small for one packet.
pub fn bucket(limit: &RateLimit) -> TokenBucket {
    let (largest, cut) = (sized(limit, largest), sized(limit, lowest_bits));
    let holds = u128::from(cut.buffer) * 64 * u128::from(cut.rate) / 1_000_000_000;
    TokenBucket {
        rate: cut.rate,
        limit: if u64::from(cut.limit) < PACKET { largest.limit } else { cut.limit },
        buffer: if holds < u128::from(PACKET) { largest.buffer } else { cut.buffer },
    }
}

/// True if a qdisc is the bucket of a limit, as made by this version, an earlier version or the native plugin.
pub fn keeps(qdisc: &Qdisc, limit: &RateLimit) -> bool {
    [bucket(limit), sized(limit, largest), sized(limit, lowest_bits)].iter().any(|bucket| qdisc.is_bucket(bucket))
}

/// Returns the bucket of a limit. `fit` converts the bucket's numbers to 32 bits.
fn sized(limit: &RateLimit, fit: fn(u64) -> u32) -> TokenBucket {
    let most = u64::from(u32::MAX);
    let (rate, burst) = ((limit.rate / 8).max(1), (limit.burst / 8).min(most));
    let microseconds = (burst * 1_000_000 / rate).min(most);
    // The bytes that may wait, beside the burst.
    let waiting = (rate / 1000).saturating_mul(LATENCY).saturating_add(rate % 1000 * LATENCY / 1000).min(most);
    // 15.625 ticks are a microsecond.
    TokenBucket { rate, limit: fit(waiting + burst), buffer: fit(microseconds * 125 / 8) }
}

fn largest(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn lowest_bits(number: u64) -> u32 {
    largest(number & u64::from(u32::MAX))
}

impl Bandwidth {
    fn end(&self, host: &Netlink) -> Result<Option<Link>, OpError> {
        Ok(host.link_by_name(&self.host).map_err(kernel_error)?.filter(|link| link.index == self.index))
    }

    /// Makes the missing parts of the limits, on existing links. Returns true if a part was missing. `index` is the
    /// index of the ifb, if known: a later link with the ifb's name belongs to another attachment.
    ///
    /// # Errors
    /// [`ErrorCode::Exists`]: the link has another owner's qdisc or filter. [`ErrorCode::NotFound`]: a link is gone.
    pub(crate) fn make(&self, host: &Netlink, index: Option<u32>) -> Result<bool, OpError> {
        let end = self.end(host)?.ok_or_else(|| link_gone(&self.host))?;
        let mut changed = false;
        if let Some(limit) = &self.ingress {
            changed |= limit_rate(host, &end, limit)?;
        }
        if let Some((limit, name)) = &self.egress {
            let ifb = find(host, name)?.filter(|ifb| index.is_none_or(|index| index == ifb.index));
            let ifb = ifb.ok_or_else(|| link_gone(name))?;
            changed |= limit_rate(host, &ifb, limit)?;
            changed |= redirect(host, &end, &ifb)?;
        }
        Ok(changed)
    }

    /// Removes the ingress qdisc, unless one of its filters leads to another link. A filter whose link is gone names
    /// link 0.
    fn stop_redirecting(&self, host: &Netlink, end: &Link, name: &str) -> Result<(), OpError> {
        let ifb = find(host, name)?.map_or(0, |ifb| ifb.index);
        let filters = host.redirects(end.index).map_err(about(&end.name))?;
        if filters.iter().all(|to| to.is_some_and(|to| to == 0 || to == ifb)) {
            host.delete_ingress_qdisc(end.index).map_err(about(&end.name))?;
        }
        Ok(())
    }

    /// Removes the ifb by the recorded index. If an ADD was killed before it recorded the index, the name identifies
    /// the ifb. Then no other attachment's record may have this name.
    fn remove_ifb(&self, run: &Context, name: &str) -> Result<(), OpError> {
        let host = run.system.host()?;
        let Some(ifb) = find(host, name)? else { return Ok(()) };
        let is_own = match run.journal.indices(self).first() {
            Some(index) => *index == ifb.index,
            None => !is_claimed(run.view(), name)?,
        };
        if is_own { host.delete_link(ifb.index).map(drop).map_err(about(name)) } else { Ok(()) }
    }

    /// True if all parts of the limits exist.
    pub fn is_whole(&self, host: &Netlink) -> Result<bool, OpError> {
        let Some(end) = self.end(host)? else { return Ok(false) };
        if let Some(limit) = &self.ingress
            && !is_limited(host, &end, limit)?
        {
            return Ok(false);
        }
        let Some((limit, name)) = &self.egress else { return Ok(true) };
        let Some(ifb) = find(host, name)? else { return Ok(false) };
        let redirects = host.redirects(end.index).map_err(about(&end.name))?;
        Ok(redirects.contains(&Some(ifb.index)) && is_limited(host, &ifb, limit)?)
    }
}

pub(crate) fn find(host: &Netlink, name: &str) -> Result<Option<Link>, OpError> {
    Ok(host.link_by_name(name).map_err(kernel_error)?.filter(|link| link.kind == IFB && link.name == name))
}

pub(crate) fn is_claimed(view: View<'_>, name: &str) -> Result<bool, OpError> {
    others::is_claimed_by(view, |summary| {
        in_record::<Bandwidth>(summary).any(|of| of.egress.is_some_and(|(_, ifb)| ifb == name))
    })
}

fn is_limited(host: &Netlink, link: &Link, limit: &RateLimit) -> Result<bool, OpError> {
    let qdisc = host.root_qdisc(link.index).map_err(about(&link.name))?;
    Ok(qdisc.is_some_and(|qdisc| keeps(&qdisc, limit)))
}

/// Gives a link its token bucket, if the bucket is missing. Returns true if the bucket was missing.
fn limit_rate(host: &Netlink, link: &Link, limit: &RateLimit) -> Result<bool, OpError> {
    match host.root_qdisc(link.index).map_err(about(&link.name))? {
        Some(qdisc) if keeps(&qdisc, limit) => Ok(false),
        Some(qdisc) if !qdisc.is_default() => Err(occupied(&link.name, &format!("a root qdisc ({})", qdisc.kind))),
        _ => host.limit_rate(link.index, &bucket(limit)).map(|()| true).map_err(about(&link.name)),
    }
}

/// Redirects the host end's incoming traffic to the ifb. Returns true if the redirection was missing.
fn redirect(host: &Netlink, end: &Link, ifb: &Link) -> Result<bool, OpError> {
    match host.ingress_qdisc(end.index).map_err(about(&end.name))? {
        Some(qdisc) if !qdisc.is_default() => {
            let filters = host.redirects(end.index).map_err(about(&end.name))?;
            if qdisc.kind == "ingress" && filters == [Some(ifb.index)] {
                return Ok(false);
            }
            Err(occupied(&end.name, &format!("an ingress qdisc ({})", qdisc.kind)))
        }
        _ => host.redirect_ingress(end.index, ifb.index).map(|()| true).map_err(about(&end.name)),
    }
}

fn occupied(link: &LinkName, what: &str) -> OpError {
    OpError::new(ErrorCode::Exists, link, format!("\"{link}\" has {what} that another program set"))
        .hint(format!("`tc qdisc show dev {link}` shows the qdisc; let only one of the two programs set limits"))
}

impl EffectKind for Bandwidth {
    /// Removes the limits from the host end, and removes the ifb. The host end may stay, or get new limits.
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let host = run.system.host()?;
        if let Some(end) = self.end(host)? {
            if let Some(limit) = &self.ingress
                && is_limited(host, &end, limit)?
            {
                host.delete_root_qdisc(end.index).map_err(about(&end.name))?;
            }
            if let Some((_, name)) = &self.egress {
                self.stop_redirecting(host, &end, name)?;
            }
        }
        self.egress.as_ref().map_or(Ok(()), |(_, name)| self.remove_ifb(run, name))
    }

    fn words(&self) -> String {
        match &self.egress {
            Some((_, ifb)) => format!("limits of the rate on {} and {ifb}", self.host),
            None => format!("limit of the rate on {}", self.host),
        }
    }

    fn reapply(&self, run: &mut Context) -> Result<Reapplied, OpError> {
        let host = run.system.host()?;
        if self.is_whole(host)? {
            return Ok(Reapplied::Complete);
        }
        self.make(host, run.journal.indices(self).first().copied())?;
        Ok(Reapplied::Restored)
    }

    fn right(&self) -> Right<'_> {
        Right::Network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_the_native_plugins_numbers() {
        for (rate, burst, expected) in [
            // 1 Mbit/s and a burst of 100,000 bits.
            (1_000_000, 100_000, (125_000, 15_625, 1_562_500)),
            (8, 8, (1, 1, 15_625_000)),
            (16_000_000, 33_554_432, (2_000_000, 4_244_304, 32_768_000)),
            // A rate that does not fit 32 bits, and the highest rate.
            (80_000_000_000, 80_000, (10_000_000_000, 250_010_000, 15)),
            (u64::MAX, 8, (u64::MAX / 8, u32::MAX, 0)),
            // The burst that containerd asks for.
            (10_000_000, 4_294_967_295, (1_250_000, 536_902_161, 2_415_919_079)),
            // The sum of burst and waiting bytes is cut to its lowest 32 bits.
            (1_000_000_000, 34_359_738_344, (125_000_000, 3_124_997, 536_870_906)),
            // 2^32 + 1454 ticks: a bucket of 1454 ticks would be too small for one packet.
            (8_000, 2_199_024, (1_000, 274_903, u32::MAX)),
        ] {
            let TokenBucket { rate, limit, buffer } = bucket(&RateLimit { rate, burst });
            assert_eq!((rate, limit, buffer), expected);
        }
    }

    #[test]
    fn a_bucket_whose_time_was_cut_is_the_native_plugins() {
        let limit = RateLimit { rate: 10_000_000, burst: 4_294_967_295 };
        let qdisc = |buffer| {
            let bucket = TokenBucket { buffer, ..bucket(&limit) };
            Qdisc { kind: "tbf".to_owned(), handle: 0x1_0000, bucket: Some(bucket) }
        };
        // 429,496,728 µs are 6,710,886,375 ticks.
        assert!(keeps(&qdisc(2_415_919_079), &limit) && keeps(&qdisc(u32::MAX), &limit));
        assert!(!keeps(&qdisc(2_415_919_078), &limit));
        assert!(!keeps(&Qdisc { handle: 0x7_0000, ..qdisc(u32::MAX) }, &limit));
    }
}
