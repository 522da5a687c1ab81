//! Object stores with the S3 interface: list, read, write and delete objects, with requests that are signed on this
//! machine.

mod client;
mod download;
mod path;
mod upload;

pub use client::{Client, Listing, Object, ObjectFacts};
pub use download::Download;
pub use path::{S3Path, local_path};
