//! The plugins of a list: those of this executable run in one process, one after the other, and the rest are executed.

use postern_cni::{Env, code};
use postern_gate::list::{Answer, ListProcess};
use postern_gate::{Engine, Planned, plugin_file};
use postern_net::{Attachment, Error, List, Plugins, Programs, Verb, answer};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::VecDeque;

/// See the module.
pub struct Together {
    programs: Programs,
    /// `None` if each plugin gets a process.
    engine: Option<Engine>,
    running: RefCell<Running>,
}

/// The calls that are expected, and the process for some of them.
#[derive(Default)]
struct Running {
    /// The verb of these calls, and the attachment if they have one.
    of: Option<(Verb, Option<Attachment>)>,
    /// The plugins in the order of their calls, with their numbers in the process's plan, if they are in it.
    expected: VecDeque<(String, Option<usize>)>,
    process: Option<ListProcess>,
}

impl Together {
    /// Makes them of the programs of a runtime's directories. Without an engine each plugin gets a process.
    pub fn new(programs: Programs, engine: Option<Engine>) -> Self {
        Self { programs, engine, running: RefCell::default() }
    }
}

impl Plugins for Together {
    fn expect(&self, list: &List, verb: Verb, attachment: Option<&Attachment>, more: &Map<String, Value>) {
        let Some(engine) = self.engine else { return };
        let mut running = Running { of: Some((verb, attachment.cloned())), ..Running::default() };
        let mut plan = Vec::new();
        let forwards: Vec<_> = list.plugins.iter().collect();
        let ordered: Vec<_> = if verb == Verb::Del { forwards.into_iter().rev().collect() } else { forwards };
        for plugin in ordered {
            let own = self.programs.find(&plugin.program).ok().and_then(|path| plugin_file::own_plugin(&path));
            let input = plugin.input(list, None, attachment);
            let planned = own.zip(input.ok()).map(|(plugin, mut input)| {
                input.extend(more.clone());
                plan.push(Planned { plugin, input: Value::Object(input).to_string() });
                plan.len() - 1
            });
            running.expected.push_back((plugin.program.clone(), planned));
        }
        // An earlier process has nothing more to do. It ends before the next one begins.
        drop(self.running.replace(Running::default()));
        if !plan.is_empty() {
            let Attachment { container_id, netns, ifname, .. } = attachment.cloned().unwrap_or_default();
            let env = Env {
                command: verb.as_str().to_owned(),
                container_id,
                netns,
                ifname,
                args: attachment.map(Attachment::args_text).unwrap_or_default(),
                path: self.programs.path(),
                netns_override: std::env::var("CNI_NETNS_OVERRIDE").unwrap_or_default(),
            };
            // Without that process each plugin gets its own, which has words for what is missing.
            running.process = ListProcess::start(plan, env, &list.name, engine).ok();
        }
        self.running.replace(running);
    }

    fn run(&self, name: &str, verb: Verb, attachment: Option<&Attachment>, input: &[u8]) -> Result<Vec<u8>, Error> {
        let mut running = self.running.borrow_mut();
        let is_of = running.of.as_ref().is_some_and(|(of, whose)| *of == verb && whose.as_ref() == attachment);
        let expected = if is_of { running.expected.pop_front() } else { None };
        let expected = expected.filter(|(expected, _)| expected == name);
        if let (Some((_, Some(at))), Some(process), Ok(text)) =
            (expected, running.process.as_mut(), std::str::from_utf8(input))
        {
            let answered = process.run(at, text);
            let unasked = |error| Error::new(code::IO_FAILURE, format!("cannot ask the process of the list: {error}"));
            if let Answer::Ended { status, stdout, stderr } = answered.map_err(unasked)? {
                return answer(status, stdout, &stderr);
            }
        }
        self.programs.run(name, verb, attachment, input)
    }
}
