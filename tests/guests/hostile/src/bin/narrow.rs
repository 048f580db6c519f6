//! A plugin of the SDK that supports only two versions.

use postern_guest::cni::{CniResult, Version};
use postern_guest::{Error, Plugin, Request};
use std::process::ExitCode;

struct Narrow;

impl Plugin for Narrow {
    const VERSIONS: &'static [Version] = &[Version::V0_3_1, Version::V0_4_0];

    fn add(&self, _request: &Request) -> Result<CniResult, Error> {
        Err(Error::new("it ran"))
    }

    fn del(&self, _request: &Request) -> Result<(), Error> {
        Err(Error::new("it ran"))
    }

    fn check(&self, _request: &Request) -> Result<(), Error> {
        Err(Error::new("it ran"))
    }
}

fn main() -> ExitCode {
    postern_guest::run(&Narrow)
}
