//! A plugin's file in a CNI bin directory: one line, `#!HOST --plugin=NAME`. By this line the kernel starts the host
//! executable.
//!
//! The file is a regular file, and not a symbolic link. So a program that copies another plugin over this file can't
//! overwrite the host executable. The kernel passes the option as the first argument, before the file's name. So the
//! option names the plugin, even if the file has another name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The beginning of the first argument with which the host executable runs as a plugin.
pub const OPTION: &str = "--plugin=";

/// The name of the host's executable.
pub const HOST: &str = "postern";

/// The greatest length of the line in bytes, its end included. The kernel reads the first 256 bytes of a file that it
/// starts (`BINPRM_BUF_SIZE`), and does not use the last byte.
pub const LONGEST: usize = 254;

/// True if a plugin can have this name. A valid name has no slash and does not begin with a dot. So a path of a
/// directory and the name stays in the directory.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(plain)
}

/// The content of a plugin's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFile {
    /// The host that the kernel starts.
    pub host: PathBuf,
    /// The plugin that the host then runs.
    pub plugin: String,
}

/// Reads the beginning of a file as the kernel does. `None` if it is not a plugin's file.
pub fn parse(bytes: &[u8]) -> Option<PluginFile> {
    let text = bytes.get(..bytes.len().min(LONGEST + 1))?.strip_prefix(b"#!")?;
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let text = std::str::from_utf8(text.get(..end)?).ok()?.trim_matches([' ', '\t']);
    let (host, option) = text.split_once([' ', '\t'])?;
    let plugin = option.trim_start_matches([' ', '\t']).strip_prefix(OPTION)?;
    let is_host = Path::new(host).file_name().is_some_and(|name| name == HOST);
    (is_host && is_name(plugin)).then(|| PluginFile { host: PathBuf::from(host), plugin: plugin.to_owned() })
}

/// Reads a regular file, or the target of a symbolic link. `None` if it is not a plugin's file.
#[expect(clippy::disallowed_methods, reason = "a file of the runtime's directories, which decides nothing")]
pub fn read(path: &Path) -> Option<PluginFile> {
    // A pipe is not opened: open(2) would wait for a writer.
    if !path.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST as u64 + 1).read_to_end(&mut bytes).ok()?;
    parse(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_the_kernel_reads_it() {
        let found = |text: &str| parse(text.as_bytes()).map(|file| (file.host.display().to_string(), file.plugin));
        let bridge = Some(("/p/postern".to_owned(), "bridge".to_owned()));
        for text in [
            "#!/p/postern --plugin=bridge\n",
            "#! /p/postern \t--plugin=bridge \nmore",
            "#!/p/postern\t--plugin=bridge\n\0",
        ] {
            assert_eq!(found(text), bridge, "{text:?}");
        }
        for text in [
            "",
            "#!",
            "#!/p/postern --plugin=bridge",
            "#!/p/postern --plugin=\n",
            "#!/p/postern --plugin=../x\n",
            "#!/p/postern --plugin=a --plugin=b\n",
            "#!/p/postern bridge\n",
            "#!/bin/sh --plugin=bridge\n",
            "\u{7f}ELF",
        ] {
            assert_eq!(found(text), None, "{text:?}");
        }
        assert_eq!(read(Path::new("/dev/null")), None);
    }

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["bridge", "host-local", "a.b_c", "0"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "../x", "/x", "a/b", "-x", ".x", "a b", "a\u{1b}[2J", "a\n", "\u{fffd}", "é"] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
