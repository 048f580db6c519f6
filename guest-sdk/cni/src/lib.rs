//! cni
