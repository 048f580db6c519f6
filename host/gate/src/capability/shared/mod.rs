//! What several capabilities leave, and how what they changed comes back.

pub mod link_state;
pub mod multipath;
pub mod numbers;

use crate::context::Context;
use crate::effect::Effect;
use postern_cni::Verb;

/// True in a DEL if neither a section of the called plugin nor an effect of this kind is in the record: a native plugin may
/// have made what is there.
pub(crate) fn may_be_native<T: TryFrom<Effect>>(run: &Context) -> bool {
    run.request.verb == Verb::Del
        && run.journal.has_no_section(&run.request.plugin)
        && run.journal.recorded::<T>().is_empty()
}
