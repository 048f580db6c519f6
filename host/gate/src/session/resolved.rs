//! Policies that were resolved for a look, kept for the run itself. To resolve one takes a run more than half as long as to read it.

use super::{Request, Session};
use postern_cni::Json;
use postern_policy::{Granted, Policy, PolicyError};
use std::cell::Cell;

/// Each for one configuration and its `CNI_ARGS`, which are all that the outcome depends on.
#[derive(Default)]
pub struct Resolved(Cell<Vec<One>>);

struct One {
    policy: Policy,
    config: Json,
    args: String,
    granted: Granted,
}

impl Session {
    /// Returns a policy for this run's configuration.
    ///
    /// # Errors
    /// The configuration makes a value of the policy ambiguous.
    pub fn grants(&self, policy: &Policy) -> Result<Granted, PolicyError> {
        self.resolved.take(policy, &self.request).map_or_else(|| Resolved::resolve(policy, &self.request), Ok)
    }

    /// Looks at a policy for this run's configuration before the process is confined: `None` if a value is ambiguous. What
    /// was resolved is kept for [`Session::grants`].
    pub fn grants_early<T>(&self, policy: &Policy, look: impl FnOnce(Option<&Granted>) -> T) -> T {
        let granted = self.grants(policy).ok();
        let seen = look(granted.as_ref());
        if let Some(granted) = granted {
            self.resolved.keep(policy, &self.request, granted);
        }
        seen
    }
}

impl Resolved {
    /// # Errors
    /// The configuration makes a value of the policy ambiguous.
    pub fn resolve(policy: &Policy, request: &Request) -> Result<Granted, PolicyError> {
        policy.resolve(request.conf.raw(), request.args())
    }

    pub fn keep(&self, policy: &Policy, request: &Request, granted: Granted) {
        let (config, args) = (request.conf.raw().clone(), request.args().to_owned());
        let mut kept = self.0.take();
        kept.push(One { policy: policy.clone(), config, args, granted });
        self.0.set(kept);
    }

    /// Returns what was kept for this policy and this request. It is given out once: a run changes it.
    pub fn take(&self, policy: &Policy, request: &Request) -> Option<Granted> {
        let mut kept = self.0.take();
        let is_it =
            |one: &One| one.policy.is_same(policy) && one.config == *request.conf.raw() && one.args == request.args();
        let found = kept.iter().position(is_it).map(|at| kept.swap_remove(at).granted);
        self.0.set(kept);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::{Lists, NetConf, Verb, Version};

    fn request(config: &str, args: &str) -> Request {
        let raw = Json::parse(config.as_bytes(), 4096).unwrap();
        Request {
            plugin: "bridge".to_owned(),
            verb: Verb::Add,
            container_id: "c1".to_owned(),
            netns: String::new(),
            ifname: "eth0".to_owned(),
            path: String::new(),
            env: vec![("CNI_ARGS".to_owned(), args.to_owned())],
            stdin: String::new().into(),
            conf: NetConf::parse_or_unread(raw, Lists::default()),
            version: Version::LATEST,
        }
    }

    /// A policy for another configuration would grant what that one names.
    #[test]
    fn what_was_kept_is_for_the_same_policy_configuration_and_arguments() {
        let text = "[grant.bridge]\nnames = [\"${config.bridge | cni0}\"]";
        let (policy, other) = (Policy::parse(text, "a.toml").unwrap(), Policy::parse(text, "a.toml").unwrap());
        let (one, same) = (request(r#"{"bridge":"br1"}"#, "A=b"), request(r#"{"bridge":"br1"}"#, "A=b"));
        let resolved = Resolved::default();
        resolved.keep(&policy, &one, Resolved::resolve(&policy, &one).unwrap());
        for (policy, request) in [
            (&other, &one),
            (&policy, &request(r#"{"bridge":"br2"}"#, "A=b")),
            (&policy, &request(r#"{"bridge":"br1"}"#, "A=c")),
        ] {
            assert!(resolved.take(policy, request).is_none());
        }
        let kept = resolved.take(&policy.clone(), &same).unwrap();
        assert_eq!(kept.view(), Resolved::resolve(&policy, &one).unwrap().view());
        assert!(resolved.take(&policy, &one).is_none(), "it is given out once");
    }
}
