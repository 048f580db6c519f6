//! `bandwidth`: limits of the rate of the attachment's own traffic.
//!
//! The guest only repeats the rates of the run's configuration. The links are the attachment's own: an ifb, and the
//! host end that the record or the kernel shows.

pub mod effect;

use crate::capability::bandwidth::effect::{IFB, bucket, find, is_claimed, keeps};
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::leaves::EffectKind;
use crate::context::Context;
use crate::effect::Bandwidth;
use crate::errors::{about, kernel_error, link_gone};
use crate::gate::Gate;
use crate::others::{self, NativeEnd};
use crate::request::Request;
use postern_cni::{BandwidthConf as Configured, Verb};
use postern_kernel::{Link, Qdisc, TokenBucket};
use postern_types::{ErrorCode, Handle, LinkInfo, LinkName, OpError, RateLimit, host};

impl host::Bandwidth for Gate<'_> {
    fn limit(&mut self, ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<Option<LinkInfo>, OpError> {
        configured(self.run.request, (ingress, egress))?;
        let end = host_end_to_limit(self)?;
        free(self.run, &end, ingress.as_ref(), egress.is_some())?;
        let effect = Bandwidth { host: end.name.to_string(), index: end.index, ingress, egress: None };
        let (effect, made) = match egress {
            Some(limit) => with_ifb(self.run, effect, limit, end.mtu).map(|(effect, made)| (effect, Some(made)))?,
            None => {
                self.run.journal.intend(self.run.view(), effect.clone())?;
                (effect, None)
            }
        };
        effect.make(self.run.system.host()?, made.as_ref().map(|link| link.index))?;
        self.common.shown.extend(made.iter().map(|link| link.name.to_string()));
        Ok(made.map(|link| Gate::show(Handle::MAX, link)))
    }

    fn check(&mut self, ingress: Option<RateLimit>, egress: Option<RateLimit>) -> Result<(), OpError> {
        let run = &*self.run;
        configured(run.request, (ingress, egress))?;
        let (end, _) = host_end(run)?;
        let host = run.system.host()?;
        if let Some(limit) = &ingress {
            compare(&end.name, limit, host.root_qdisc(end.index).map_err(about(&end.name))?)?;
        }
        let Some(limit) = &egress else { return Ok(()) };
        let mut names: Vec<String> =
            run.journal.recorded::<Bandwidth>().into_iter().filter_map(|of| of.egress).map(|(_, ifb)| ifb).collect();
        names.extend(run.request.masquerade_key().ifb_names());
        let redirects = host.redirects(end.index).map_err(about(&end.name))?;
        let mut there = Vec::new();
        for name in &names {
            there.extend(find(host, name)?);
        }
        if there.is_empty() {
            return Err(OpError::new(ErrorCode::Mismatch, &end.name, "get ifb device: Link not found"));
        }
        let Some(ifb) = there.into_iter().find(|ifb| redirects.contains(&Some(ifb.index))) else {
            let message = format!("traffic to \"{}\" is not redirected to an ifb of this attachment", end.name);
            return Err(OpError::new(ErrorCode::Mismatch, &end.name, message));
        };
        compare(&ifb.name, limit, host.root_qdisc(ifb.index).map_err(about(&ifb.name))?)
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.run.journal.only_of_this_run(self.run.request, Bandwidth::is, "limits of the rate")?;
        remove_own(self.run)
    }
}

fn configured(request: &Request, asked: (Option<RateLimit>, Option<RateLimit>)) -> Result<(), OpError> {
    let invalid = |message: String| OpError::new(ErrorCode::InvalidArgument, "bandwidth", message);
    let read = Configured::read(&request.conf).map_err(|error| invalid(error.msg))?;
    if (read.ingress, read.egress) == asked && !read.is_unlimited() {
        return Ok(());
    }
    Err(invalid("the configuration of this call has other limits".to_owned())
        .hint("a plugin can set only the rates that the runtime asks for in this call"))
}

/// Returns the attachment's host end, and true if the record lists it. Otherwise a native plugin made the host end:
/// `prevResult` names this end, and the kernel shows that this end leads to the container's interface. A container can
/// choose an interface index, so both ends must name each other.
fn host_end(run: &Context) -> Result<(Link, bool), OpError> {
    if let Some(end) = others::end(run)? {
        return Ok((end, true));
    }
    // The record lists a pair that is gone. A link with the pair's name belongs to another owner.
    if let Some(pair) = run.journal.pairs().first() {
        return Err(link_gone(&pair.host));
    }
    let ifname = &run.request.ifname;
    match others::native_end(run.view())? {
        NativeEnd::Own(end) => Ok((end, false)),
        NativeEnd::None => {
            let message = format!("container interface {ifname} has no veth peer in the host's namespace");
            Err(OpError::new(ErrorCode::NotFound, ifname, message)
                .hint("rates are limited at the host end of a veth: let this plugin follow bridge or ptp"))
        }
        NativeEnd::Unnamed(end) => {
            Err(OpError::new(ErrorCode::NotFound, &end.name, "no veth peer of container interface found in host ns")
                .hint(format!("prevResult does not name the host end \"{}\"", end.name)))
        }
        NativeEnd::OfOthers(end) => {
            let message = format!("the host end \"{}\" belongs to another attachment", end.name);
            Err(OpError::new(ErrorCode::Denied, &end.name, message)
                .hint("`postern ls` shows the owner: let this plugin follow the plugin that made the pair"))
        }
    }
}

