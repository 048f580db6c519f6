//! Effects that several capabilities leave, and how their changes are undone.

pub mod link_state;
pub mod multipath;
pub mod numbers;

use crate::context::Context;
use crate::effect::Effect;
use crate::in_container::as_far_as_possible;
use nix::errno::Errno;
use postern_cni::Verb;
use postern_kernel::Worker;
use postern_kernel::sysctl::Setting;
use postern_types::OpError;

/// True in a DEL if the record has no section of the called plugin and no effect of this kind. Then a native plugin may
/// have made the objects.
pub(crate) fn may_be_native<T: TryFrom<Effect>>(run: &Context) -> bool {
    run.request.verb == Verb::Del
        && run.journal.has_no_section(&run.request.plugin)
        && run.journal.recorded::<T>().is_empty()
}

/// Restores the earlier value of a setting. It is no error if the link or the kernel no longer has the setting. Root in
/// the container can give the link a name that no setting can have.
pub(crate) fn write_before(container: &Worker, parts: &[&str], value: &str) -> Result<(), OpError> {
    let Some(setting) = Setting::new(parts.iter().copied()) else { return Ok(()) };
    as_far_as_possible(|| match container.setting_write(&setting, value) {
        Err(error) if error.is(Errno::ENOENT) => Ok(()),
        written => written,
    })
}
