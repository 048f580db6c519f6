//! Delegates in a plan: the guest of each runs under its own policy. Native programs are not run.

use super::super::report::Delegate;
use super::{Run, Stage};
use crate::lists;
use postern_cni::{CniResult, Error, Verb};
use postern_gate::capability::{delegate, ipam};
use postern_gate::delegation::{self, Delegation};
use postern_gate::rehearsal::{self, Front};
use postern_kernel::Netlink;
use postern_types::{ErrorCode, OpError, Reply, ops};

impl Stage {
    /// Runs the delegate's guest under its own policy. A failed one has made nothing.
    pub(super) fn delegate(
        &mut self,
        run: &mut Run,
        front: &Front<'_>,
        verb: Verb,
        native: &mut Option<String>,
    ) -> Result<Reply, OpError> {
        let name = front.delegate(&run.request)?;
        let granted = front.granted();
        let may = (granted.allows_native(&name), || granted.native_hint(&name));
        self.is_component(run, &name, may, native).map_err(|error| ipam::delegate(&name, error))?;
        let outcome = self.play_delegate(run, front.depth, &name, verb);
        ipam::answer(&name, verb, outcome, &mut run.own)
    }

    /// Runs the main plugin that a network of flannel names, with the configuration that the host makes.
    pub(super) fn delegate_main(
        &mut self,
        run: &mut Run,
        front: &Front<'_>,
        asked: &ops::Delegate,
        native: &mut Option<String>,
    ) -> Result<Reply, OpError> {
        let mut made = Delegation::make(&run.request)?;
        let Some(verb) = delegate::verb(asked) else {
            let subnet = made.subnet.as_ref().map(delegation::shown);
            return subnet.map(Reply::Subnet).ok_or_else(|| OpError::new(ErrorCode::NotFound, "", "no subnet file"));
        };
        front.delegate_main(&made.plugin)?;
        if let ops::Delegate::Add { config } = asked {
            made.compare(config)?;
            if let Some(subnet) = &made.subnet {
                let netlink = Netlink::open().map_err(|e| OpError::new(ErrorCode::Kernel, "links", e.to_string()))?;
                delegate::spares_node(&netlink, subnet)?;
            }
        }
        let (name, granted) = (made.plugin.clone(), front.granted());
        let may = (granted.allows_native_delegate(&name), || granted.native_delegate_hint(&name));
        self.is_component(run, &name, may, native).map_err(|error| delegate::failed(&name, error))?;
        made.exchange(&mut run.request);
        let outcome = self.play_delegate(run, front.depth, &name, verb);
        made.exchange(&mut run.request);
        let (reply, result) = delegate::shown(&name, verb, outcome)?;
        result.iter().for_each(|result| rehearsal::adopt(&mut run.own, result));
        Ok(reply)
    }

    /// Fails unless a delegate is a component. `may` tells whether policy lets it be a native program, and the way out.
    fn is_component(
        &mut self,
        run: &Run,
        name: &str,
        may: (bool, impl Fn() -> String),
        native: &mut Option<String>,
    ) -> Result<(), Error> {
        if self.launcher.has(name) {
            return Ok(());
        }
        if !lists::is_in(&run.request.path, name) {
            let message = format!(
                "there is no plugin \"{name}\": it is not in Postern's catalog, nor a program in {}",
                run.request.path
            );
            return Err(Error::internal(message));
        }
        let (is_allowed, hint) = may;
        *native = (!is_allowed)
            .then(|| format!("it would run as a native program with all of the host's privileges; {}", hint()));
        let message = format!("\"{name}\" is a native program, which plan does not run: what follows can't be known");
        if is_allowed {
            self.unknown = Some(message.clone());
        }
        Err(Error::internal(message))
    }

    /// Runs the guest of a delegate.
    fn play_delegate(&mut self, run: &mut Run, depth: u32, name: &str, verb: Verb) -> Result<Option<CniResult>, Error> {
        let (kernel, leases, own, leased) = (self.kernel.clone(), self.leases.clone(), run.own.clone(), run.leased);
        let outer = std::mem::replace(&mut run.request.verb, verb);
        let outcome = self.take(name).and_then(|ready| {
            let (plugin, digest) = (name.to_owned(), ready.digest.clone());
            let delegate = Delegate { policy: self.policy_files(name), plugin, digest };
            if !self.delegates.contains(&delegate) {
                self.delegates.push(delegate);
            }
            self.run(run, ready, name, depth + 1)
        });
        run.request.verb = outer;
        if outcome.is_err() {
            (self.kernel, self.leases, run.own, run.leased) = (kernel, leases, own, leased);
        }
        outcome
    }
}
