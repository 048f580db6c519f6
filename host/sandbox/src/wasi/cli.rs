//! `wasi:cli`: environment, exit, standard streams. There is no terminal.

use super::io::{InputStream, OutputStream};
use super::wasi::cli::{
    environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr, terminal_stdin,
    terminal_stdout,
};
use crate::state::State;
use terminal_input::TerminalInput;
use terminal_output::TerminalOutput;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};

/// The guest has called `exit`. This error ends the guest's code, and carries the exit status.
#[derive(Debug, thiserror::Error)]
#[error("exited with status {0}")]
pub struct Exit(pub u8);

impl environment::Host for State {
    fn get_environment(&mut self) -> Result<Vec<(String, String)>> {
        Ok(self.env.clone())
    }

    fn get_arguments(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
}

impl exit::Host for State {
    fn exit(&mut self, status: Result<(), ()>) -> Result<()> {
        Err(Exit(u8::from(status.is_err())).into())
    }
}

impl stdin::Host for State {
    fn get_stdin(&mut self) -> Result<Resource<InputStream>> {
        Ok(self.table.push(InputStream)?)
    }
}

impl stdout::Host for State {
    fn get_stdout(&mut self) -> Result<Resource<OutputStream>> {
        Ok(self.table.push(OutputStream::Stdout)?)
    }
}

impl stderr::Host for State {
    fn get_stderr(&mut self) -> Result<Resource<OutputStream>> {
        Ok(self.table.push(OutputStream::Stderr)?)
    }
}

impl terminal_input::Host for State {}

impl terminal_input::HostTerminalInput for State {
    fn drop(&mut self, _terminal: Resource<TerminalInput>) -> Result<()> {
        bail!("there is no terminal")
    }
}

impl terminal_output::Host for State {}

impl terminal_output::HostTerminalOutput for State {
    fn drop(&mut self, _terminal: Resource<TerminalOutput>) -> Result<()> {
        bail!("there is no terminal")
    }
}

impl terminal_stdin::Host for State {
    fn get_terminal_stdin(&mut self) -> Result<Option<Resource<TerminalInput>>> {
        Ok(None)
    }
}

impl terminal_stdout::Host for State {
    fn get_terminal_stdout(&mut self) -> Result<Option<Resource<TerminalOutput>>> {
        Ok(None)
    }
}

impl terminal_stderr::Host for State {
    fn get_terminal_stderr(&mut self) -> Result<Option<Resource<TerminalOutput>>> {
        Ok(None)
    }
}
