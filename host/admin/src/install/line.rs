//! The line of a plugin's file, as an installation writes it. The gate reads it.

use anyhow::{Result, bail, ensure};
use postern_gate::plugin_file::{LONGEST, OPTION};
use std::path::Path;

/// Returns the content of a plugin's file, for the host at this path.
///
/// # Errors
/// The kernel could not start the host by such a line. The error has a remedy.
pub fn line(host: &Path, plugin: &str) -> Result<String> {
    let path = host.to_str().filter(|path| !path.contains(|c: char| c.is_whitespace() || c.is_control()));
    let Some(path) = path.filter(|_| host.is_absolute()) else {
        bail!(
            "the kernel starts the host only by an absolute path without white space, and not at {host:?}; \
             install Postern at another path (`postern install --prefix /usr/local`)"
        );
    };
    let line = format!("#!{path} {OPTION}{plugin}\n");
    ensure!(
        line.len() <= LONGEST,
        "the first line of the file of plugin \"{plugin}\" would have {} bytes, and the kernel reads {LONGEST}; install \
         Postern at a shorter path (`postern install --prefix /usr/local`)",
        line.len()
    );
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_the_kernel_can_start() {
        let text = line(Path::new("/usr/local/lib/postern/postern"), "bridge").unwrap();
        assert_eq!(text, "#!/usr/local/lib/postern/postern --plugin=bridge\n");
        for path in ["/opt/my dir/postern", "/opt/tab\there/postern", "/opt/a\nb/postern", "lib/postern", ""] {
            let message = line(Path::new(path), "bridge").unwrap_err().to_string();
            assert!(message.contains("white space") && message.contains("--prefix "), "{path}: {message}");
        }
        let long = |length: usize| format!("/{}/postern", "d".repeat(length));
        let rest = "#! --plugin=bridge\n".len() + "//postern".len();
        assert_eq!(line(Path::new(&long(LONGEST - rest)), "bridge").unwrap().len(), LONGEST);
        let message = line(Path::new(&long(LONGEST - rest + 1)), "bridge").unwrap_err().to_string();
        assert!(message.contains("would have 255 bytes") && message.contains("shorter path"), "{message}");
    }
}
