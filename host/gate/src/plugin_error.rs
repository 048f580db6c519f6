//! Why a plugin is not run.

use crate::inherited::LimitError;
use crate::places::PlaceError;
use postern_policy::PolicyError;
use std::path::PathBuf;

/// Why a plugin is not run, with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// A place is not to be trusted, or is not there.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// No file can be called that.
    #[error("invalid plugin name: {0}")]
    Name(String),
    /// The catalog has no code of it.
    #[error("there is no plugin \"{plugin}\" in {}; `postern add FILE.wasm --policy FILE` places one", .catalog.display())]
    Absent {
        /// Which.
        plugin: String,
        /// Where it was looked for.
        catalog: PathBuf,
    },
    /// Its code has no manifest.
    #[error(
        "no plugin \"{plugin}\" is installed: {} is missing, which says what its code has to be; {AGAIN}",
        .manifest.display()
    )]
    NoManifest {
        /// Which.
        plugin: String,
        /// Where its manifest belongs.
        manifest: PathBuf,
    },
    /// Its manifest can't be understood.
    #[error("{} makes no sense: {reason}; {AGAIN}", .manifest.display())]
    Garbled {
        /// The manifest.
        manifest: PathBuf,
        /// Why not.
        reason: String,
    },
    /// It was installed under another name.
    #[error("plugin \"{plugin}\" is not what it is called: {} was installed as \"{installed}\"; {AGAIN}", .code.display())]
    Renamed {
        /// What it is called.
        plugin: String,
        /// Its code.
        code: PathBuf,
        /// What it was called when it was installed.
        installed: String,
    },
    /// Its code has lost or gained something.
    #[error(
        "the code of plugin \"{plugin}\" is not whole: {} has {size} bytes, and had {installed} when it was installed; \
         {AGAIN}",
        .code.display()
    )]
    NotWhole {
        /// Which.
        plugin: String,
        /// Its code.
        code: PathBuf,
        /// Its length now.
        size: u64,
        /// Its length when it was installed.
        installed: u64,
    },
    /// Its code is for another engine.
    #[error(
        "the code of plugin \"{plugin}\" was compiled for another engine: {} is for \"{compiled}\", and this host has \
         \"{engine}\"; {AGAIN}",
        .code.display()
    )]
    OtherEngine {
        /// Which.
        plugin: String,
        /// Its code.
        code: PathBuf,
        /// The engine that it is for.
        compiled: String,
        /// The engine of this host.
        engine: String,
    },
    /// Its code is not what was compiled.
    #[error(
        "the code of plugin \"{plugin}\" was changed or swapped: {} has sha256 {found}, and its manifest {} says {wanted}; \
         find out by whom, then {AGAIN}",
        .code.display(), .manifest.display()
    )]
    Changed {
        /// Which.
        plugin: String,
        /// Its code.
        code: PathBuf,
        /// The hash of its code.
        found: String,
        /// Its manifest.
        manifest: PathBuf,
        /// The hash in it.
        wanted: String,
    },
    /// It is not the component that its policy pins.
    #[error(
        "plugin \"{plugin}\" is another component than its policy is for: sha256:{pinned} is pinned, and sha256:{given} is \
         given; look at what changed with `postern inspect --diff OLD NEW`, then set `digest` in {}",
        .file.display()
    )]
    OtherComponent {
        /// Which.
        plugin: String,
        /// What the policy wants.
        pinned: String,
        /// What it is.
        given: String,
        /// Where an operator would write another pin.
        file: PathBuf,
    },
    /// It has no policy.
    #[error(
        "plugin \"{plugin}\" has no policy at {}, and a plugin without a policy is not run; `postern add FILE.wasm --policy \
         FILE` places both",
        .file.display()
    )]
    NoPolicy {
        /// Which.
        plugin: String,
        /// Where its policy belongs.
        file: PathBuf,
    },
    /// Its policy means nothing.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A limit is too low for its process.
    #[error("cannot start the sandbox process: {0}")]
    Limit(#[from] LimitError),
    /// It needs the second program, and that is not there.
    #[error(
        "plugin \"{plugin}\" imports all of WASI, and is run by {}, which is not there; `make install` puts it there",
        .program.display()
    )]
    NoProgram {
        /// Which.
        plugin: String,
        /// Where the program belongs.
        program: PathBuf,
    },
    /// The kernel gives no channel to its process.
    #[error("cannot open a channel to the sandbox: {0}")]
    NoChannel(String),
    /// The kernel gives no process.
    #[error("cannot start the sandbox process: {0}")]
    NoProcess(String),
    /// The host has confined itself.
    #[error("plugin \"{0}\" is running already, or ended badly: it is not started again in this run")]
    Taken(String),
}

/// The way out of everything that is wrong with an installed plugin.
const AGAIN: &str = "install it again: `make install`, or `postern add FILE.wasm --policy FILE`";
