//! `postern:cni/dummy`.

use super::link::Link;
use super::{Failure, wit};
use crate::state::State;
use postern_types::{Reply, ops};
use wit::dummy::Made;

impl wit::dummy::Host for State {
    fn create(&mut self) -> Result<Made, Failure> {
        match self.call(ops::Dummy::Create)? {
            Reply::Made(made) => {
                let link = self.table.push(Link { handle: made.handle })?;
                Ok(Made { link, attributes: made.into() })
            }
            other => Err(other.unexpected().into()),
        }
    }
}
