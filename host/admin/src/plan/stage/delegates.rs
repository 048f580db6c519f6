//! Delegates in a plan: each delegate's guest runs under its own policy. Native programs are not run.

use super::super::report::Delegate;
use super::{Run, Scene, Stage};
use crate::lists;
use postern_cni::{CniResult, Error, Verb};
use postern_gate::capability::{delegate, ipam};
use postern_gate::delegation::Delegation;
use postern_gate::rehearsal::Request;
use postern_kernel::Netlink;
use postern_types::{ErrorCode, OpError, SubnetFile, host};

impl host::Ipam for Scene<'_, '_> {
    fn add(&mut self) -> Result<String, OpError> {
        self.ipam(Verb::Add)?.ok_or_else(no_result)
    }

    fn del(&mut self) -> Result<(), OpError> {
        self.ipam(Verb::Del).map(drop)
    }

    fn check(&mut self) -> Result<(), OpError> {
        self.ipam(Verb::Check).map(drop)
    }

    fn status(&mut self) -> Result<(), OpError> {
        self.ipam(Verb::Status).map(drop)
    }

    fn gc(&mut self) -> Result<(), OpError> {
        self.ipam(Verb::Gc).map(drop)
    }
}

impl host::Delegate for Scene<'_, '_> {
    fn subnet_file(&mut self) -> Result<SubnetFile, OpError> {
        let subnet = Delegation::make(&self.run.request)?.subnet;
        subnet.ok_or_else(|| OpError::new(ErrorCode::NotFound, "", "no subnet file"))
    }

    fn add(&mut self, config: &str) -> Result<String, OpError> {
        self.main(Verb::Add, Some(config))?.ok_or_else(no_result)
    }

    fn del(&mut self) -> Result<(), OpError> {
        self.main(Verb::Del, None).map(drop)
    }

    fn check(&mut self) -> Result<(), OpError> {
        self.main(Verb::Check, None).map(drop)
    }

    fn status(&mut self) -> Result<(), OpError> {
        self.main(Verb::Status, None).map(drop)
    }

    fn gc(&mut self) -> Result<(), OpError> {
        self.main(Verb::Gc, None).map(drop)
    }
}

fn no_result() -> OpError {
    OpError::new(ErrorCode::Delegate, "", "the delegate has given no result")
}

impl Scene<'_, '_> {
    /// Runs the IPAM plugin's guest under its own policy. If the delegate fails, the plan undoes the delegate's
    /// effects.
    fn ipam(&mut self, verb: Verb) -> Result<Option<String>, OpError> {
        let Self { stage, run, guest, native } = self;
        let name = guest.delegate(&run.request)?;
        let granted = guest.granted();
        let may = (granted.has_object("ipam.native", &name), || granted.native_hint(&name));
        stage.is_component(run, &name, may, native).map_err(|error| ipam::delegate(&name, error))?;
        let outcome = stage.play_delegate(run, run.request.of_delegate(verb), guest.depth, &name);
        ipam::answer(&name, verb, outcome, &mut run.own, ipam::delegate)
    }

    /// Runs the main plugin that a network of flannel names, with the configuration that the host makes. `asked` is the
    /// configuration in the guest's request.
    fn main(&mut self, verb: Verb, asked: Option<&str>) -> Result<Option<String>, OpError> {
        let Self { stage, run, guest, native } = self;
        let made = Delegation::make(&run.request)?;
        guest.delegate_main(&made.plugin)?;
        if let Some(config) = asked {
            made.compare(config)?;
            if let Some(subnet) = &made.subnet {
                let netlink = Netlink::open().map_err(|e| OpError::new(ErrorCode::Kernel, "links", e.to_string()))?;
                delegate::spares_node(&netlink, subnet)?;
            }
        }
        let (name, granted) = (made.plugin.clone(), guest.granted());
        let may = (granted.allows_native_delegate(&name), || granted.object_hint("delegate.native", &name));
        stage.is_component(run, &name, may, native).map_err(|error| delegate::failed(&name, error))?;
        let outcome = stage.play_delegate(run, made.request(&run.request, verb), guest.depth, &name);
        ipam::answer(&name, verb, outcome, &mut run.own, delegate::failed)
    }
}

impl Stage {
    /// Fails if a delegate is not a component. The flag in `may` is true if policy allows a native program. The
    /// function in `may` returns a text that says how an operator can allow a native program.
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
            .then(|| format!("\"{name}\" would run as a native program with all of the host's privileges; {}", hint()));
        let message =
            format!("\"{name}\" is a native program, which plan does not run: the rest of the plan is unknown");
        if is_allowed {
            self.unknown = Some(message.clone());
        }
        Err(Error::internal(message))
    }

    /// Runs the guest of a delegate.
    fn play_delegate(
        &mut self,
        run: &mut Run,
        request: Request,
        depth: u32,
        name: &str,
    ) -> Result<Option<CniResult>, Error> {
        let (kernel, leases, own, leased) = (self.kernel.clone(), self.leases.clone(), run.own.clone(), run.leased);
        let outer = std::mem::replace(&mut run.request, request);
        let outcome = self.take(name).and_then(|ready| {
            let (plugin, digest) = (name.to_owned(), ready.digest.clone());
            let delegate = Delegate { policy: self.policy_files(name), plugin, digest };
            if !self.delegates.contains(&delegate) {
                self.delegates.push(delegate);
            }
            self.run(run, ready, name, depth + 1)
        });
        run.request = outer;
        if outcome.is_err() {
            (self.kernel, self.leases, run.own, run.leased) = (kernel, leases, own, leased);
        }
        outcome
    }
}
