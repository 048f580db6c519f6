//! The versions of CNI that a plugin serves.

use postern_cni::{Error, Version};

/// Returns the versions that a plugin supports under its policy. These are the versions that its component named when
/// it was added, limited to the policy's versions. A component of an earlier installation named no versions, and counts
/// as supporting all versions.
///
/// # Errors
/// Code 999: the policy names an unknown version.
pub fn supported(policy: Option<&[String]>, named: Option<&[String]>) -> Result<Vec<Version>, Error> {
    let own = own_versions(named);
    let Some(versions) = policy else { return Ok(own) };
    let parsed = versions.iter().map(|text| {
        Version::parse(text).ok_or_else(|| Error::internal(format!("policy: \"{text}\" is no version of CNI")))
    });
    let parsed: Vec<Version> = parsed.collect::<Result<_, _>>()?;
    Ok(parsed.into_iter().filter(|version| own.contains(version)).collect())
}

/// Returns the versions that a component named. Versions that only a later postern knows are left out.
pub fn own_versions(named: Option<&[String]>) -> Vec<Version> {
    let is_own = |version: &Version| named.is_none_or(|named| named.iter().any(|text| text == version.as_str()));
    Version::ALL.into_iter().filter(is_own).collect()
}
