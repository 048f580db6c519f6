//! The shared part of `ls` and `show`: an attachment in the form for people and for scripts.

use crate::output;
use crate::subject;
use crate::versions;
use anyhow::Result;
use postern_account::attachment::{Account, Deviation, Fact, State};
use postern_account::busy::Holder;
use postern_account::node_state::{self, Accounts};
use postern_account::utc;
use postern_gate::capability::device::held::HeldNote;
use postern_gate::catalog::Manifest;
use postern_gate::catalogs::Catalogs;
use postern_gate::places::Places;
use postern_gate::policies;
use postern_state::{Header, Stage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest time to look at the node's namespaces. A thousand namespaces take less than a second.
const WITHIN: Duration = Duration::from_secs(20);

/// The number of digits of a digest, or of a container's ID, that people see.
pub const SHORT: usize = 12;

/// The object that `--json` prints for an attachment. Keys are only ever added.
#[derive(Debug, Serialize)]
pub struct Attachment {
    /// `null` if the record can't be read; this also holds for the next four fields.
    pub network: Option<String>,
    pub container: Option<String>,
    pub interface: Option<String>,
    /// `CNI_NETNS` at ADD.
    pub netns: Option<String>,
    /// The time of ADD, in milliseconds since 1970.
    pub since: Option<u64>,
    pub addresses: Vec<String>,
    pub plugins: Vec<Plugin>,
    pub state: State,
    /// True if a process holds the record at this moment.
    pub under_way: bool,
    /// The known processes that hold the record.
    pub held_by: Vec<Holder>,
    /// The record's file.
    pub record: PathBuf,
    /// The state of each effect.
    pub facts: Vec<Fact>,
    /// The differences between record and kernel.
    pub differences: Vec<Deviation>,
}

/// A plugin that was called for an attachment.
#[derive(Debug, Serialize)]
pub struct Plugin {
    pub plugin: String,
    /// SHA-256 of the component that was run, hexadecimal; `null` in a record of an earlier postern.
    pub digest: Option<String>,
    /// SHA-256 of the component that is installed now; `null` if none is installed.
    pub installed: Option<String>,
    /// The CNI versions that the installed plugin supports under its policy; `null` if none is installed, or if neither
    /// component nor policy names versions.
    pub versions: Option<Vec<String>>,
    /// The progress of the plugin's ADD.
    pub stage: Option<Stage>,
}

impl Attachment {
    fn of(account: Account, known: &mut Installed) -> Self {
        let mut plugins: Vec<Plugin> = account
            .sections
            .iter()
            .map(|section| Plugin {
                digest: Some(section.digest.clone()).filter(|digest| !digest.is_empty()),
                stage: Some(section.stage),
                ..known.plugin(section.plugin())
            })
            .collect();
        for fact in account.facts.iter().filter(|fact| !fact.plugin.is_empty()) {
            if !plugins.iter().any(|known| known.plugin == fact.plugin) {
                plugins.push(known.plugin(&fact.plugin));
            }
        }
        let header = account.header;
        let of = |part: fn(&Header) -> &String| header.as_ref().map(|header| part(header).clone());
        Self {
            network: of(|header| &header.network),
            container: of(|header| &header.container_id),
            interface: of(|header| &header.ifname),
            netns: of(|header| &header.netns_path),
            since: header.as_ref().map(|header| header.created),
            addresses: account.addresses.iter().map(ToString::to_string).collect(),
            plugins,
            state: account.state,
            under_way: account.is_held,
            held_by: account.holders,
            record: account.path,
            facts: account.facts,
            differences: account.deviations,
        }
    }

    /// Returns a held device, in the form of the attachment that used the device.
    fn of_held(places: &Places, since: u64, held: HeldNote) -> Self {
        let remedy = held.remedy();
        let what = |why: &String| format!("{held} is held: {why}");
        let differences =
            held.why.iter().map(|why| Deviation { what: what(why), remedy: remedy.clone(), is_command: false });
        Self {
            differences: differences.collect(),
            network: Some(held.network),
            container: Some(held.container_id),
            interface: Some(held.ifname),
            netns: None,
            since: Some(since),
            addresses: Vec::new(),
            plugins: Vec::new(),
            state: State::Held,
            under_way: false,
            held_by: Vec::new(),
            record: places.state.join("node"),
            facts: vec![Fact { plugin: String::new(), kind: "held", found: held.object.to_string() }],
        }
    }

    /// Returns the state for people.
    pub fn words(&self) -> String {
        let under_way = if self.under_way && self.state != State::Stuck { " (under way)" } else { "" };
        format!("{}{under_way}", self.state)
    }

    /// Returns the time since the attachment was made.
    pub fn passed(&self) -> String {
        self.since.map_or_else(|| "-".to_owned(), passed)
    }

    /// Returns the time since the attachment was made, and the date.
    pub fn age(&self) -> String {
        self.since.map_or_else(|| "-".to_owned(), age)
    }
}

/// Digest and CNI versions of an installed plugin; empty for a plugin that is not installed.
#[derive(Clone, Default)]
struct InstalledPlugin {
    digest: Option<String>,
    versions: Option<Vec<String>>,
}

/// The installed plugins, each read once.
#[derive(Default)]
struct Installed(BTreeMap<String, InstalledPlugin>);

impl Installed {
    /// Returns the data of the plugin that is installed under a name.
    fn plugin(&mut self, name: &str) -> Plugin {
        let found = self.0.entry(name.to_owned()).or_insert_with(|| Self::read(name).unwrap_or_default()).clone();
        let InstalledPlugin { digest, versions } = found;
        Plugin { plugin: name.to_owned(), digest: None, installed: digest, versions, stage: None }
    }

    fn read(plugin: &str) -> Option<InstalledPlugin> {
        // A record can contain any name. Only a valid name of a plugin is looked for.
        let plugin = Some(plugin).filter(|plugin| subject::is_name(plugin))?;
        let catalogs = Catalogs::find().ok()?;
        let catalog = catalogs.of(plugin).ok()?;
        let manifest = Manifest::read(catalog, plugin).ok()?;
        let policy = policies::load_with(None, catalog, plugin).ok();
        let versions = policy.and_then(|policy| versions::supported(&policy, manifest.versions.as_deref()));
        Some(InstalledPlugin { digest: Some(manifest.digest), versions })
    }
}

/// Looks at records and kernel.
///
/// # Errors
/// A text for people: the kernel can't be looked at.
pub fn look(places: &Places) -> Result<Accounts, String> {
    output::during("looking at the node's namespaces", || node_state::settled(places, WITHIN))
}

/// Returns an account of all attachments of this host, sorted by network, container and interface.
///
/// # Errors
/// The kernel or the state directory can't be looked at.
pub fn attachments() -> Result<Vec<Attachment>> {
    let (_, accounts) = look(&postern_account::places::expected()).map_err(anyhow::Error::msg)?;
    let accounts = accounts.map_err(anyhow::Error::msg)?;
    let mut installed = Installed::default();
    let mut attachments: Vec<Attachment> =
        accounts.into_iter().map(|account| Attachment::of(account, &mut installed)).collect();
    let places = postern_account::places::expected();
    let held = postern_account::held::list(&places).map_err(anyhow::Error::msg)?;
    attachments.extend(held.into_iter().map(|(since, held)| Attachment::of_held(&places, since, held)));
    let order = |one: &Attachment| (one.network.clone(), one.container.clone(), one.interface.clone());
    attachments.sort_by_key(order);
    Ok(attachments)
}

/// Returns an attachment's name: `network/container/interface`.
pub fn name(header: &Header) -> String {
    format!("{}/{}/{}", header.network, header.container_id, header.ifname)
}

/// Returns the first digits of a digest or an ID.
pub fn short(text: &str) -> String {
    text.chars().take(SHORT).collect()
}

/// Returns the time that has passed since a time.
fn passed(since: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = now.saturating_sub(since / 1000);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn age(since: u64) -> String {
    let (day, time) = utc(since);
    let time = time.split('.').next().unwrap_or_default();
    format!("{} ({day} {time} UTC)", passed(since))
}
