//! Tests of what the folder itself holds; those of its parts lie in them.
