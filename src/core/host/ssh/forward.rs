//! Port forwards: a local socket that leads to a port on the host's side.

use std::path::Path;

use openssh::{ForwardType, Socket};

use super::live::{Live, with_sources};
use crate::error::{Error, ErrorKind, Result, Status};

/// Asks the `ssh` master for a forward.
pub(super) async fn open(live: &Live, name: &str, socket: &Path, to: (&str, u16)) -> Result<()> {
    // A killed earlier master leaves its socket behind.
    let _ = fs_err::remove_file(socket);
    let there = Socket::TcpSocket { host: to.0.into(), port: to.1 };
    live.session.request_port_forward(ForwardType::Local, socket, there).await.map_err(|error| {
        Error::new(ErrorKind::Host, format!("forward {} to port {} of {name}", socket.display(), to.1))
            .status(Status::Temporary)
            .because(with_sources(&error))
    })
}
