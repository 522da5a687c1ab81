//! Reads objects into files of this machine. A download that was cut goes on where it ended, if the object is the same.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;

use super::{Client, ObjectFacts};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::digest;
use crate::util::folder::{Folder, append, names};

/// How often a download that breaks off goes on.
const RESUMES: u32 = 5;
/// The beginning of the name of an incomplete download, in the folder of its file.
const INCOMPLETE: &str = ".gpucl-part-";

/// One object and its file.
#[derive(Debug, Clone)]
pub struct Download<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The key.
    pub key: &'a str,
    /// The folder to write into.
    pub folder: &'a Folder,
    /// The file, by its path below that folder.
    pub file: &'a Path,
}

impl Download<'_> {
    /// Where the file is, for messages.
    fn shown(&self) -> PathBuf {
        self.folder.path().join(self.file)
    }

    /// The name of the file of its incomplete content; another content of the object has another one.
    fn part(&self, found: &ObjectFacts) -> String {
        format!("{}{}", self.begin(), digest::short(found.etag.as_bytes()))
    }

    fn begin(&self) -> String {
        let own = format!("{}/{}\n{}", self.bucket, self.key, self.shown().display());
        format!("{INCOMPLETE}{}-", digest::short(own.as_bytes()))
    }

    /// Removes the incomplete content of earlier versions of the object.
    fn forget_others(&self, folder: BorrowedFd<'_>, part: &str) {
        let begin = self.begin();
        for name in names(folder).into_iter().flatten() {
            if name.to_string_lossy().starts_with(&begin) && name != part {
                // One that stays takes space, and the next download tries again.
                let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
            }
        }
    }
}

impl Client {
    /// Reads an object into its file, which it replaces by a rename; `moved` gets each number of bytes that came.
    /// Returns the size, and whether it went on where an earlier download had ended.
    ///
    /// # Errors
    /// When the object does not exist, the file cannot be written, or the store refuses or does not answer. What came
    /// stays for the next download.
    pub async fn download(&self, what: &Download<'_>, moved: &(dyn Fn(u64) + Sync)) -> Result<(u64, bool)> {
        let Download { bucket, key, .. } = what;
        let doing = || format!("read s3://{bucket}/{key} into {}", what.shown().display());
        let not_found = || Error::new(ErrorKind::NotFound, doing()).because("the object does not exist");
        let found = self.find(bucket, key).await?.ok_or_else(not_found)?;
        let (folder, name) = what.folder.place(what.file).doing(ErrorKind::Host, doing)?;
        let part = what.part(&found);
        what.forget_others(folder.as_fd(), &part);
        let mut open = append(folder.as_fd(), OsStr::new(&part), 0o666).doing(ErrorKind::Host, doing)?;
        let mut have = open.metadata().doing(ErrorKind::Host, doing)?.len();
        if have > found.size {
            open.set_len(0).doing(ErrorKind::Host, doing)?;
            have = 0;
        }
        let (has_resumed, mut resumes) = (have > 0, 0);
        moved(have);
        while have < found.size {
            let broken = match self.read(bucket, key, have, &found.etag).await {
                Ok(mut answer) => loop {
                    match answer.chunk().await {
                        Ok(Some(piece)) => {
                            open.write_all(&piece).doing(ErrorKind::Host, doing)?;
                            have += piece.len() as u64;
                            moved(piece.len() as u64);
                        }
                        Ok(None) => break Error::new(ErrorKind::Host, doing()).because("the store ended it too early"),
                        Err(error) => {
                            break Error::new(ErrorKind::Host, doing()).because(error.without_url().to_string());
                        }
                    }
                },
                Err(error) => return Err(error),
            };
            if have < found.size {
                resumes += 1;
                if resumes > RESUMES {
                    return Err(broken.hint("run it again: it goes on where it ended"));
                }
            }
        }
        if have != found.size {
            return Err(Error::new(ErrorKind::Host, doing()).because("more came than the object has"));
        }
        if let Some(modified) = found.modified {
            // Only `sync` compares it; a file system without times still has the content.
            let _ = open.set_modified(modified.into());
        }
        rustix::fs::renameat(&folder, OsStr::new(&part), &folder, &name).doing(ErrorKind::Host, doing)?;
        Ok((found.size, has_resumed))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::util::folder::{Existing, Goal};

    /// Serves one object of four bytes under each key, until its thread ends with the test.
    fn store() -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let body = if head[0].starts_with("HEAD") { "" } else { "new!" };
                let range = head.iter().any(|line| line.to_lowercase().starts_with("range:"));
                let status = if range { "206 Partial Content\r\nContent-Range: bytes 0-3/4" } else { "200 OK" };
                let answer =
                    format!("HTTP/1.1 {status}\r\nETag: \"x\"\r\nContent-Length: 4\r\nConnection: close\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let keys = "aws_access_key_id = a\naws_secret_access_key = b\n".to_owned().into();
        Client::new(&format!("http://{address}"), "us-east-1", &keys).unwrap()
    }

    #[tokio::test]
    async fn a_download_writes_through_no_link_and_no_second_name_of_a_file() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let read = |name: &str| fs_err::read_to_string(at(name)).unwrap();
        fs_err::create_dir_all(at("theirs/runs")).unwrap();
        fs_err::create_dir(at("home")).unwrap();
        fs_err::write(at("home/rc"), "old").unwrap();
        symlink("../home", at("theirs/folder")).unwrap();
        fs_err::hard_link(at("home/rc"), at("theirs/runs/second")).unwrap();
        let (client, folder) = (store(), Goal::named(&at("theirs")).open([], Existing::Replaced).unwrap());
        let what = |file| Download { bucket: "b", key: "k", folder: &folder, file: Path::new(file) };
        let error = client.download(&what("folder/rc"), &|_| ()).await.unwrap_err().to_string();
        assert!(error.contains("folder is a link"), "{error}");
        assert_eq!(fs_err::read_dir(at("home")).unwrap().count(), 1);
        client.download(&what("runs/second"), &|_| ()).await.unwrap();
        client.download(&what("new/model.pt"), &|_| ()).await.unwrap();
        assert_eq!((read("theirs/runs/second"), read("theirs/new/model.pt")), ("new!".into(), "new!".into()));

        // Neither is the file of an incomplete download what it says, if somebody else made it.
        let found = client.find("b", "k").await.unwrap().unwrap();
        for name in ["a", "b"] {
            let part = at("theirs").join(what(name).part(&found));
            if name == "a" {
                symlink(at("home/rc"), part).unwrap()
            } else {
                fs_err::hard_link(at("home/rc"), part).unwrap()
            }
            assert!(client.download(&what(name), &|_| ()).await.is_err(), "{name}");
        }
        assert_eq!(read("home/rc"), "old");
    }
}
