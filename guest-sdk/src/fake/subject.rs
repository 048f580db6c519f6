//! The common steps of plugins' tests.

use super::change::{self, Change};
use super::{Kernel, VERBS, call_verb, env, install, numbers_of_failures, with};
use crate::error::Error;
use crate::plugin::Plugin;
use postern_cni::Env;
use std::borrow::Cow;

/// A plugin under test, with the keys of all its configurations and the node that it runs on.
///
/// Keys are JSON text that follows `{"cniVersion":"1.1.0","name":"n"`: an empty text, or keys with a comma before each.
/// A call can repeat a key of the subject: the last value counts, and objects are merged.
///
/// ```
/// use postern_guest::cni::CniResult;
/// use postern_guest::fake::{ONE_ADDRESS, Subject, change, two_links};
/// use postern_guest::{Error, Plugin, Request, all, attachments, check, configure, dummy, interface, ipam, link};
///
/// struct Plain;
///
/// impl Plugin for Plain {
///     fn add(&self, request: &Request) -> Result<CniResult, Error> {
///         let made = dummy::create()?;
///         let result = configure::only_link(ipam::add()?, interface(&made.attributes, &request.env.netns))?;
///         configure::with_result(&made.link, &result)?;
///         Ok(result)
///     }
///
///     fn del(&self, _request: &Request) -> Result<(), Error> {
///         all([link::delete_own(), ipam::del()])
///     }
///
///     fn check(&self, request: &Request) -> Result<(), Error> {
///         let result = check::previous_result(&request.conf()?, "prevResult is required")?;
///         let link = link::own()?.ok_or_else(|| Error::new("the link is gone"))?;
///         check::is_up("eth0", &link.attributes()?)?;
///         check::configuration(&link, "eth0", &result)
///     }
/// }
///
/// const PLUGIN: Subject<Plain> = Subject::new(Plain, r#","ipam":{"type":"static"}"#, || two_links(ONE_ADDRESS));
///
/// assert!(PLUGIN.add("").contains(r#""address":"10.1.2.3/24""#));
/// PLUGIN.check_finds(&[
///     (change::gone, "the link is gone"),
///     (change::down, "Interface eth0 is down"),
///     (|node| node.own_mut().unwrap().routes.clear(), "Failed to find Gateway 10.1.2.1 for interface eth0"),
/// ]);
/// assert_eq!(PLUGIN.message("CHECK", ""), "prevResult is required");
/// PLUGIN.every_operation_may_fail();
/// PLUGIN.survives(r#","ipam":7"#);
/// ```
#[derive(Clone, Debug)]
pub struct Subject<P> {
    plugin: P,
    keys: Cow<'static, str>,
    node: fn() -> Kernel,
}

impl<P: Plugin> Subject<P> {
    /// Returns a subject with these keys, on the node that `node` makes.
    pub const fn new(plugin: P, keys: &'static str, node: fn() -> Kernel) -> Self {
        Self { plugin, keys: Cow::Borrowed(keys), node }
    }

    /// Adds keys to all configurations.
    #[must_use]
    pub fn with_keys(mut self, keys: &str) -> Self {
        self.keys.to_mut().push_str(keys);
        self
    }

    /// Replaces the function that makes the node.
    #[must_use]
    pub const fn on(mut self, node: fn() -> Kernel) -> Self {
        self.node = node;
        self
    }

    /// Makes a new node, which becomes the kernel of this thread.
    pub fn install(&self) {
        install((self.node)());
    }

