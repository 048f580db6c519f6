//! The delegate of a flannel network, and the delegate's configuration. The host makes this configuration before it
//! confines itself, from the operator's configuration and the subnet file. The delegate's request has this
//! configuration. So policies take their values from this configuration, and no guest can change a value.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::context::Context;
use crate::effect::Delegated;
use crate::places;
use crate::request::Request;
use postern_cni::{Flannel, Json, NetConf, SubnetFile, Verb, flannel, print, unicode};
use postern_policy::Granted;
use postern_policy::capability::delegate::named;
use postern_state::{Backups, StateError};
use postern_types::{ErrorCode, OpError};
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The greatest size of a subnet file, in bytes. flanneld writes about 150 bytes.
const LIMIT: u64 = 64 << 10;

/// The greatest size of a native plugin's file, in bytes. The standard input of a run has the same limit.
pub(crate) const FILE_LIMIT: u64 = 4 << 20;

/// A delegate, and its configuration.
#[derive(Debug)]
pub struct Delegation {
    /// The delegate.
    pub plugin: String,
    /// The delegate's configuration, in the native plugin's form.
    pub text: Arc<String>,
    /// The configuration, in the form of the delegate's request.
    conf: Rc<NetConf>,
    /// The contents of the subnet file, if it was needed.
    pub subnet: Option<SubnetFile>,
    /// True if the delegation comes from the native plugin's file, and not from a record.
    pub of_native: bool,
}

impl Delegation {
    fn new(plugin: String, json: Json, subnet: Option<SubnetFile>) -> Result<Self, OpError> {
        let text = Arc::new(print::compact(&json));
        let conf = Rc::new(NetConf::parse(json).map_err(|error| invalid(&plugin, &error.to_string()))?);
        Ok(Self { plugin, text, conf, subnet, of_native: false })
    }

    /// Makes the delegation from the configuration and the subnet file.
    pub fn make(request: &Request) -> Result<Self, OpError> {
        let flannel = Flannel::read(&request.conf).map_err(|error| invalid("delegate", &error.to_string()))?;
        let subnet = read_subnet(&flannel.subnet_file)?;
        let json = flannel.configuration(&request.conf, &subnet);
        let json = json.map_err(|error| invalid("ipam", &error.to_string()))?;
        Self::new(flannel.delegate, json, Some(subnet))
    }

    /// Reads a stored configuration of this network.
    fn read(network: &str, text: &str) -> Option<Self> {
        let json = Json::parse(text.as_bytes(), text.len()).ok()?;
        let conf = NetConf::parse(json.clone()).ok()?;
        let of_network = conf.name == network && !conf.plugin_type.is_empty();
        if of_network { Self::new(conf.plugin_type, json, None).ok() } else { None }
    }

    /// Adds the data of this call of the runtime: `prevResult`, and the valid attachments.
    fn with_call(self, request: &Request) -> Result<Self, OpError> {
        let Json::Object(mut keys) = self.conf.raw().clone() else { return Ok(self) };
        if let Some(previous) = request.conf.raw_previous_result() {
            flannel::set(&mut keys, "prevResult", previous);
        }
        let lists = [
            ("cni.dev/attachments", &request.conf.attachments),
            ("cni.dev/valid-attachments", &request.conf.valid_attachments),
        ];
        for (key, list) in lists {
            let Some(list) = list else { continue };
            let entry = |of: &postern_cni::ValidAttachment| {
                let text = |key: &str, value: &str| (key.to_owned(), Json::from(value));
                Json::Object(vec![text("containerID", &of.container_id), text("ifname", &of.ifname)])
            };
            flannel::set(&mut keys, key, Json::Array(list.iter().map(entry).collect()));
        }
        let made = Self::new(self.plugin, Json::Object(keys).sorted(), self.subnet)?;
        Ok(Self { of_native: self.of_native, ..made })
    }

    /// Returns the delegate's request, for the caller's run.
    pub fn request(&self, caller: &Request, verb: Verb) -> Request {
        let (conf, stdin) = (Rc::clone(&self.conf), Arc::clone(&self.text));
        Request { verb, conf, stdin, is_made_by_host: true, ..caller.clone() }
    }

