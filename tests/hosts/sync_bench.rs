//! `sync` against rsync, through one sshd of this user: both must bring the same, and the times are printed. With a large
//! file of gigabytes: `just sync-bench`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gpucl::host::{End, Here, SyncOptions, There, compare};

use super::copies::Host;

/// How many small files there are.
const FILES: usize = 10_000;

/// Makes the files once; what is in them does not compress.
fn make(folder: &Path, large: u64) {
    let mut state = 1_u64;
    let mut bytes = |length: usize| -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.take(length).collect()
    };
    for number in 0..FILES {
        let place = folder.join(format!("small/{:02}", number % 100));
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join(format!("{number}.bin")), bytes(2_000)).unwrap();
    }
    std::fs::create_dir(folder.join("large")).unwrap();
    let mut file = std::fs::File::create(folder.join("large/one.bin")).unwrap();
    let piece = bytes(1 << 20);
    for _ in 0..large >> 20 {
        std::io::Write::write_all(&mut file, &piece).unwrap();
    }
}

#[tokio::test]
#[ignore = "by hand: just sync-bench"]
async fn sync_against_rsync() {
    let large = std::env::var("GPUCL_SYNC_BYTES").ok().map_or(1 << 26, |text| text.parse().unwrap());
    let host = Host::start(2393).await;
    let (here, home) = (host.here(), host.home());
    make(&here, large);
    let rsync = |set: &str, to: &str| -> Duration {
        let config = host.config().display().to_string();
        let begin = Instant::now();
        let status = Command::new("rsync")
            .args(["-a", "-e", &format!("ssh -F {config}")])
            .arg(format!("{}/", here.join(set).display()))
            .arg(format!("host-0:{to}/"))
            .status();
        assert!(status.unwrap().success());
        begin.elapsed()
    };
    println!("{FILES} small files of 2,000 bytes; one file of {large} bytes; seconds");
    println!("| what | rsync | gpucl | ratio |\n|---|---|---|---|");
    for (set, what) in [("small", "10,000 small files"), ("large", "one large file")] {
        for state in ["cold", "unchanged"] {
            let theirs = rsync(set, &format!("rsync-{set}"));
            let begin = Instant::now();
            // A connection of its own, as a command makes it.
            let ssh = host.connect().await;
            let from = End::Here(Here { path: here.join(set) });
            let to = There { machine: &ssh, path: format!("gpucl-{set}"), within: None, is_root: false };
            let found = compare(&from, &End::There(to), SyncOptions::default()).await.unwrap();
            let synced = found.carry_out(&mut |_| {}).await.unwrap();
            ssh.close().await;
            let ours = begin.elapsed();
            assert_eq!(synced.sent == 0, state == "unchanged", "{synced:?}");
            let (theirs, ours) = (theirs.as_secs_f64(), ours.as_secs_f64());
            println!("| {what}, {state} | {theirs:.2} | {ours:.2} | {:.2} |", ours / theirs);
        }
        let mut diff = Command::new("diff");
        diff.arg("-r").arg(home.join(format!("rsync-{set}"))).arg(home.join(format!("gpucl-{set}")));
        assert!(diff.status().unwrap().success(), "both have brought the same");
    }
    host.end().await;
}