/// Returns the host end that may get limits: a recorded host end, or a native plugin's host end if policy allows its
/// use.
fn host_end_to_limit(gate: &Gate<'_>) -> Result<Link, OpError> {
    let run = &*gate.run;
    let (end, is_recorded) = host_end(run)?;
    let (name, granted) = (end.name.to_string(), gate.guest.granted());
    if is_recorded || others::may_take_over_link(run, &name, granted) {
        return Ok(end);
    }
    let message = format!("no record says that an earlier plugin made \"{name}\" for this attachment");
    Err(OpError::new(ErrorCode::Denied, &end.name, message).hint(granted.object_hint("previous.names", &name)))
}

/// Fails if the host end has limits of another owner, before anything is written to the record.
fn free(run: &Context, end: &Link, ingress: Option<&RateLimit>, redirects: bool) -> Result<(), OpError> {
    let host = run.system.host()?;
    let is_own = run.journal.record().is_some_and(|record| {
        record.effects(None).iter().any(|noted| Bandwidth::of(&noted.effect).is_some_and(|of| of.host == end.name))
    });
    if is_own {
        return Ok(());
    }
    let is_set = |qdisc: &Qdisc| !qdisc.is_default();
    let root = host.root_qdisc(end.index).map_err(about(&end.name))?.filter(is_set);
    let arriving = host.ingress_qdisc(end.index).map_err(about(&end.name))?.filter(is_set);
    let taken = root.filter(|_| ingress.is_some()).or(arriving.filter(|_| redirects));
    let Some(qdisc) = taken else { return Ok(()) };
    let name = &end.name;
    let message = format!("\"{name}\" has a qdisc already ({}): its rate can't be limited", qdisc.kind);
    Err(OpError::new(ErrorCode::Exists, name, message).hint(format!(
        "`tc qdisc show dev {name}` shows the qdisc; `tc qdisc del dev {name} root` or `ingress` removes it"
    )))
}

/// Makes the ifb, unless an earlier run made it, and records its index. The ifb has the name that the native plugin
/// gives it. If another attachment of the container has a link with this name, the ifb gets the second name, which only
/// this attachment has.
///
/// Another record may list an ifb of the same name. The name is free if the kernel has no such link: the recorded index
/// tells the two ifbs apart.
fn with_ifb(run: &mut Context, plain: Bandwidth, limit: RateLimit, mtu: u32) -> Result<(Bandwidth, Link), OpError> {
    let names = run.request.masquerade_key().ifb_names();
    for name in &names {
        let effect = Bandwidth { egress: Some((limit, name.clone())), ..plain.clone() };
        let is_own =
            run.journal.recorded::<Bandwidth>().iter().filter_map(|of| of.egress.as_ref()).any(|(_, ifb)| ifb == name);
        let there = run.system.host()?.link_by_name(name).map_err(kernel_error)?;
        if !is_own && there.is_some() {
            continue;
        }
        let was_there = run.journal.has(&effect.clone().into());
        run.journal.intend(run.view(), effect.clone())?;
        if let Some(link) = there.filter(|link| was_there && link.kind == IFB) {
            return Ok((effect, link));
        }
        let host = run.system.host()?;
        if host.create_ifb(name, mtu).map_err(about(name))? {
            let link = find(host, name)?.ok_or_else(|| link_gone(name))?;
            run.journal.known_by(&effect.clone().into(), &[u64::from(link.index)]);
            return Ok((effect, link));
        }
        // Another run was faster, so the link belongs to that run.
        run.journal.gone(|of| Bandwidth::of(of) == Some(&effect));
    }
    let [name, _] = &names;
    Err(OpError::new(ErrorCode::Exists, name, format!("a link named \"{name}\" exists already"))
        .hint(format!("if the container of this link is gone, `ip link delete {name}` removes the link")))
}

fn compare(link: &LinkName, limit: &RateLimit, qdisc: Option<Qdisc>) -> Result<(), OpError> {
    let mismatch = |message: &str| Err(OpError::new(ErrorCode::Mismatch, link, message));
    let Some(qdisc) = qdisc else { return mismatch("Failed to find qdisc") };
    if keeps(&qdisc, limit) {
        return Ok(());
    }
    let expected = bucket(limit);
    match qdisc.bucket {
        None => mismatch("Failed to find qdisc"),
        Some(TokenBucket { rate, .. }) if rate != expected.rate => mismatch("Rate doesn't match"),
        Some(TokenBucket { limit, .. }) if limit != expected.limit => mismatch("Limit doesn't match"),
        Some(_) => mismatch("Buffer doesn't match"),
    }
}

/// Removes the attachment's limits by the record. If the record lists no limits, or the attachment was replaced, the
/// ifb is found by the name that the native plugin gives it.
pub(crate) fn remove_own(run: &mut Context) -> Result<(), OpError> {
    let is_add = run.request.verb == Verb::Add;
    let made = run.journal.recorded::<Bandwidth>();
    for limits in &made {
        limits.remove(run)?;
    }
    if !is_add && (made.is_empty() || run.journal.is_replaced()) {
        // Only a native plugin's ifb has to be removed. The limits on the pair go with the pair.
        let [name, _] = run.request.masquerade_key().ifb_names();
        let host = run.system.host()?;
        if let Some(ifb) = find(host, &name)?
            && !is_claimed(run.view(), &name)?
        {
            host.delete_link(ifb.index).map_err(about(&name))?;
        }
    }
    run.journal.gone(Bandwidth::is);
    Ok(())
}
