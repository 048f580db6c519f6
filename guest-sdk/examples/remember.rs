//! remember: keeps the labels that a container has at its ADD, with the capability `notes`. remember follows another
//! plugin in a list, and changes nothing on the node.
//!
//! | key | meaning |
//! |---|---|
//! | `args.cni.labels` | the container's labels, each with `key` and `value`, as the runtime gives them |
//! | `prevResult` | required on ADD; passed on unchanged |
//!
//! * ADD: notes the labels. Labels of more than 4 KiB are refused, and the host undoes the ADD.
//! * CHECK: the labels are still the same.
//! * DEL: writes the labels to standard error, for readers of the runtime's log. The note ends with the attachment.
//!
//! Its policy is `remember.toml`. To build it, and to add it to a node:
//!
//! ```text
//! cargo build --profile guest --target wasm32-wasip2 --package postern-guest --example remember
//! postern add target/wasm32-wasip2/guest/examples/remember.wasm --policy guest-sdk/examples/remember.toml --bin /opt/cni/bin
//! ```

use postern_guest::cni::CniResult;
use postern_guest::{Error, Plugin, Request, check, notes};
use std::process::ExitCode;

struct Remember;

impl Plugin for Remember {
    fn add(&self, request: &Request) -> Result<CniResult, Error> {
        notes::set(&labels(request)?)?;
        // If the ADD fails later, the host removes the note.
        check::previous_result(&request.conf()?, "remember must be called behind another plugin")
    }

    fn del(&self, request: &Request) -> Result<(), Error> {
        // A missing note must not stop DEL.
        match notes::get() {
            Ok(Some(labels)) => eprintln!("container {} had\n{labels}", request.env.container_id),
            Ok(None) => {}
            Err(error) => eprintln!("container {}: {}", request.env.container_id, error.object().msg),
        }
        Ok(())
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let (noted, now) = (notes::get()?.unwrap_or_default(), labels(request)?);
        if noted == now { Ok(()) } else { Err(Error::new(format!("the labels were\n{noted}\nand are\n{now}"))) }
    }
}

/// Returns the container's labels, a line for each.
fn labels(request: &Request) -> Result<String, Error> {
    let conf = request.conf()?;
    let labels = conf.args_cni()?.objects("labels")?.unwrap_or_default();
    let mut lines = Vec::new();
    for label in &labels {
        let text = |key: &str| label.str(key).map(Option::unwrap_or_default);
        lines.push(format!("{}={}", text("key")?, text("value")?));
    }
    Ok(lines.join("\n"))
}

postern_guest::version!();

fn main() -> ExitCode {
    postern_guest::run(&Remember)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_guest::fake;

    fn run(verb: &str, labels: &str) -> fake::Outcome {
        let conf = format!(
            r#"{{"cniVersion": "1.1.0", "name": "n", "args": {{"cni": {{"labels": [{labels}]}}}},
               "prevResult": {{"cniVersion": "1.1.0", "ips": [{{"address": "10.1.2.3/24"}}]}}}}"#
        );
        fake::run(&Remember, verb, &conf)
    }

    #[test]
    fn what_add_noted_is_what_check_wants() {
        fake::install(fake::Kernel::default());
        let web = r#"{"key": "app", "value": "web"}"#;
        let outcome = run("ADD", web);
        assert!(outcome.status == 0 && outcome.stdout.contains("10.1.2.3/24"), "{outcome:?}");
        assert_eq!(fake::with(|kernel| kernel.note.clone()).as_deref(), Some("app=web"));
        assert_eq!(run("CHECK", web).status, 0);
        let outcome = run("CHECK", r#"{"key": "app", "value": "db"}"#);
        assert!(outcome.stdout.contains("the labels were\\napp=web\\nand are\\napp=db"), "{outcome:?}");
        assert_eq!(run("DEL", web).status, 0);
    }

    #[test]
    fn too_many_labels_are_refused() {
        fake::install(fake::Kernel::default());
        let outcome = run("ADD", &format!(r#"{{"key": "app", "value": "{}"}}"#, "x".repeat(4093)));
        assert!(outcome.stdout.contains("a note of 4097 bytes is too long"), "{outcome:?}");
    }
}
