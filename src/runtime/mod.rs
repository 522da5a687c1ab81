//! How Ray runs on a host.
