//! Where texts that must be nowhere, or in one place only, are on a host.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Looked through on a host; with the files of Docker's volumes.
const LOOK: &str = "cat >/dev/shm/texts; \
    for at in /etc /home /root /run /srv /tmp /opt /mnt /usr/local /var/lib/gpucl /var/lib/cloud /var/log /var/tmp /dev/shm; do \
      [ ! -d $at ] || grep -rlsF -D skip -f /dev/shm/texts $at; done; \
    [ ! -d /var/lib/docker/volumes ] || grep -rlsF -D skip -f /dev/shm/texts /var/lib/docker/volumes; \
    grep -lsaF -f /dev/shm/texts /proc/[0-9]*/environ /proc/[0-9]*/cmdline; rm /dev/shm/texts; true";

/// The files of a host that hold one of these texts, and its processes that have one in their environment or command line.
/// `exec` runs the command that is added to it on the host, as root, with its standard input.
#[track_caller]
pub(crate) fn holders(mut exec: Command, texts: &[&str]) -> Vec<String> {
    let mut child = exec.args(["sh", "-c", LOOK]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // An empty line would be in all files.
    assert!(texts.iter().all(|text| text.len() > 8), "{texts:?}");
    child.stdin.take().unwrap().write_all(texts.join("\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    found.lines().filter(|line| *line != "/dev/shm/texts").map(str::to_owned).collect()
}
