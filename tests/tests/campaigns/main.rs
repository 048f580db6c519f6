//! Faults, kills and damaged disks: `make test` tries a sample, `make faults` and `make kills` try more.

mod disk;
mod faults;
mod kills;
