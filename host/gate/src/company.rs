//! The plugins of a list that share a process ([`crate::list`]).
//!
//! The first one that is called prepares all of them, as far as their configurations tell what they need. The process
//! then confines itself once, to all of it together. What a later run may do is decided by its own policy.

use crate::begin::{Admitted, Call, able, admit, asks_guest, is_alone};
use crate::confinement::MadeDirectories;
use crate::launcher::Launcher;
use crate::protocol::STDIN_LIMIT;
use crate::session::{Session, Shared};
use postern_cni::{Error, Verb, read_conf};
use postern_policy::Granted;

/// A plugin of a list, with what is known of its request before the list begins.
#[derive(Debug)]
pub struct Planned {
    /// The plugin's name in the catalog.
    pub plugin: String,
    /// Its standard input, without the results of plugins before it.
    pub input: String,
}

/// A plugin of a list that was not called yet.
struct Waiting {
    planned: Planned,
    launcher: Launcher,
    /// True if the process has what the plugin needs.
    is_foreseen: bool,
}

/// See the module.
pub struct Company {
    /// In the order of the list. One that was called has left.
    waiting: Vec<Option<Waiting>>,
    shared: Option<Shared>,
    made: MadeDirectories,
    /// True if the process can't be used for another run.
    is_over: bool,
}

/// What one plugin of a list will need.
pub struct Foreseen<'a> {
    /// A run with all that is known of it.
    pub session: Session,
    /// The processes of the plugin and of its delegates.
    pub launcher: &'a mut Launcher,
    /// True if the plugin may have to enter the container's namespace.
    pub enters: bool,
    /// To be set if the process has what the plugin needs.
    pub is_admitted: &'a mut bool,
}

impl Company {
    /// Starts the processes of all these plugins.
    pub fn new(plan: Vec<Planned>, launcher: &Launcher) -> Self {
        let start = |planned: Planned| {
            let mut launcher = launcher.sibling();
            launcher.warm(&planned.plugin);
            Some(Waiting { planned, launcher, is_foreseen: false })
        };
        let waiting = plan.into_iter().map(start).collect();
        Self { waiting, shared: None, made: MadeDirectories::none(), is_over: false }
    }

    /// Returns what the first run left for the others; `None` before it.
    pub fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref()
    }

    /// Takes a plugin out, with its processes. `None` if it needs a process of its own.
    pub fn take(&mut self, at: usize) -> Option<(String, Launcher)> {
        let Waiting { planned, launcher, is_foreseen } = self.waiting.get_mut(at)?.take()?;
        (!self.is_over && (self.shared.is_none() || is_foreseen)).then_some((planned.plugin, launcher))
    }

    /// Prepares the plugins that were not called yet, for the run `first`. One that can't be prepared is left out: its own
    /// process has the error.
    pub fn foresee(&mut self, call: &Call<'_>, first: &Session) -> Vec<Foreseen<'_>> {
        let waiting = self.waiting.iter_mut().flatten();
        waiting.filter_map(|waiting| waiting.foresee(call, first)).collect()
    }

    /// Keeps what later runs need of the first one, whose process is confined now.
    pub fn settle(&mut self, shared: Shared, made: MadeDirectories) {
        (self.shared, self.made) = (Some(shared), made);
    }

    /// Runs nothing more.
    pub fn give_up(&mut self) {
        self.is_over = true;
    }

    /// Ends the processes of all plugins, and removes directories that were not needed.
    pub fn end(self) {
        self.made.tidy();
    }
}

impl Waiting {
    fn foresee(&mut self, call: &Call<'_>, first: &Session) -> Option<Foreseen<'_>> {
        let Self { planned, launcher, is_foreseen } = self;
        let call = Call { name: &planned.plugin, stdin: planned.input.as_bytes(), ..*call };
        match prepare(&call, launcher, first) {
            Ok(Some((session, enters))) => Some(Foreseen { session, launcher, enters, is_admitted: is_foreseen }),
            // A confined process could not stop its sandboxes.
            Ok(None) | Err(_) => {
                launcher.dismiss();
                None
            }
        }
    }
}

/// Makes a run of all that is known of it. The flag is true if it may have to enter the container's namespace. `None` if
/// the plugin can't be run beside others.
fn prepare(call: &Call<'_>, launcher: &mut Launcher, first: &Session) -> Result<Option<(Session, bool)>, Error> {
    let raw = read_conf(call.stdin, STDIN_LIMIT)?;
    let places = first.places();
    if asks_guest(call.verb, &raw.0) {
        launcher.need_sandboxes();
    }
    let Ok(ready) = launcher.take(call.name, &places.state) else { return Ok(None) };
    if is_alone(&ready) {
        return Ok(None);
    }
    let asks = ready.policy.resolve(&raw.0, &call.env.args).is_ok_and(|granted| asks(&granted));
    let Admitted { mut session, is_needed, policy, .. } = admit(call, raw, launcher, ready, places)?;
    session.foresee(first);
    // For STATUS the host's part is looked at here: the process is confined when the plugin's turn comes.
    if let Some(policy) = &policy {
        able(&session, launcher, policy)?;
    }
    Ok(Some((session, is_needed || call.verb == Verb::Add && asks)))
}

fn asks(granted: &Granted) -> bool {
    granted.may_take_over_in_container()
}
