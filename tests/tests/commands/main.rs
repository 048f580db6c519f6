//! The commands that people use: postern's command line, and its installation.

mod account;
mod before;
mod bundles;
mod command_line;
mod compile;
mod inspect;
mod install;
mod learn;
mod manual;
mod net;
mod net_files;
mod node_directories;
mod node_install;
mod plan;
mod plugin_files;
mod upgrade;
mod validate;
mod versions;
mod watch;
