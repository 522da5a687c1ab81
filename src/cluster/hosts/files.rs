//! Files of this machine for the data folder of hosts: which of them a host wants, and their way there.

use std::io::{Read as _, Seek as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cluster::local_files::LocalFiles;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::{Bus, EventKind};
use crate::host::{ExecEnd, Host};
use crate::render::quote_path;
use crate::util::human;

/// How much one exec carries, in bytes.
const CHUNK: usize = 4 << 20;

/// Sends to a host what it wants of these files; `wants` is the script that asks it.
pub(super) async fn send(host: &dyn Host, files: &LocalFiles, wants: &str, events: &Bus) -> Result<()> {
    let doing = || format!("send the files of {} to {}", files.bundle.to, host.name());
    let mut lines = Vec::new();
    host.exec(wants, &mut |_, line| lines.push(line.to_owned())).await?;
    if !lines.iter().any(|line| line == "::wanted") {
        let words = lines.iter().rev().take(8).rev().cloned().collect::<Vec<_>>().join("\n");
        return Err(Error::new(ErrorKind::Host, doing()).because("it does not say which it wants").because(words));
    }
    let numbers = lines.iter().filter_map(|line| line.strip_prefix("::want ")?.parse::<usize>().ok());
    let mut packed = tempfile::tempfile().doing(ErrorKind::State, doing)?;
    files.packed(numbers, &packed).doing(ErrorKind::Usage, doing)?;
    packed.rewind().doing(ErrorKind::State, doing)?;
    let size = packed.metadata().doing(ErrorKind::State, doing)?.len();
    let at = quote_path(&format!("{}/{}", host.home(), files.bundle.archive()));
    let folder = quote_path(&format!("{}/files", host.home()));
    let mut chunk = vec![0; CHUNK];
    let (mut sent, mut program) = (0_u64, format!("umask 077\nmkdir -p {folder} && : >{at} || exit 1\n"));
    loop {
        let mut count = 0;
        while count < CHUNK {
            match packed.read(&mut chunk[count..]).doing(ErrorKind::State, doing)? {
                0 => break,
                more => count += more,
            }
        }
        if count == 0 {
            return Ok(());
        }
        program.push_str(&format!("base64 -d >>{at} <<'GPUCL_FILE' || exit 1\n"));
        for line in chunk[..count].chunks(57) {
            STANDARD.encode_string(line, &mut program);
            program.push('\n');
        }
        program.push_str("GPUCL_FILE\n");
        let mut words = Vec::new();
        let ended = host.exec(&program, &mut |_, line| words.push(line.to_owned())).await?;
        if ended != ExecEnd::Exited(0) {
            return Err(Error::new(ErrorKind::Host, doing())
                .because(words.pop().unwrap_or_else(|| "the connection to the host broke".to_owned()))
                .hint("run the same command again"));
        }
        sent += count as u64;
        if size > CHUNK as u64 {
            let line = format!("{}: {} of {} sent", files.bundle.to, human::bytes(sent), human::bytes(size));
            events.send(EventKind::HostLine { host: host.name().to_owned(), line });
        }
        program = "umask 077\n".to_owned();
    }
}
