//! The tests of this provider stand beside what they test; `tests/lambda/` has those through the program.
