//! The background process of a cluster.
