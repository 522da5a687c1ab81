//! Files of this machine for the data folder of hosts: what they are, which of them a host wants, and their way there.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::{Bus, EventKind};
use crate::host::{ExecEnd, Host};
use crate::ray::files_of;
use crate::render::quote_path;
use crate::runtime::project::Bundle;
use crate::spec::{FileSpec, Spec};
use crate::util::{digest, human};

/// The most that one entry of `files` may send, in bytes.
const MOST: u64 = 1 << 30;
/// How much one exec carries, in bytes.
const CHUNK: usize = 4 << 20;

/// The files of one entry, with their paths on this machine.
#[derive(Debug, Clone)]
pub(super) struct LocalFiles {
    pub(super) bundle: Bundle,
    paths: Vec<PathBuf>,
}

/// Reads what the spec sends: blocks on disk reads.
pub(super) fn read(spec: &Spec, events: &Bus) -> Result<Vec<LocalFiles>> {
    let sent = spec.files.iter().filter_map(|file| Some((file, Path::new(file.source.as_deref()?))));
    sent.map(|(file, source)| read_one(file, source, events)).collect()
}

fn read_one(file: &FileSpec, source: &Path, events: &Bus) -> Result<LocalFiles> {
    let doing = || format!("read `{}`, which is sent to {}", source.display(), file.to);
    let failed = |error: std::io::Error| Error::new(ErrorKind::Usage, doing()).caused_by(&error);
    let kind = fs_err::metadata(source).map_err(failed)?;
    let mut listed = Vec::new();
    if kind.is_dir() {
        let (files, skipped) = files_of(source).map_err(|error| error.while_doing(doing()))?;
        for what in skipped {
            events.warn(format!("not sent to {}: {what}", file.to));
        }
        // Folders such as `.ssh` and `.aws` are not for hosts, wherever the spec is.
        let hidden = |name: &str| name.rsplit_once('/').is_some_and(|(folder, _)| folder.split('/').any(is_hidden));
        listed.extend(files.into_iter().filter(|file| !hidden(&file.name)).map(|file| (file.name, file.path)));
    } else {
        listed.push((String::new(), source.to_owned()));
    }
    let (mut entries, mut paths, mut total) = (Vec::new(), Vec::new(), 0);
    for (name, path) in listed {
        let data = fs_err::metadata(&path).map_err(failed)?;
        total += data.len();
        if total > MOST {
            return Err(Error::new(ErrorKind::Usage, doing())
                .because(format!("it has more than {}", human::bytes(MOST)))
                .hint("list what is not needed in .gitignore, or give it to the hosts as a data set: `data:`"));
        }
        let mode = if data.permissions().mode() & 0o111 != 0 { 0o755 } else { 0o644 };
        entries.push(json!([name, data.len(), data.mtime(), mode, digest::of_file(&path).map_err(failed)?]));
        paths.push(path);
    }
    let list = json!({ "to": file.to, "files": entries }).to_string();
    Ok(LocalFiles { bundle: Bundle { to: file.to.clone(), list }, paths })
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

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
    let mut packed = packed(files, numbers).doing(ErrorKind::Usage, doing)?;
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

/// The list and the wanted files, by their numbers in it, as a tar file.
fn packed(files: &LocalFiles, numbers: impl Iterator<Item = usize>) -> std::io::Result<std::fs::File> {
    let mut archive = tar::Builder::new(tempfile::tempfile()?);
    let mut header = tar::Header::new_gnu();
    header.set_size(files.bundle.list.len() as u64);
    header.set_mode(0o600);
    archive.append_data(&mut header, "list", files.bundle.list.as_bytes())?;
    for number in numbers {
        let Some(path) = files.paths.get(number) else { continue };
        archive.append_file(number.to_string(), fs_err::File::open(path)?.file_mut())?;
    }
    let mut file = archive.into_inner()?;
    file.flush()?;
    std::io::Seek::rewind(&mut file)?;
    Ok(file)
}
