//! What the provider `slurm` runs on a login machine, whose `/tmp` other users write to.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/providers/slurm/shell/login.sh");

/// Endings that another user may guess.
const ENDINGS: &[&str] = &[".jobs", ".sh", ".nodes", ".words", ".new", ".out", ".tmp"];

/// A login machine with stand-ins for Slurm's commands, and with another user who is quick.
struct Login {
    root: tempfile::TempDir,
}

impl Login {
    fn new(mktemp: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["bin", "home", "tmp"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        std::fs::write(root.path().join("victim"), "the user's own").unwrap();
        let login = Self { root };
        login.command("mktemp", mktemp);
        login
            .command("squeue", "case \" $* \" in *\" -s \"*) ;; *) echo '17|RUNNING|None|1:00|0|1|n1|gpucl-x' ;; esac");
        login.command("sbatch", "case $1 in --parsable) echo 18 ;; *) echo 'sbatch: Job 18 to start at' >&2 ;; esac");
        login.command("sinfo", "echo 'gpu gpu:2 gpu:0 0/8/0/8 64000 idle 1:00:00 n1'");
        login
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn command(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// What a function prints.
    fn prints(&self, shell: &str, function: &str) -> String {
        let program = format!(
            "{}\nended=COMPLETED\nscope=gpucl-y\ntag=gpucl-y\nid=18\nrounds=3\nscript='#!/bin/bash'\n\
             deliver() {{ :; }}\nmain() {{ {function}; }}\nmain </dev/null\n",
            std::fs::read_to_string(LIBRARY).unwrap()
        );
        let done = Command::new(shell)
            .args(["-c", &program])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env("VICTIM", self.path("victim"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
    }

    /// The names in a folder that are not links to the victim.
    fn ours(&self, folder: &str) -> Vec<PathBuf> {
        let paths = std::fs::read_dir(self.path(folder)).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| std::fs::read_link(path).ok().as_deref() != Some(&self.path("victim"))).collect()
    }
}

/// The functions, and what each prints.
const FUNCTIONS: &[(&str, &str)] = &[
    ("observe", "::job 17|RUNNING|"),
    ("try", "::tried 0 sbatch: Job 18"),
    ("submit", "::new 18"),
    ("offers", "::node gpu|gpu:2|"),
    ("release", "::gone"),
];

#[test]
fn links_beside_a_temporary_name_are_not_written_through() {
    // The other user knows the name at once.
    let planting = format!(
        "made=$(PATH=/usr/bin:/bin mktemp \"$@\") || exit 1\n\
         for end in {}; do ln -s \"$VICTIM\" \"$made$end\"; done\necho \"$made\"",
        ENDINGS.join(" ")
    );
    for shell in ["sh", "bash"] {
        for (function, printed) in FUNCTIONS {
            let login = Login::new(&planting);
            let said = login.prints(shell, function);
            assert!(said.contains(printed), "{shell} {function}: {said}");
            let victim = std::fs::read_to_string(login.path("victim")).unwrap();
            assert_eq!(victim, "the user's own", "{shell} {function}");
            assert_eq!(login.ours("tmp"), Vec::<PathBuf>::new(), "{shell} {function} leaves something");
            let planted = std::fs::read_dir(login.path("tmp")).unwrap().count();
            assert_eq!(planted, ENDINGS.len(), "{shell} {function} removed what is another's");
        }
        let login = Login::new(&planting);
        login.command("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
        assert!(login.prints(shell, "submit").contains("::failed slurm_load_jobs error: Unable"));
        assert_eq!((login.ours("tmp"), login.ours("home/.gpucl")), (Vec::new(), vec![login.path("home/.gpucl/slurm")]));
    }
}

#[test]
fn without_a_temporary_folder_words_are_kept_in_the_home() {
    for (function, printed) in FUNCTIONS {
        let login = Login::new("exit 1");
        let said = login.prints("sh", function);
        assert!(said.contains(printed), "{function}: {said}");
        let left = login.ours("home").iter().any(|path| path.display().to_string().contains("words."));
        assert!(!left && login.ours("tmp").is_empty(), "{function}");
    }
}