    /// Runs a verb with these keys, on the node as it is now.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn call(&self, verb: &str, keys: &str) -> Result<String, Error> {
        self.call_with_args(verb, "", keys)
    }

    /// Works as [`Subject::call`], with this `CNI_ARGS`.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn call_with_args(&self, verb: &str, args: &str, keys: &str) -> Result<String, Error> {
        let config = format!(r#"{{"cniVersion":"1.1.0","name":"n"{}{keys}}}"#, self.keys);
        call_verb(&self.plugin, Env { args: args.to_owned(), ..env(verb) }, &config)
    }

    /// Runs a verb on a new node, with this configuration and without the subject's keys.
    ///
    /// # Errors
    /// The plugin's error.
    pub fn call_anew(&self, verb: &str, config: &str) -> Result<String, Error> {
        self.install();
        call_verb(&self.plugin, env(verb), config)
    }

    /// Returns the message of a verb that fails, on the node as it is now.
    #[track_caller]
    pub fn message(&self, verb: &str, keys: &str) -> String {
        let outcome = self.call(verb, keys);
        assert!(outcome.is_err(), "{verb} with {keys}: {outcome:?}");
        outcome.map_or_else(|error| error.object().msg.clone(), |_| String::new())
    }

    /// Runs ADD on a new node. Returns the result on one line, without spaces.
    #[track_caller]
    pub fn add(&self, keys: &str) -> String {
        self.added(keys).replace([' ', '\n'], "")
    }

    /// Makes an attachment on a new node. Returns the keys and the result as `prevResult`, for the next verb.
    #[track_caller]
    pub fn attached(&self, keys: &str) -> String {
        format!(r#"{keys},"prevResult":{}"#, self.added(keys))
    }

    #[track_caller]
    fn added(&self, keys: &str) -> String {
        self.install();
        let outcome = self.call("ADD", keys);
        assert!(outcome.is_ok(), "ADD with {keys}: {outcome:?}");
        outcome.unwrap_or_default()
    }

    /// Asserts that ADD fails with these words before it makes a link. Each pair has keys and words.
    #[track_caller]
    pub fn add_refuses(&self, refusals: &[(&str, &str)]) {
        for (keys, words) in refusals {
            self.install();
            assert_eq!(self.message("ADD", keys), *words, "ADD with {keys}");
            assert!(with(|node| node.own().is_none()), "ADD with {keys} made a link");
        }
    }

    /// Asserts that CHECK of an attachment succeeds, and that CHECK fails with these words after each change.
    #[track_caller]
    pub fn check_finds(&self, changes: &[(Change, &str)]) {
        for (change, words) in changes {
            let keys = self.attached("");
            assert_eq!(self.call("CHECK", &keys).as_deref(), Ok(""), "CHECK without the change");
            with(change);
            let found = self.call("CHECK", &keys).map_err(|error| error.object().msg.clone());
            assert_eq!(found, Err((*words).to_owned()));
        }
    }

    /// Works as [`Subject::check_finds`], with the changes of [`change::OF_LINK`]. The words have the order of the
    /// changes: the link is gone, has another kind, has another MAC address, is down, has no addresses.
    #[track_caller]
    pub fn check_compares_link(&self, words: [&str; change::OF_LINK.len()]) {
        self.check_finds(&change::OF_LINK.into_iter().zip(words).collect::<Vec<_>>());
    }

    /// Makes each operation of each verb fail in turn, as [`each_operation_fails`](super::each_operation_fails). ADD has
    /// a new node, and the other verbs have an attachment. Returns how many operations ADD, DEL, CHECK, STATUS and GC
    /// have.
    #[track_caller]
    pub fn every_operation_may_fail(&self) -> [usize; 5] {
        let prepare = |verb: &str| match verb {
            "ADD" => {
                self.install();
                String::new()
            }
            _ => self.attached(""),
        };
        numbers_of_failures(prepare, |verb, keys| self.call(verb, keys))
    }

    /// Calls each verb with these keys on a new node. A verb may fail but must not panic.
    pub fn survives(&self, keys: &str) {
        for verb in VERBS {
            self.install();
            let _ = self.call(verb, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{ONE_ADDRESS, two_links};
    use crate::{Request, check, dummy, link};
    use postern_cni::CniResult;

    /// A plugin whose CHECK only tests if the link exists, and whose DEL reports no failure.
    struct Careless;

    impl Plugin for Careless {
        fn add(&self, request: &Request) -> Result<CniResult, Error> {
            request.conf()?;
            dummy::create().map(|_| CniResult::default())
        }

        fn del(&self, _: &Request) -> Result<(), Error> {
            let _ = link::delete_own();
            Ok(())
        }

        fn check(&self, request: &Request) -> Result<(), Error> {
            check::previous_result(&request.conf()?, "no prevResult")?;
            assert!(!request.conf()?.ipam_type.contains("panic"));
            link::own()?.map(|_| ()).ok_or_else(|| Error::new("gone"))
        }
    }

    const PLUGIN: Subject<Careless> = Subject::new(Careless, "", || two_links(ONE_ADDRESS));

    #[test]
    fn each_assertion_can_fail() {
        PLUGIN.check_finds(&[(change::gone, "gone")]);
        PLUGIN.add_refuses(&[(
            r#","ipam":7"#,
            "json: cannot unmarshal number into Go struct field NetConf.ipam of type struct",
        )]);
        PLUGIN.survives("");
        let wrong: [fn(); 9] = [
            || PLUGIN.check_finds(&[(change::gone, "missing")]),
            || PLUGIN.check_finds(&[(change::down, "down")]),
            || PLUGIN.check_compares_link(["gone"; 5]),
            || PLUGIN.add_refuses(&[("", "refused")]),
            || PLUGIN.add_refuses(&[(r#","ipam":7"#, "refused")]),
            || drop(PLUGIN.add(r#","ipam":7"#)),
            || drop(PLUGIN.message("ADD", "")),
            || {
                PLUGIN.every_operation_may_fail();
            },
            || PLUGIN.survives(r#","ipam":{"type":"panic"},"prevResult":{}"#),
        ];
        for (n, assertion) in wrong.into_iter().enumerate() {
            assert!(std::panic::catch_unwind(assertion).is_err(), "assertion {n} holds");
        }
    }
}
