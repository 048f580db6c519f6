//! The facts that never change in a run: its start, its directories, and facts about the called plugin. Only the
//! deadline can move, for cleaning up.

use crate::clock::now;
use crate::deadline::Deadline;
use crate::places::Places;
use crate::policies;
use postern_policy::NodeSettings;
use std::cell::OnceCell;
use std::rc::Rc;

/// The fixed facts of a run.
pub struct Fixed {
    /// The deadline, which moves to the run's end while the run cleans up.
    pub deadline: Rc<Deadline>,
    /// The directories that this run writes to.
    pub places: Places,
    /// The start of this run, in milliseconds since 1970.
    pub started: u64,
    /// SHA-256 of the component of the plugin that the runtime called, hexadecimal.
    pub digest: String,
    /// True if policy lets the called plugin make the attachment's link.
    pub makes_links: bool,
    settings: OnceCell<Result<NodeSettings, String>>,
}

impl Fixed {
    /// Makes the facts of a run. `digest` is the digest of the called plugin's component.
    pub fn new(deadline: Deadline, places: Places, digest: String, makes_links: bool) -> Self {
        let deadline = Rc::new(deadline);
        Self { deadline, places, started: now(), digest, makes_links, settings: OnceCell::new() }
    }

    /// Returns the operator's settings for the node, or the reason why they can't be read. The settings are read once
    /// in a run. A gate calls this function before it is confined.
    pub fn settings(&self) -> &Result<NodeSettings, String> {
        self.settings.get_or_init(|| policies::node_settings().map_err(|error| error.to_string()))
    }
}
