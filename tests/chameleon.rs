//! Chameleon through the program: on the stand-in in this process, and, where it is said, on the real services of `testbed/openstack`.

mod gc;
mod matrix;
