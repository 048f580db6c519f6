//! The runtime's side of CNI: the work of a runtime with a network's list of plugins (specification 1.1.0, sections 1
//! to 4). The crate behaves as libcni 1.3, the library of the runtimes, and uses libcni's files.
//!
//! ```no_run
//! use postern_net::{Attachment, Cache, Programs, Runtime, load};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime { plugins: Programs::of_path("/opt/cni/bin"), cache: Cache::usual() };
//! let list = load("/etc/cni/net.d".as_ref(), "podnet")?;
//! let attachment = Attachment::new("container-1", "/run/netns/container-1", "eth0");
//! let result = runtime.add(&list, &attachment)?;
//! println!("{}", result.to_json()?);
//! runtime.delete(&list, &attachment)?;
//! # Ok(())
//! # }
//! ```
//!
//! Data goes one way: [`load`] makes a [`List`] from files. A [`Runtime`] gives the list with an [`Attachment`] to
//! [`Plugins`], and keeps their answers in its [`Cache`].

mod arguments;
mod attachment;
mod cache;
mod command;
mod files;
mod list;
mod numbers;
mod outcome;
mod programs;
mod runtime;

pub use arguments::Arguments;
pub use attachment::Attachment;
pub use cache::{Cache, Cached};
pub use command::{Command, DIRECTORIES, One, Places, container_id, run};
pub use files::{load, load_from};
pub use list::{List, Plugin, version};
pub use numbers::{whole_number, write_whole};
pub use outcome::Outcome;
pub use postern_cni::{Error, Verb};
pub use programs::{Programs, answer};
pub use runtime::{Failure, Plugins, Rest, Runtime};
