//! What Slurm's refusals mean. Its own words are always quoted.

use crate::error::{Error, ErrorKind, Status};

/// A refusal: a part of Slurm's sentence, whether it passes, and what to do.
struct Known {
    sign: &'static str,
    status: Status,
    hint: &'static str,
}

const fn refused(sign: &'static str, hint: &'static str) -> Known {
    Known { sign, status: Status::Permanent, hint }
}

const fn passing(sign: &'static str, hint: &'static str) -> Known {
    Known { sign, status: Status::Temporary, hint }
}

/// The sentences of Slurm (`slurm_errno.c`), the first match decides.
const KNOWN: &[Known] = &[
    refused(
        "Invalid account or account/partition",
        "your accounts: sacctmgr show assoc user=$USER format=account,partition,qos; name one with `provider: {account: …}`",
    ),
    refused(
        "Invalid qos",
        "your QoS: sacctmgr show assoc user=$USER format=account,qos; name one with `provider: {qos: …}`",
    ),
    refused("Invalid partition", "the partitions: gpucl offers --provider slurm, or sinfo -s"),
    refused("invalid partition specified", "the partitions: gpucl offers --provider slurm, or sinfo -s"),
    refused(
        "Requested node configuration is not available",
        "what nodes have: gpucl offers; ask for fewer GPUs, CPUs or less memory of each node",
    ),
    refused("Memory specification can not be satisfied", "ask for less with `provider: {memory: …}`"),
    refused(
        "time limit is invalid",
        "ask for less time with `provider: {hours: …}`; a partition's limit: sinfo -o '%P %l'",
    ),
    refused(
        "Requested time limit",
        "ask for less time with `provider: {hours: …}`; a partition's limit: sinfo -o '%P %l'",
    ),
    refused(
        "violates accounting/QOS policy",
        "ask for less, or wait for your other jobs: your limits are in sacctmgr show qos",
    ),
    refused("More processors requested than permitted", "ask for fewer with `provider: {cpus: …}`"),
    refused(
        "Invalid generic resource",
        "the site's types of GPU: sinfo -o '%P %G'; some sites want `provider: {gpu_option: gres}`",
    ),
    refused(
        "Invalid GRES",
        "the site's types of GPU: sinfo -o '%P %G'; some sites want `provider: {gpu_option: gres}`",
    ),
    refused("Invalid feature specification", "the nodes' features: sinfo -o '%N %f'"),
    refused("Requested reservation is invalid", "your reservations: scontrol show reservation"),
    refused("reservation", "your reservations: scontrol show reservation"),
    refused("Access/permission denied", "it may belong to another user, or the site does not let you"),
    refused("Node count specification invalid", "`hosts:` has an entry for each node of the job"),
    refused("Disk quota exceeded", "your home folder is full: make room there, or ask the site for its quota command"),
    refused("No space left", "the disk is full: make room in your home folder"),
    refused("Unable to open file", "the file was removed while it was read"),
    refused("unrecognized option", "this version of Slurm does not know an option of `provider: {sbatch: […]}`"),
    passing(
        "Unable to contact slurm controller",
        "Slurm's controller does not answer; run the same again in a while: sinfo",
    ),
    // It took the connection, and sent nothing: `squeue` of 23.11.
    passing("Unexpected message received", "Slurm's controller does not answer; run the same again in a while: sinfo"),
    passing("Socket timed out", "Slurm's controller is busy; run the same again in a while"),
    passing("Zero Bytes were transmitted", "Slurm's controller is busy; run the same again in a while"),
    passing("Connection refused", "Slurm's controller does not answer; run the same again in a while: sinfo"),
    passing("temporarily unable to accept job", "run the same again in a while"),
    passing("try again later", "run the same again in a while"),
];

/// The error for a command of Slurm that was refused or failed.
pub(super) fn error(doing: &str, words: &str) -> Error {
    let said = words.trim().trim_start_matches("sbatch: error: ").trim_start_matches("scancel: error: ").trim();
    let said = if said.is_empty() { "Slurm gave no reason" } else { said };
    let error = Error::new(ErrorKind::Provider, doing).because(said);
    match KNOWN.iter().find(|known| words.to_lowercase().contains(&known.sign.to_lowercase())) {
        Some(known) => error.status(known.status).hint(known.hint),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences are those of Slurm 23.11, seen on the test cluster, or in `slurm_errno.c`.
    #[test]
    fn a_refusal_quotes_slurm_and_says_what_to_do() {
        for (words, status, hint) in [
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
                Status::Permanent,
                "account",
            ),
            (
                "sbatch: error: Batch job submission failed: Requested node configuration is not available",
                Status::Permanent,
                "offers",
            ),
            ("sbatch: error: invalid partition specified: nope", Status::Permanent, "sinfo"),
            (
                "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
                Status::Temporary,
                "again",
            ),
            (
                "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
                Status::Permanent,
                "less",
            ),
            ("scancel: error: Kill job error on job id 7: Access/permission denied", Status::Permanent, "another user"),
        ] {
            let error = super::error("submit the job", words);
            assert_eq!(error.retry_status(), status, "{words}");
            assert!(error.hints().iter().any(|text| text.contains(hint)), "{error}");
            assert!(!error.causes()[0].starts_with("sbatch: error"), "{error}");
        }
        assert_eq!(error("x", "").causes(), ["Slurm gave no reason"]);
    }
}
