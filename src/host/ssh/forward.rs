//! Forwards: a local socket that leads to a port on the host's side.

use std::path::Path;

use openssh::{ForwardType, Socket};

use super::host::SshHost;
use super::live::{Live, with_sources};
use crate::error::{Error, ErrorKind, Result, Status};

impl SshHost {
    /// Makes a local socket lead to a host and port as the host sees them; a connection that is made anew gets it as well.
    ///
    /// A socket in a file is nobody else's: the folder is the user's own.
    ///
    /// # Errors
    /// When the socket cannot be made. Whether somebody listens at the other end shows at its first use.
    pub async fn forward(&self, socket: &Path, to: (&str, u16)) -> Result<()> {
        let live = self.shared.live().await?;
        open(&live, self.shared.route.block.name(), socket, to).await?;
        self.shared.forwards().insert(socket.to_owned(), (to.0.to_owned(), to.1));
        Ok(())
    }
}

/// Asks the master for a forward.
pub(super) async fn open(live: &Live, name: &str, socket: &Path, to: (&str, u16)) -> Result<()> {
    // One that a master of before left when it was killed.
    let _ = fs_err::remove_file(socket);
    let there = Socket::TcpSocket { host: to.0.into(), port: to.1 };
    live.session.request_port_forward(ForwardType::Local, socket, there).await.map_err(|error| {
        Error::new(ErrorKind::Host, format!("forward {} to port {} of {name}", socket.display(), to.1))
            .status(Status::Temporary)
            .because(with_sources(&error))
    })
}
