//! Tests of the provider as a whole; tests of its modules are beside them.
