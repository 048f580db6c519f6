//! Leases of acknowledgements.
