//! The credentials that gpucl makes for a cluster.
