//! What `ls` and `show` have in common: an attachment as it is told to people and to scripts.

use crate::subject;
use anyhow::Result;
use postern_account::busy::Holder;
use postern_account::drift::{Account, Deviation, Fact, State};
use postern_account::sight;
use postern_account::utc;
use postern_gate::catalog::Manifest;
use postern_gate::places;
use postern_state::{Header, Stage};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the node's namespaces are looked at; a thousand take less than a second.
pub const WITHIN: Duration = Duration::from_secs(20);

/// Digits of a digest, or of a container's ID, that people are shown.
pub const SHORT: usize = 12;

/// The object that `--json` prints for an attachment. Keys are only ever added.
#[derive(Debug, Serialize)]
pub struct Attachment {
    /// `null` where the record can't be read, as the next four.
    pub network: Option<String>,
    pub container: Option<String>,
    pub interface: Option<String>,
    /// `CNI_NETNS` at ADD.
    pub netns: Option<String>,
    /// When it was made, milliseconds since 1970.
    pub since: Option<u64>,
    pub addresses: Vec<String>,
    pub plugins: Vec<Plugin>,
    pub state: State,
    /// A process is at work on it at this moment.
    pub under_way: bool,
    /// The processes that are, as far as they can be told.
    pub held_by: Vec<Holder>,
    /// The record's file.
    pub record: PathBuf,
    /// What there is, effect by effect.
    pub facts: Vec<Fact>,
    /// Where record and kernel differ.
    pub differences: Vec<Deviation>,
}

/// A plugin that was called for an attachment.
#[derive(Debug, Serialize)]
pub struct Plugin {
    pub plugin: String,
    /// SHA-256 of the component that was run, hexadecimal; `null` in a record of an earlier postern.
    pub digest: Option<String>,
    /// SHA-256 of the component that is installed now; `null` if none is.
    pub installed: Option<String>,
    /// How far its ADD got.
    pub stage: Option<Stage>,
}

impl Attachment {
    fn of(account: Account) -> Self {
        let mut plugins: Vec<Plugin> = account
            .sections
            .iter()
            .map(|section| Plugin {
                plugin: section.plugin().to_owned(),
                digest: Some(section.digest.clone()).filter(|digest| !digest.is_empty()),
                installed: installed(section.plugin()),
                stage: Some(section.stage),
            })
            .collect();
        for fact in account.facts.iter().filter(|fact| !fact.plugin.is_empty()) {
            if !plugins.iter().any(|known| known.plugin == fact.plugin) {
                let (plugin, installed) = (fact.plugin.clone(), installed(&fact.plugin));
                plugins.push(Plugin { plugin, digest: None, installed, stage: None });
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

    /// The state for people.
    pub fn words(&self) -> String {
        let under_way = if self.under_way && self.state != State::Stuck { " (under way)" } else { "" };
        format!("{}{under_way}", self.state)
    }

    /// How long ago it was made.
    pub fn passed(&self) -> String {
        self.since.map_or_else(|| "-".to_owned(), passed)
    }

    /// The same, and when.
    pub fn age(&self) -> String {
        self.since.map_or_else(|| "-".to_owned(), age)
    }
}

/// The digest of the installed component of a plugin.
fn installed(plugin: &str) -> Option<String> {
    // A record says what it likes: only what can be a file's name is looked for.
    let plugin = Some(plugin).filter(|plugin| subject::is_name(plugin))?;
    Some(Manifest::read(&places::catalog().ok()?, plugin).ok()?.digest)
}

/// An account of all attachments of this host, by network, container and interface.
///
/// # Errors
/// The kernel or the state directory can't be looked at.
pub fn attachments() -> Result<Vec<Attachment>> {
    let (_, accounts) = sight::settled(&postern_account::places::expected(), WITHIN).map_err(anyhow::Error::msg)?;
    let accounts = accounts.map_err(anyhow::Error::msg)?;
    let mut attachments: Vec<Attachment> = accounts.into_iter().map(Attachment::of).collect();
    let order = |one: &Attachment| (one.network.clone(), one.container.clone(), one.interface.clone());
    attachments.sort_by_key(order);
    Ok(attachments)
}

/// An attachment's name: `network/container/interface`.
pub fn name(header: &Header) -> String {
    format!("{}/{}/{}", header.network, header.container_id, header.ifname)
}

/// The first digits of a digest or an ID.
pub fn short(text: &str) -> String {
    text.chars().take(SHORT).collect()
}

/// How long ago that was.
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
