//! The verbs of a runtime.

use crate::{Attachment, Cache, List, Outcome, Verb};
use postern_cni::{Error, Version, quote, validate_container_id, validate_interface_name, validate_network_name};
use serde_json::{Map, Value, json};
use std::fmt;

/// A way to run plugins.
pub trait Plugins {
    /// Runs one plugin and returns its standard output. GC and STATUS have no attachment, so the variables of an
    /// attachment are empty.
    ///
    /// # Errors
    /// The plugin's own error, or the reason why it could not run.
    fn run(&self, name: &str, verb: Verb, attachment: Option<&Attachment>, input: &[u8]) -> Result<Vec<u8>, Error>;
}

/// A runtime's part of CNI.
#[derive(Clone, Debug)]
pub struct Runtime<P> {
    /// A way to run plugins.
    pub plugins: P,
    /// The cache that keeps the results.
    pub cache: Cache,
}

/// An ADD that failed.
#[derive(Debug)]
pub struct Failure {
    /// The reason of the failure.
    pub error: Error,
    /// The state of the parts that the ADD made.
    pub rest: Rest,
}

/// The state of an attachment's parts after a failed ADD.
#[derive(Debug)]
pub enum Rest {
    /// No plugin was called.
    Nothing,
    /// The DEL after the failed ADD removed the parts.
    Removed,
    /// The DEL that followed the failed ADD has failed too.
    Stayed(Error),
    /// No DEL was called: the container had this interface before, and a DEL could remove the earlier interface.
    Untouched,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        match &self.rest {
            Rest::Nothing | Rest::Removed | Rest::Untouched => Ok(()),
            Rest::Stayed(error) => write!(f, "; the DEL that followed has failed too: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl<P: Plugins> Runtime<P> {
    /// Attaches a container: calls ADD of the plugins in order. Each plugin gets the result of the plugin before. The
    /// last result is kept in the cache.
    ///
    /// If a plugin fails, DEL of the whole list follows, as the specification asks of runtimes (section 2). No DEL
    /// follows if the cache has this interface of the container already.
    ///
    /// # Errors
    /// The error of the plugin that fails, with the plugin's name, and the state of the parts.
    pub fn add(&self, list: &List, attachment: &Attachment) -> Result<Outcome, Failure> {
        self.add_once(list, attachment).map_err(|error| {
            let rest = match validate(list, attachment) {
                Err(_) => Rest::Nothing,
                // A failed ADD has written nothing to the cache.
                Ok(()) if self.cache.has_interface(attachment) => Rest::Untouched,
                Ok(()) => self.delete(list, attachment).map_or_else(Rest::Stayed, |()| Rest::Removed),
            };
            Failure { error, rest }
        })
    }

    fn add_once(&self, list: &List, attachment: &Attachment) -> Result<Outcome, Error> {
        let mut last = None;
        for plugin in &list.plugins {
            let added = validate(list, attachment)
                .and_then(|()| plugin.input(list, last.as_ref(), Some(attachment)))
                .and_then(|input| self.run(&plugin.program, Verb::Add, Some(attachment), Value::Object(input)))
                .and_then(|stdout| Outcome::parse(&stdout, &list.version));
            last = Some(added.map_err(|error| error.context(format!("plugin {plugin} failed (add)")))?);
        }
        let last = last.ok_or_else(|| Error::config("no plugin configs found"))?;
        self.cache
            .write(list, attachment, &last)
            .map_err(|error| error.context(format!("failed to set network {} cached result", quote(&list.name))))?;
        Ok(last)
    }

    /// Compares an attachment with the objects that ADD made: CHECK of each plugin in order, with the cached result.
    ///
    /// # Errors
    /// The error of the first plugin that fails; the list's version has no CHECK; the cached result can't be read.
    pub fn check(&self, list: &List, attachment: &Attachment) -> Result<(), Error> {
        if !list.has(Version::V0_4_0)? {
            let version = quote(&list.version);
            return Err(Error::version(format!("configuration version {version} does not support the CHECK command")));
        }
        if list.disable_check {
            return Ok(());
        }
        validate(list, attachment)?;
        let previous = self
            .cache
            .result(list, attachment)
            .map_err(|error| error.context(format!("failed to get network {} cached result", quote(&list.name))))?;
        for plugin in &list.plugins {
            let input = plugin.input(list, previous.as_ref(), Some(attachment))?;
            self.run(&plugin.program, Verb::Check, Some(attachment), Value::Object(input))?;
        }
        Ok(())
    }

    /// Detaches a container: DEL of each plugin, the last plugin first, with the cached result. Then the cache forgets
    /// the attachment. Further calls succeed, and so does a call for an attachment that never existed.
    ///
    /// # Errors
    /// The error of the first plugin that fails, with the plugin's name. After an error, the cache keeps the result.
    pub fn delete(&self, list: &List, attachment: &Attachment) -> Result<(), Error> {
        let has_previous = list.has(Version::V0_4_0)?;
        validate(list, attachment)?;
        // A broken result counts as no result.
        let previous = if has_previous { self.cache.result(list, attachment).ok().flatten() } else { None };
        for plugin in list.plugins.iter().rev() {
            plugin
                .input(list, previous.as_ref(), Some(attachment))
                .and_then(|input| self.run(&plugin.program, Verb::Del, Some(attachment), Value::Object(input)))
                .map_err(|error| error.context(format!("plugin {plugin} failed (delete)")))?;
        }
        self.cache.remove(&list.name, attachment);
        Ok(())
    }

    /// Removes the objects of attachments that are gone: DEL of each cached attachment of the network that is not among
    /// `valid`, then GC of each plugin.
    ///
    /// Without `valid`, all cached attachments are removed, and the plugins get no list of valid attachments.
    ///
    /// # Errors
    /// The errors of all plugins, one per line.
    pub fn collect(&self, list: &List, valid: Option<&[(String, String)]>) -> Result<(), Error> {
        if list.disable_gc {
            return Ok(());
        }
        let mut errors = Vec::new();
        for attachment in self.cache.of_network(&list.name) {
            let Attachment { container_id, ifname, .. } = &attachment;
            let is_same = |one: &(String, String)| one.0 == *container_id && one.1 == *ifname;
            if valid.is_some_and(|valid| valid.iter().any(is_same)) {
                continue;
            }
            if let Err(error) = self.delete(list, &attachment) {
                errors.push(error.context(format!("failed to delete stale attachment {container_id} {ifname}")));
            }
        }
        if list.has(Version::V1_1_0)? {
            let mut more = Map::new();
            let object = |one: &(String, String)| json!({"containerID": one.0, "ifname": one.1});
            if let Some(valid) = valid.map(|valid| valid.iter().map(object).collect::<Value>()) {
                // The input has the list under two keys, because plugins with an older libcni read the list under a
                // wrong key.
                more.insert("cni.dev/valid-attachments".to_owned(), valid.clone());
                more.insert("cni.dev/attachments".to_owned(), valid);
            }
            for plugin in &list.plugins {
                let collected = plugin.input(list, None, None).and_then(|mut input| {
                    input.extend(more.clone());
                    self.run(&plugin.program, Verb::Gc, None, Value::Object(input))
                });
                if let Err(error) = collected {
                    errors.push(error.context(format!("failed to GC plugin {}", plugin.program)));
                }
            }
        }
        match errors.first() {
            None => Ok(()),
            Some(first) => {
                let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Err(Error::new(first.code, lines.join("\n")))
            }
        }
    }

    /// Asks each plugin if an ADD could work.
    ///
    /// # Errors
    /// The error of the first plugin that fails, unchanged. A list before 1.1.0 has no STATUS, and always succeeds.
    pub fn status(&self, list: &List) -> Result<(), Error> {
        if !list.has(Version::V1_1_0)? {
            return Ok(());
        }
        for plugin in &list.plugins {
            let input = plugin.input(list, None, None)?;
            self.run(&plugin.program, Verb::Status, None, Value::Object(input))?;
        }
        Ok(())
    }

    fn run(&self, name: &str, verb: Verb, attachment: Option<&Attachment>, input: Value) -> Result<Vec<u8>, Error> {
        self.plugins.run(name, verb, attachment, input.to_string().as_bytes())
    }
}

/// Refuses names that no plugin accepts. The names become file names of the cache.
fn validate(list: &List, attachment: &Attachment) -> Result<(), Error> {
    validate_container_id(&attachment.container_id)?;
    validate_network_name(&list.name)?;
    validate_interface_name(&attachment.ifname)
}
