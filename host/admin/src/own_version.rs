//! A plugin's own version. The plugin prints its version if it is started without `CNI_COMMAND`. Nomad, nerdctl and
//! installers read this output, and refuse a plugin without a version, or with an old version.
//!
//! A plugin that comes with Postern behaves like the native plugin of its name. So it prints the native plugin's
//! version, with Postern's own version as build metadata. Any other plugin prints the version that its author wrote
//! into the component.

use postern_cni::terminal::one_line;

/// The release of the native plugins whose behaviour Postern's plugins have.
const NATIVE: &str = "1.9.1";

/// The build metadata of plugins that come with Postern. No other plugin can have this metadata.
const OURS: &str = "postern";

/// The longest version in bytes.
const LONGEST: usize = 64;

/// Returns the version of a plugin that comes with this Postern.
pub fn shipped() -> String {
    format!("{NATIVE}+{OURS}.{}", env!("CARGO_PKG_VERSION"))
}

/// True if a version belongs to a plugin that comes with a Postern.
pub fn is_shipped(version: &str) -> bool {
    version
        .split_once('+')
        .is_some_and(|(_, metadata)| metadata.split('.').next().is_some_and(|first| first.eq_ignore_ascii_case(OURS)))
}

/// Reads the version in a component's output. A leading `v` is left out.
///
/// # Errors
/// The reason why the version can't be used, as the rest of a sentence that begins with the component.
pub fn read(text: &str) -> Result<String, String> {
    let shown: String = text.chars().take(LONGEST).collect();
    let shown = one_line(&shown);
    let version = text.strip_prefix('v').unwrap_or(text);
    if version.len() > LONGEST || !is_semantic(version) {
        return Err(format!("says the version \"{shown}\", which is no semantic version such as 1.2.3"));
    }
    if is_shipped(version) {
        return Err(format!("says the version \"{shown}\", which is reserved for plugins that come with Postern"));
    }
    Ok(version.to_owned())
}

/// True for a version by semantic versioning 2.0.0.
fn is_semantic(version: &str) -> bool {
    let (version, metadata) = split(version, '+');
    let (numbers, before) = split(version, '-');
    let is_identifier = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = |text: &str| is_number(text) && (text == "0" || !text.starts_with('0'));
    numbers.split('.').count() == 3
        // Programs that read the version refuse a number above `u32::MAX`.
        && numbers.split('.').all(|part| is_short(part) && part.parse::<u32>().is_ok())
        && before.is_none_or(|before| before.split('.').all(|part| is_identifier(part) && (is_short(part) || !is_number(part))))
        && metadata.is_none_or(|metadata| metadata.split('.').all(is_identifier))
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(first, rest)| (first, Some(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic_ones() {
        for text in ["0.0.0", "1.2.3", "v1.2.3", "1.2.3-rc.1", "1.2.3-0a.-", "1.2.3+postern-like.1", "10.20.30-a+b.007"]
        {
            assert_eq!(read(text).unwrap(), text.trim_start_matches('v'), "{text}");
        }
        for text in [
            "",
            "v",
            "1",
            "1.2",
            "1.2.3.4",
            "vv1.2.3",
            "01.2.3",
            "1.2.03",
            "1.2.-3",
            "1.2.3-",
            "1.2.3+",
            "1.2.3-01",
            "1.2.3-a..b",
            "1.2.3+a b",
            "1.2.3 ",
            " 1.2.3",
            "1.2.3\n",
            "1.2.3\u{1b}[2J",
            "1.2.x",
            "١.2.3",
            "4294967296.0.0",
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains("no semantic version") && !error.contains('\u{1b}'), "{text:?}: {error}");
        }
        assert!(read(&format!("1.2.3-{}", "a".repeat(LONGEST))).is_err());
    }

    #[test]
    fn no_component_says_that_it_comes_with_postern() {
        assert!(is_semantic(&shipped()) && is_shipped(&shipped()));
        for text in [&*shipped(), "0.1.0+postern", "v1.9.1-rc1+postern.x", "1.9.1+Postern.0.1.0", "1.9.1+POSTERN"] {
            let error = read(text).unwrap_err();
            assert!(error.contains("reserved for plugins that come with Postern"), "{text}: {error}");
        }
    }
}
