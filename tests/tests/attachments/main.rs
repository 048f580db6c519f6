//! The life of an attachment beyond ADD: DEL, GC, recovery, and the change from plugin to plugin.

mod adopt;
mod delegation;
mod gc;
mod gc_lists;
mod letting_go;
mod mixed;
mod reapply;
mod recovery;
mod rollback;
mod serving;
mod strayed;
