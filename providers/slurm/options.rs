//! The options of `sbatch` that a spec may add: one each, written in full, and none of gpucl's own.

/// The options of `sbatch` that gpucl sets, or that would break what it does, each with the key of the spec to use instead
/// or the reason.
const OURS: &[(&str, &str)] = &[
    ("--job-name", ": it is the job's tag"),
    ("--comment", ": it is the job's tag"),
    ("--nodes", "; write an entry of `hosts:` for each node"),
    ("--ntasks", ": a node has one task"),
    ("--ntasks-per-node", ": a node has one task"),
    ("--time", "; use `hours`"),
    ("--account", "; use `account`"),
    ("--partition", "; use `partition`"),
    ("--qos", "; use `qos`"),
    ("--constraint", "; use `constraint`"),
    ("--reservation", "; use `reservation`"),
    ("--exclusive", "; use `exclusive`"),
    ("--cpus-per-task", "; use `cpus`"),
    ("--mem", "; use `memory`"),
    ("--gres", "; use `gpus` and `gpu_option`"),
    ("--gpus", "; use `gpus`"),
    ("--gpus-per-node", "; use `gpus`"),
    ("--gpus-per-task", "; use `gpus` and `gpu_option`"),
    ("--signal", "; use `end: {warning: …}`"),
    ("--output", ": `gpucl logs` shows the job's log"),
    ("--error", ": `gpucl logs` shows the job's log"),
    ("--open-mode", ": `gpucl logs` shows the job's log"),
    ("--array", ": a cluster is one job"),
    ("--wrap", ": the job runs gpucl's own script"),
    ("--container", ": the job runs gpucl's own script"),
    ("--export", ": the job has the variables of your login"),
    ("--export-file", ": the job has the variables of your login"),
    ("--get-user-env", ": the job has the variables of your login"),
    ("--uid", ": the job is yours"),
    ("--gid", ": the job is yours"),
    ("--clusters", ": the job is looked for on the login machine's own cluster"),
    ("--wait", ": `up` waits by itself"),
    ("--parsable", ": what sbatch prints is read"),
    ("--quiet", ": what sbatch prints is read"),
    ("--test-only", ": it submits no job"),
    ("--help", ": it submits no job"),
    ("--usage", ": it submits no job"),
    ("--version", ": it submits no job"),
];

/// What to do instead of having the job run in a container by pyxis (`--container-image`, `--container-mounts`, …) or by
/// Slurm itself (`--container-id`): <https://github.com/NVIDIA/pyxis#usage>.
const INSTEAD: &str = "gpucl's own script and Ray run on the node, not in an image; bring Ray and packages by `environment` \
    (a Python environment that has them), `modules` or `setup`, and start containers in jobs (`apptainer exec --nv`, `srun \
    --container-image`)";

/// Says why a line is not an option that the spec may add.
///
/// Slurm reads the line as a shell does: blanks part options, and quotes and backslashes vanish. It takes any beginning of
/// a long option that fits no other, too: `--job-nam`.
pub(super) fn check(line: &str) -> Result<(), String> {
    let (name, _) = line.split_once('=').unwrap_or((line, ""));
    let is_name = name.strip_prefix("--").is_some_and(|rest| {
        rest.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            && rest.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
    });
    let changes = |letter: char| letter.is_whitespace() || letter.is_control() || "\"'\\#".contains(letter);
    if !is_name || line.contains(changes) {
        let line = line.escape_debug();
        return Err(format!("`{line}` is not one option of sbatch: write it like `--mail-type=END`"));
    }
    // Sites name their own options as they like, with `_` and capital letters.
    let plain = name.replace('_', "-").to_ascii_lowercase();
    if ["--container-", "--no-container-"].iter().any(|pyxis| plain.starts_with(pyxis)) {
        return Err(format!("`{name}` cannot be set here: {INSTEAD}"));
    }
    match OURS.iter().find(|(ours, _)| ours.starts_with(&plain)) {
        Some((ours, why)) if *ours == name => Err(format!("`{ours}` cannot be set here{why}")),
        Some((ours, why)) => Err(format!("`{name}` may stand for `{ours}`, which cannot be set here{why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_an_option_of_gpucls_own_passes() {
        let mut tried = 0;
        for (ours, _) in OURS {
            for length in 3..=ours.len() {
                for line in [ours[..length].to_owned(), format!("{}=zz", &ours[..length])] {
                    assert!(check(&line).is_err_and(|why| why.contains("cannot be set here")), "{line}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 500, "{tried}");
    }

    #[test]
    fn one_line_is_one_long_option() {
        for line in [
            "-J",
            "-Jzz",
            "-o/x",
            "--",
            "--=zz",
            "",
            "--job-name zz",
            "--mail-type=END --job-name=zz",
            "--mail-type=END\t-Jzz",
            "--mail-type=END\n#SBATCH --job-name=zz",
            "--mail-type=END\u{b}-Jzz",
            "--job\\-name=zz",
            "--jo\"b\"-name=zz",
            "--'job-name'=zz",
            "\"--job-name=zz\"",
            "--mail-type=\"END --job-name=zz\"",
            "--mail-type=END#",
            " --job-name=zz",
            "---job-name=zz",
        ] {
            assert!(check(line).is_err_and(|why| why.contains("not one option")), "{line:?}");
        }
        assert!(check("--job_name=zz").is_err() && check("--JOB-NAME=zz").is_err());
    }

    #[test]
    fn containers_of_the_whole_job_are_refused_with_what_to_do_instead() {
        for line in [
            "--container-image=/home/me/ray.sqsh",
            "--container-mounts=/mnt/home:/mnt/home",
            "--container_image=x",
            "--container-im=x",
            "--container-id=7",
            "--no-container-mount-home",
        ] {
            assert!(check(line).is_err_and(|why| why.contains("bring Ray and packages by `environment`")), "{line}");
        }
        assert!(check("--contain=x").is_err() && check("--container=/bundle").is_err());
    }

    #[test]
    fn options_of_the_users_own_pass() {
        for line in [
            "--mail-type=END",
            "--mail-user=ada@example.org",
            "--requeue",
            "--nodelist=node[1-3],node7",
            "--exclude=node4",
            "--dependency=afterok:17:18?afterany:19",
            "--licenses=matlab@server:2",
            "--gres-flags=enforce-binding",
            "--mem-per-cpu=4G",
            "--mem-bind=local",
            "--gpu-bind=closest",
            "--time-min=10",
            "--hint=nomultithread",
            "--begin=now+1hour",
            "--nice",
            "--comment-of-a-plugin=x",
            "--wait-all-nodes=1",
            "--tres-per-task=gres/license:2",
        ] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }
}
