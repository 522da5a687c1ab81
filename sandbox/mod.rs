//! Stand-ins of services, for tests, for the README and for whoever wants to try gpucl without an account.
//!
//! They are no mocks of gpucl's own making: each answers what the real service was seen to answer, and remembers what it was asked for.

pub mod chameleon;
pub mod hosts;