    /// Fails if a configuration differs from the host's configuration.
    ///
    /// # Errors
    /// [`ErrorCode::Denied`], with the first key that differs.
    pub fn compare(&self, config: &str) -> Result<(), OpError> {
        let json = Json::parse(config.as_bytes(), config.len());
        let json = json.map_err(|error| invalid("config", &error.to_string()))?.sorted();
        let (Json::Object(theirs), Json::Object(ours)) = (&json, self.conf.raw()) else {
            return Err(invalid("config", "the configuration of a delegate is an object"));
        };
        let differs = |one: &[(String, Json)], other: &[(String, Json)]| {
            one.iter().find(|entry| !other.contains(entry)).map(|(key, _)| key.clone())
        };
        match differs(theirs, ours).or_else(|| differs(ours, theirs)) {
            None => Ok(()),
            Some(key) => {
                let message = format!(
                    "\"{}\" can't run with this '{key}': network and subnet file give another value",
                    self.plugin
                );
                Err(OpError::new(ErrorCode::Denied, key, message)
                    .hint("a key of `delegate` or `ipam` in the network configuration changes this value"))
            }
        }
    }
}

/// Returns the delegation of this run. On DEL the delegation may be unknown; then nothing is delegated.
pub(crate) fn prepare(run: &Context, granted: &Granted) -> Result<Option<Delegation>, OpError> {
    let request = run.request;
    let make = || {
        let [_, file, _] = named(&request.conf);
        // The decision on the operation gives people the full message.
        if !file.is_empty() && !granted.has_object("delegate.files", &file) {
            let message = format!("policy does not allow reading {file}");
            return Err(OpError::new(ErrorCode::Denied, file, message));
        }
        Delegation::make(request)
    };
    match request.verb {
        Verb::Add => make().map(Some),
        Verb::Status | Verb::Gc => make()?.with_call(request).map(Some),
        Verb::Del => Ok(written(run, granted)),
        Verb::Check => match written(run, granted) {
            Some(written) => written,
            None => make()?,
        }
        .with_call(request)
        .map(Some),
        Verb::Version => Ok(None),
    }
}

/// Returns the delegation of this attachment's ADD: by the record, else by the native plugin's file.
fn written(run: &Context, granted: &Granted) -> Option<Delegation> {
    let network = &run.request.conf.name;
    if let Some(recorded) = run.journal.recorded::<Delegated>().pop() {
        return Delegation::read(network, &recorded.config);
    }
    let [_, _, directory] = named(&run.request.conf);
    if !granted.has_object("delegate.directories", &directory) || !Path::new(&directory).is_absolute() {
        return None;
    }
    let read = || match Backups::open(Path::new(&directory))? {
        Some(files) => files.read(&run.request.container_id, FILE_LIMIT),
        None => Ok(None),
    };
    // After an error, which may be temporary, the file is read once more. Without the file no delegation is known, and
    // a DEL would leave the delegate's effects.
    let content = read().or_else(|_| read()).unwrap_or_else(|error: StateError| {
        crate::say!("postern: the native plugin's file about this container is not used: {error}");
        None
    })?;
    let read = Delegation::read(network, &unicode::text(&content))?;
    if !granted.has_object("delegate.types", &read.plugin) {
        crate::say!(
            "postern: the native plugin's file about this container is not used: policy denies {}",
            read.plugin
        );
        return None;
    }
    Some(Delegation { of_native: true, ..read })
}

/// Reads a subnet file. Only root and the effective user may be able to change the file.
fn read_subnet(path: &str) -> Result<SubnetFile, OpError> {
    let untrusted = |reason: String| {
        OpError::new(ErrorCode::Io, path, format!("{path} is not used: {reason}"))
            .hint("`subnetFile` of the network configuration names this file")
    };
    if !Path::new(path).is_absolute() {
        return Err(invalid(path, &format!("subnetFile {path} is no absolute path")));
    }
    if !places::is_there(Path::new(path)) {
        let message = format!("open {path}: no such file or directory");
        return Err(OpError::new(ErrorCode::NotFound, path, message)
            .hint("flanneld writes this file: see the log of flannel's pod"));
    }
    postern_state::trust(Path::new(path)).map_err(|error| untrusted(error.to_string()))?;
    let file = places::open_trusted(Path::new(path)).map_err(|error| untrusted(error.to_string()))?;
    let file = file.ok_or_else(|| untrusted("it has just disappeared".to_owned()))?;
    let mut text = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut text).map_err(|error| untrusted(error.to_string()))?;
    if text.len() as u64 > LIMIT {
        return Err(untrusted(format!("it is longer than {LIMIT} bytes")));
    }
    SubnetFile::parse(&unicode::text(&text), path).map_err(|error| {
        let converted = OpError::new(ErrorCode::InvalidArgument, path, error.msg);
        if error.details.is_empty() { converted } else { converted.hint(error.details) }
    })
}

fn invalid(object: &str, message: &str) -> OpError {
    OpError::new(ErrorCode::InvalidArgument, object, message)
}
