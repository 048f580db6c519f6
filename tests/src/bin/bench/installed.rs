//! The size of an installation.

use anyhow::{Context, Result, ensure};
use postern_tests::report::{NATIVE, OURS, Quantity, Row};
use std::path::Path;
use std::process::Command;

/// The size of all files of the native plugins' release 1.9.1, in bytes. These files are not stripped, unlike Debian's
/// files.
const RELEASE: f64 = 115e6;

/// Native plugins in the directory that come from another package than Debian's CNI plugins.
const NOT_OF_THE_PACKAGE: &[&str] = &["flannel"];

/// Installs our plugins as an operator does, and adds up their files and the files of the native plugins.
#[allow(clippy::cast_precision_loss, reason = "sizes of files")]
pub fn measure(native: &Path, ours: &Path) -> Result<[Row; 2]> {
    let root = "/run/installed";
    let mut install = Command::new(ours.join("postern-admin"));
    install.args(["install", "--from"]).arg(ours).args(["--destdir", root, "--prefix", "/usr/local"]);
    let output = install.args(["--cni-bin", "/opt/cni/bin"]).args(plugins(ours)?).output().context("postern-admin")?;
    ensure!(output.status.success(), "{install:?}: {}", String::from_utf8_lossy(&output.stderr));
    let (debians, our_size) = (size(native)? as f64, size(Path::new(root))? as f64);
    std::fs::remove_dir_all(root)?;
    println!(
        "installed, MB: upstream's {:.1}, Debian's {:.1}, ours {:.1}",
        RELEASE / 1e6,
        debians / 1e6,
        our_size / 1e6
    );
    let rows = [("installed", RELEASE), ("installed, beside Debian's stripped files", debians)];
    Ok(rows.map(|(name, native)| {
        let mut row = Row::new(name);
        row.push(Quantity::Size, NATIVE, native);
        row.push(Quantity::Size, OURS, our_size);
        row
    }))
}

/// Returns the plugins of a catalog.
fn plugins(bin: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(bin.join("postern.d"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".cwasm").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn size(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sum += size(&entry.path())?;
        } else if kind.is_file()
            && !NOT_OF_THE_PACKAGE.iter().any(|name| entry.path() == directory.join(name) && is_large(&entry.path()))
        {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

/// True for a native program, false for the short file of one of our plugins.
fn is_large(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.len() > 1 << 20)
}
