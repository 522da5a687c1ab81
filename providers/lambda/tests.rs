//! Unit tests are beside the code they test; `tests/lambda/` tests the provider through the program.
