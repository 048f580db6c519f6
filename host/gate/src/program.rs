//! The second program: what runs a component that imports all of WASI.
//!
//! It is a program of its own so that the plugins that import less are run without a byte of it. It lies beside the catalog
//! that names it (`postern-wasi`), and must be root's or this user's as the code in it. It is started as the sandbox
//! process is forked, before the host confines itself, with an empty environment and two descriptors. What it gives up it
//! gives up itself, first of all, as a forked sandbox does.

use crate::places;
use crate::plugin_error::PluginError;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::fexecve;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Its name, beside a catalog.
pub const PROGRAM: &str = "postern-wasi";

/// Opens the program that goes with a catalog which [`places::trust`] has accepted. A version of an installation has both.
#[expect(clippy::disallowed_methods, reason = "a catalog that was found to be trusted, wherever links lead")]
pub fn open(catalog: &Path, plugin: &str) -> Result<File, PluginError> {
    let real = catalog.canonicalize().map_err(|e| PluginError::unreadable(catalog, e))?;
    let directory = real.parent().unwrap_or(Path::new("/"));
    places::trust(directory)?;
    let path = directory.join(PROGRAM);
    places::open_trusted(&path)?.ok_or_else(|| {
        PluginError(format!(
            "plugin \"{plugin}\" imports all of WASI, and is run by {}, which is not there; `make install` puts it there",
            path.display()
        ))
    })
}

/// Becomes that program. Returns only if it can't.
pub fn exec(program: &File, channel: &OwnedFd, code: &OwnedFd) -> nix::Result<Infallible> {
    let mut arguments = vec![CString::from(c"postern-wasi")];
    for descriptor in [channel, code] {
        fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
        arguments.extend(CString::new(descriptor.as_raw_fd().to_string()));
    }
    let nothing: [&CStr; 0] = [];
    fexecve(program, &arguments, &nothing)
}
