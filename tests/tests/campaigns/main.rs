//! Faults, kills and damaged disks: a sample here, all of them with `make faults` and `make kills`.

mod disk;
mod faults;
mod kills;
