//! Runs a verb of the plugin for a runtime's call, and prints the outcome as one JSON object.

use crate::error::Error;
use crate::request::Request;
use postern_cni::{CniResult, Env, Json, Verb, Version, check_version, code, config_version, version_output};
use std::io::{Read, Write};
use std::process::ExitCode;

/// The limit for a configuration, in bytes; the host's own limit is lower.
pub(crate) const CONFIGURATION_LIMIT: usize = 16 << 20;

/// A plugin: one function for each verb.
///
/// If ADD fails, the host undoes all effects, so the plugin doesn't roll back. DEL must succeed when there is nothing
/// left to remove.
pub trait Plugin {
    /// The versions of the specification that the plugin supports.
    const VERSIONS: &'static [Version] = &Version::ALL;

    /// ADD: makes the attachment and returns it in the newest form. The configuration's version decides the printed
    /// form.
    fn add(&self, request: &Request) -> Result<CniResult, Error>;

    /// DEL: removes the attachment, or its remaining objects.
    fn del(&self, request: &Request) -> Result<(), Error>;

    /// CHECK: compares the attachment with `prevResult`; changes nothing.
    fn check(&self, request: &Request) -> Result<(), Error>;

    /// STATUS: succeeds if ADD could be served now.
    fn status(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }

    /// GC: removes the objects of attachments that the runtime no longer has.
    fn gc(&self, _request: &Request) -> Result<(), Error> {
        Ok(())
    }
}

/// Runs the plugin; its `main` needs nothing else. This function reads environment and standard input, runs the verb,
/// and prints the result or the error object. The exit status is 0 or 1.
pub fn run(plugin: &impl Plugin) -> ExitCode {
    let outcome = Env::of_process().map_err(Error::from).and_then(|env| {
        refuse_to_pretend()?;
        dispatch(plugin, env, read_stdin)
    });
    let (text, status) = match &outcome {
        Ok(text) => (text.clone(), ExitCode::SUCCESS),
        Err(error) => (error.object().to_json(), ExitCode::FAILURE),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => status,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Refuses to run on the build machine, where a fake host answers for the capabilities. A plugin that was built for the
/// build machine, and installed by mistake, must not report networks that don't exist.
fn refuse_to_pretend() -> Result<(), Error> {
    if cfg!(target_arch = "wasm32") {
        return Ok(());
    }
    Err(Error::new("this plugin was built for tests: build it with --target wasm32-wasip2 and let postern run it"))
}

fn read_stdin() -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    match std::io::stdin().read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => {
            let message = format!("error reading from stdin: {error}");
            Err(postern_cni::Error::new(code::IO_FAILURE, message).into())
        }
    }
}

/// Returns the text to print on success. The host has validated environment and configuration before.
pub(crate) fn dispatch<P: Plugin>(
    plugin: &P,
    env: Env,
    stdin: impl FnOnce() -> Result<Vec<u8>, Error>,
) -> Result<String, Error> {
    let verb = env.verb()?;
    if verb == Verb::Version {
        return Ok(version_output(P::VERSIONS));
    }
    let stdin = stdin()?;
    let json = Json::parse_without_lists(&stdin, CONFIGURATION_LIMIT)?;
    let version = check_version(verb, &config_version(&json)?, P::VERSIONS)?;
    let request = Request { verb, env, version, json, stdin };
    match verb {
        Verb::Add => return Ok(plugin.add(&request)?.to_json(version)?),
        Verb::Del => plugin.del(&request)?,
        Verb::Check => plugin.check(&request)?,
        Verb::Status => plugin.status(&request)?,
        Verb::Gc => plugin.gc(&request)?,
        Verb::Version => {}
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plugin that reports its request.
    struct Echo;

    impl Plugin for Echo {
        const VERSIONS: &'static [Version] = &[Version::V0_2_0, Version::V0_4_0, Version::V1_1_0];

        fn add(&self, request: &Request) -> Result<CniResult, Error> {
            let text = format!(r#"{{"ips":[{{"address":"{}"}}]}}"#, request.env.args);
            Ok(CniResult::parse(&Json::parse(text.as_bytes(), 1000)?, "1.1.0")?)
        }

        fn del(&self, _request: &Request) -> Result<(), Error> {
            Err(Error::new("del"))
        }

        fn check(&self, _request: &Request) -> Result<(), Error> {
            Err(Error::new("check"))
        }
    }

    fn ask(verb: &str, stdin: &str) -> Result<String, Error> {
        let env = Env { command: verb.to_owned(), args: "10.1.2.3/24".to_owned(), ..Env::default() };
        dispatch(&Echo, env, || Ok(stdin.as_bytes().to_vec()))
    }

    #[test]
    fn verbs() {
        let conf = r#"{"cniVersion":"1.1.0","name":"n"}"#;
        assert_eq!(
            ask("VERSION", "ignored").unwrap(),
            "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.2.0\",\"0.4.0\",\"1.1.0\"]}\n"
        );
        assert_eq!(ask("DEL", conf).unwrap_err().to_string(), "del");
        assert_eq!(ask("CHECK", conf).unwrap_err().to_string(), "check");
        assert_eq!(ask("STATUS", conf).unwrap(), "");
        assert_eq!(ask("GC", conf).unwrap(), "");
        assert_eq!(ask("NOP", conf).unwrap_err().object().code, 4);
    }

    #[test]
    fn results_have_the_configurations_version() {
        let old = ask("ADD", r#"{"cniVersion":"0.2.0","name":"n"}"#).unwrap();
        assert!(old.contains("\"ip4\"") && old.contains("\"0.2.0\""), "{old}");
        let new = ask("ADD", r#"{"cniVersion":"1.1.0","name":"n"}"#).unwrap();
        assert!(new.contains("\"ips\"") && !new.contains("\"version\""), "{new}");
    }

    #[test]
    fn versions_that_the_plugin_lacks_are_refused() {
        for (verb, conf, message) in [
            ("ADD", r#"{"name":"n"}"#, "incompatible CNI versions"),
            ("ADD", r#"{"cniVersion":"1.0.0"}"#, "incompatible CNI versions"),
            ("GC", r#"{"cniVersion":"0.4.0"}"#, "config version does not allow GC"),
        ] {
            let error = ask(verb, conf).unwrap_err();
            assert_eq!((error.object().code, error.object().msg.as_str()), (1, message));
        }
        assert_eq!(ask("ADD", "{").unwrap_err().object().code, 6);
    }

    #[test]
    fn a_plugin_of_the_build_machine_refuses_to_pretend() {
        assert!(refuse_to_pretend().unwrap_err().to_string().contains("wasm32-wasip2"));
    }
}
