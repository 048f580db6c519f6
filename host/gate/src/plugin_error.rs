//! The reasons why a plugin is not run.

use crate::inherited::RlimitError;
use crate::places::PlaceError;
use postern_policy::PolicyError;
use std::path::PathBuf;

/// The reason why a plugin is not run, with the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// A place is not trusted, or does not exist.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// No file can have that name.
    #[error("invalid plugin name: {0}")]
    Name(String),
    /// The catalog has no code of it.
    #[error("there is no plugin \"{plugin}\" in {}; `postern add FILE.wasm --policy FILE` places one", .catalog.display())]
    Absent {
        /// The plugin.
        plugin: String,
        /// The catalog that was searched.
        catalog: PathBuf,
    },
    /// Its code has no manifest.
    #[error(
        "no plugin \"{plugin}\" is installed: {} is missing, which says what its code has to be; {AGAIN}",
        .manifest.display()
    )]
    NoManifest {
        /// The plugin.
        plugin: String,
        /// The path where its manifest should be.
        manifest: PathBuf,
    },
    /// Its manifest can't be understood.
    #[error("{} makes no sense: {reason}; {AGAIN}", .manifest.display())]
    Garbled {
        /// The manifest.
        manifest: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It was installed under another name.
    #[error("plugin \"{plugin}\" is not what it is called: {} was installed as \"{installed}\"; {AGAIN}", .code.display())]
    Renamed {
        /// Its present name.
        plugin: String,
        /// Its code.
        code: PathBuf,
        /// Its name when it was installed.
        installed: String,
    },
    /// The length of its code has changed.
    #[error(
        "the code of plugin \"{plugin}\" is not whole: {} has {size} bytes, and had {installed} when it was installed; \
         {AGAIN}",
        .code.display()
    )]
    NotWhole {
        /// The plugin.
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
        /// The plugin.
        plugin: String,
        /// Its code.
        code: PathBuf,
        /// The engine that it is for.
        compiled: String,
        /// The engine of this host.
        engine: String,
    },
    /// Its code is not the compiled code.
    #[error(
        "the code of plugin \"{plugin}\" was changed or swapped: {} has sha256 {found}, and its manifest {} says {wanted}; \
         find out who did that, then {AGAIN}",
        .code.display(), .manifest.display()
    )]
    Changed {
        /// The plugin.
        plugin: String,
        /// Its code.
        code: PathBuf,
        /// The hash of its code.
        found: String,
        /// Its manifest.
        manifest: PathBuf,
        /// The hash in the manifest.
        wanted: String,
    },
    /// It is not the component that its policy pins.
    #[error(
        "plugin \"{plugin}\" is another component than its policy is for: sha256:{pinned} is pinned, and sha256:{given} is \
         given; look at what changed with `postern inspect --diff OLD NEW`, then set `digest` in {}",
        .file.display()
    )]
    OtherComponent {
        /// The plugin.
        plugin: String,
        /// The digest that the policy requires.
        pinned: String,
        /// The digest of the component.
        given: String,
        /// The file where an operator would write another pin.
        file: PathBuf,
    },
    /// It has no policy.
    #[error(
        "plugin \"{plugin}\" has no policy at {}, and a plugin without a policy is not run; `postern add FILE.wasm --policy \
         FILE` places both",
        .file.display()
    )]
    NoPolicy {
        /// The plugin.
        plugin: String,
        /// The path where its policy should be.
        file: PathBuf,
    },
    /// Its policy can't be understood.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A limit is too low for its process.
    #[error("cannot start the sandbox process: {0}")]
    Limit(#[from] RlimitError),
    /// It needs the second program, which is missing.
    #[error(
        "plugin \"{plugin}\" imports all of WASI, and is run by {}, which is not there; `make install` puts it there",
        .program.display()
    )]
    NoProgram {
        /// The plugin.
        plugin: String,
        /// The path where the program should be.
        program: PathBuf,
    },
    /// The kernel refuses a channel to its process.
    #[error("cannot open a channel to the sandbox: {0}")]
    NoChannel(String),
    /// The kernel refuses a process.
    #[error("cannot start the sandbox process: {0}")]
    NoProcess(String),
    /// The host has confined itself.
    #[error("plugin \"{0}\" is running already, or ended badly: it is not started again in this run")]
    Taken(String),
}

/// The way out of every fault of an installed plugin.
const AGAIN: &str = "install it again: `make install`, or `postern add FILE.wasm --policy FILE`";
