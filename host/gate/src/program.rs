//! The second program, `postern-wasi`: it runs a component that imports all of WASI.
//!
//! The program is separate, so that plugins that import less run without its code. It is beside the catalog, and must
//! belong to root or this user, like the catalog. It is executed when the sandbox process is forked, before the host
//! confines itself. It gets an empty environment and two descriptors. At its start it gives up its rights, like a
//! forked sandbox.

use crate::places;
use crate::plugin_error::PluginError;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::fexecve;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The program's name, beside a catalog.
pub const PROGRAM: &str = "postern-wasi";

/// Opens the program of a catalog that [`places::trust`] has accepted. Each version of an installation has its own
/// catalog and its own program.
#[expect(clippy::disallowed_methods, reason = "a catalog that was found to be trusted, wherever links lead")]
pub fn open(catalog: &Path, plugin: &str) -> Result<File, PluginError> {
    let real = catalog.canonicalize().map_err(|e| PluginError::unreadable(catalog, e))?;
    let directory = real.parent().unwrap_or(Path::new("/"));
    places::trust(directory)?;
    let path = directory.join(PROGRAM);
    places::open_trusted(&path)?.ok_or_else(|| {
        PluginError(format!(
            "plugin \"{plugin}\" imports all of WASI, and needs {}, which is missing: install the package {PROGRAM}",
            path.display()
        ))
    })
}

/// Executes the program. Returns only after a failure.
pub fn exec(program: &File, channel: &OwnedFd, code: &OwnedFd) -> nix::Result<Infallible> {
    let mut arguments = vec![CString::from(c"postern-wasi")];
    for descriptor in [channel, code] {
        fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
        arguments.extend(CString::new(descriptor.as_raw_fd().to_string()));
    }
    let nothing: [&CStr; 0] = [];
    fexecve(program, &arguments, &nothing)
}
