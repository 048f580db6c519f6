//! `resolv-conf`: reads the resolver file that the configuration names.

use crate::capability::facts::{Facts, NEVER};
use crate::gate::Gate;
use crate::right::Right;
use nix::errno::Errno;
use nix::libc::{O_NONBLOCK, makedev};
use postern_cni::unicode;
pub use postern_policy::capability::resolv_conf::file;
use postern_types::{Dns, ErrorCode, OpError, host};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

/// The number of bytes that are read of a resolver file. Bytes behind this limit are ignored.
const LIMIT: u64 = 64 << 10;

pub(crate) const FACTS: Facts = Facts {
    keeps: |request, granted| {
        let file = file(&request.conf);
        granted.is_some_and(|granted| granted.has_object("resolv-conf.files", &file)).then(|| Right::File(file.into()))
    },
    ..NEVER
};

impl host::ResolvConf for Gate<'_> {
    fn read(&mut self) -> Result<Dns, OpError> {
        load(&file(&self.run.request.conf))
    }
}

/// Reads a resolver file.
///
/// # Errors
/// [`ErrorCode::NotFound`], or [`ErrorCode::Io`] if the file can't be read or is not a regular file.
#[expect(clippy::disallowed_methods, reason = "the file that the configuration names, wherever links lead")]
pub fn load(path: &str) -> Result<Dns, OpError> {
    let failed = |e: std::io::Error| {
        let code = if e.kind() == std::io::ErrorKind::NotFound { ErrorCode::NotFound } else { ErrorCode::Io };
        let error = e.raw_os_error().map_or(e.to_string(), |errno| Errno::from_raw(errno).desc().to_lowercase());
        OpError::new(code, path, format!("open {path}: {error}")).hint("ipam.resolvConf names that file")
    };
    let mut text = Vec::new();
    let open = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).and_then(|open| {
        let is_file = open.metadata()?.is_file();
        Ok((open, is_file))
    });
    // The null device counts as an empty file. It is no regular file, so a confined gate has no right to open it.
    if !matches!(open, Ok((_, true))) && is_null(path) {
        return Ok(Dns::default());
    }
    let (mut open, is_file) = open.map_err(failed)?;
    if !is_file {
        return Err(OpError::new(ErrorCode::Io, path, format!("resolvConf {path} is not a regular file")));
    }
    (&mut open).take(LIMIT).read_to_end(&mut text).map_err(failed)?;
    // A comment may be in any encoding.
    Ok(parse(&unicode::text(&text)))
}

/// True if the path leads to the null device, null(4).
#[expect(clippy::disallowed_methods, reason = "the path that the configuration names is looked at, and not opened")]
fn is_null(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == makedev(1, 3))
}

/// Reads the settings of resolv.conf(5) for which CNI has a key.
fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let mut words = line.split_whitespace();
        let keyword = words.next();
        let mut words = words.map(str::to_owned);
        match keyword {
            Some("nameserver") => dns.nameservers.extend(words.next()),
            Some("domain") => dns.domain = words.next().unwrap_or_default(),
            Some("search") => dns.search.extend(words),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_the_manual_defines() {
        let dns = parse(
            "# c\nnameserver 10.0.0.1 x\n  nameserver ::1\ndomain a.b\nsearch a b\nsortlist 1\noptions ndots:5 rotate\n;d",
        );
        assert_eq!(dns.nameservers, ["10.0.0.1", "::1"]);
        assert_eq!(dns.domain, "a.b");
        assert_eq!(dns.search, ["a", "b"]);
        assert_eq!(dns.options, ["ndots:5", "rotate"]);
    }
}
