//! What the login machine prints: jobs, the folders of ours, and what they mean. Pure.
//!
//! The forms that `squeue -o` prints are the same in every version; its JSON is not, and is not there at every site.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::names::scope_name;
use crate::name::{Key, Scope, Tag};

/// A job of this user, as `squeue` and `scontrol` show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) id: String,
    /// `PENDING`, `RUNNING`, `COMPLETING`, `TIMEOUT`, …
    pub(super) state: String,
    /// Why it waits or ended: `Priority`, `Resources`, …
    pub(super) reason: String,
    /// Until its time limit.
    pub(super) left: Option<SignedDuration>,
    /// When it began; for one that waits, when Slurm expects to begin it.
    pub(super) start: Option<Timestamp>,
    pub(super) nodes: usize,
    pub(super) name: String,
    /// How often it was started again.
    pub(super) restarts: u32,
    /// Its place among the jobs that wait in its partition, and how many those are.
    pub(super) place: Option<(usize, usize)>,
}

/// The states that a job does not leave (`squeue`'s manual page, "Job state codes").
pub(super) const ENDED: &[&str] = &[
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

impl Job {
    /// Whether it still waits or runs.
    pub(super) fn is_live(&self) -> bool {
        !ENDED.contains(&self.state.as_str())
    }

    /// Whether it runs, and is not about to end.
    pub(super) fn runs(&self) -> bool {
        self.state == "RUNNING"
    }

    /// A few words on where it stands.
    pub(super) fn describe(&self) -> String {
        match self.state.as_str() {
            "PENDING" => format!("it waits in the queue: {}", words_for(&self.reason)),
            "CONFIGURING" => "its nodes are being started".to_owned(),
            "COMPLETING" => "it is ending".to_owned(),
            "SUSPENDED" => "Slurm has suspended it".to_owned(),
            "RUNNING" => "it runs".to_owned(),
            ended => format!("it ended: {}", end_in_words(ended)),
        }
    }
}

/// A node of a job, as its program wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    /// Its name to Slurm.
    pub(super) node: String,
    /// Where the other nodes reach it.
    pub(super) addresses: Vec<String>,
    /// The job's folder on its own disk.
    pub(super) own: String,
    /// The user's home folder, which is on shared storage.
    pub(super) home: String,
    pub(super) socket: String,
    pub(super) user: String,
    pub(super) job: String,
    pub(super) restarts: u32,
}

/// What was left on a node when the job ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Ended {
    pub(super) node: String,
    pub(super) processes: u32,
    pub(super) files: u32,
    pub(super) folder: String,
}

/// The folder of a job on shared storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Folder {
    /// The job's id; `None` if it was never submitted.
    pub(super) job: Option<String>,
    /// The claimed hosts with their ids.
    pub(super) claims: BTreeMap<Key, String>,
    pub(super) nodes: Vec<Node>,
    pub(super) ended: Vec<Ended>,
}

/// Everything that the login machine knows of us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) now: Timestamp,
    pub(super) jobs: Vec<Job>,
    /// By `gpucl-OWNER-CLUSTER`.
    pub(super) folders: BTreeMap<String, Folder>,
}

impl Seen {
    /// Reads the lines of `observe`; `None` if they are cut off.
    pub(super) fn read(lines: &[String]) -> Option<Self> {
        let mut seen = Self::default();
        for line in lines {
            let Some((kind, rest)) = line.strip_prefix("::").map(|line| line.split_once(' ').unwrap_or((line, "")))
            else {
                continue;
            };
            match kind {
                "now" => seen.now = rest.trim().parse().ok().and_then(|at| Timestamp::from_second(at).ok())?,
                "job" => seen.jobs.extend(job(rest, seen.now)),
                "restarts" => {
                    let (id, count) = rest.split_once(' ')?;
                    for job in seen.jobs.iter_mut().filter(|job| job.id == id) {
                        job.restarts = count.trim().parse().unwrap_or_default();
                    }
                }
                "place" => {
                    let words: Vec<&str> = rest.split(' ').collect();
                    let [id, place, all] = words.as_slice() else { return None };
                    for job in seen.jobs.iter_mut().filter(|job| job.id == *id) {
                        job.place = place.parse().ok().zip(all.trim().parse().ok());
                    }
                }
                "folder" => {
                    let (scope, id) = rest.split_once(' ')?;
                    let id = Some(id.trim()).filter(|id| *id != "-");
                    seen.folder(scope).job = id.map(str::to_owned);
                }
                "claim" => {
                    let mut words = rest.split(' ');
                    let (scope, key, id) = (words.next()?, words.next()?, words.next().unwrap_or_default());
                    if let Ok(key) = key.parse() {
                        seen.folder(scope).claims.insert(key, id.to_owned());
                    }
                }
                // A file that is half written is read again soon.
                "node" => seen.add(rest, |folder, node| folder.nodes.push(node)),
                "ended" => seen.add(rest, |folder, ended| folder.ended.push(ended)),
                "seen" => return Some(seen),
                _ => {}
            }
        }
        None
    }

    fn folder(&mut self, scope: &str) -> &mut Folder {
        self.folders.entry(scope.to_owned()).or_default()
    }

    fn add<T: serde::de::DeserializeOwned>(&mut self, rest: &str, put: impl FnOnce(&mut Folder, T)) {
        if let Some((scope, text)) = rest.split_once(' ')
            && let Ok(value) = serde_json::from_str(text)
        {
            put(self.folder(scope), value);
        }
    }

    /// The live job with this tag.
    pub(super) fn job(&self, tag: &Tag) -> Option<&Job> {
        let name = tag.to_string();
        self.jobs.iter().find(|job| job.name == name && job.is_live())
    }

    /// The last job with this id and tag, live or not.
    pub(super) fn ended(&self, tag: &Tag, id: &str) -> Option<&Job> {
        let name = tag.to_string();
        self.jobs.iter().find(|job| job.name == name && job.id == id)
    }

    pub(super) fn of(&self, scope: &Scope) -> Option<&Folder> {
        self.folders.get(&scope_name(scope))
    }
}

impl Folder {
    /// The nodes that this run of the job has reported, by number in the job's order; `None` while one is missing.
    pub(super) fn nodes_of(&self, job: &Job) -> Option<Vec<&Node>> {
        let own: Vec<&Node> =
            self.nodes.iter().filter(|node| node.job == job.id && node.restarts == job.restarts).collect();
        (job.runs() && own.len() >= job.nodes.max(1)).then_some(own)
    }
}

/// The id of a job's node as a host.
pub(super) fn host_id(job: &Job, number: usize) -> String {
    format!("{}.{}.{number}", job.id, job.restarts)
}

/// `ID|STATE|REASON|LEFT|START|NODES|NODELIST|NAME`.
fn job(line: &str, now: Timestamp) -> Option<Job> {
    let fields: Vec<&str> = line.split('|').collect();
    let [id, state, reason, left, start, nodes, _, name] = fields.as_slice() else { return None };
    let start = start.parse::<i64>().ok().and_then(|at| Timestamp::from_second(at).ok());
    Some(Job {
        id: (*id).to_owned(),
        // `CANCELLED by 2001`.
        state: state.split(' ').next().unwrap_or_default().to_owned(),
        reason: (*reason).to_owned(),
        left: duration(left),
        start: start.filter(|start| *state != "PENDING" || *start >= now - SignedDuration::from_mins(5)),
        nodes: nodes.parse().unwrap_or(1),
        name: (*name).to_owned(),
        restarts: 0,
        place: None,
    })
}

/// A duration as Slurm prints it: `1-02:03:04`, `02:03:04`, `3:04`; `None` for `UNLIMITED`, `INVALID`, `NOT_SET`.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    let (days, rest) = text.trim().split_once('-').unwrap_or(("0", text.trim()));
    let mut seconds = 0_i64;
    for part in rest.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    // `D-HH`.
    if text.contains('-') && !rest.contains(':') {
        seconds = seconds.checked_mul(3600)?;
    }
    let days: i64 = days.parse().ok()?;
    Some(SignedDuration::from_secs(days.checked_mul(86_400)?.checked_add(seconds)?))
}

/// A reason for waiting, in plain words (`squeue`'s manual page, "Job reason codes").
pub(super) fn words_for(reason: &str) -> String {
    let plain = match reason {
        "None" | "" => "Slurm has not looked at it yet",
        "Priority" => "other jobs come first",
        "Resources" => "the nodes that it needs are in use",
        "BeginTime" => "it may not begin yet; a job that was preempted waits two minutes",
        "Dependency" | "DependencyNeverSatisfied" => "it depends on another job",
        "Licenses" => "a licence that it needs is in use",
        "Reservation" => "its reservation has not begun",
        "Cleaning" => "its last run is being cleaned up",
        "JobHeldUser" => "it is held by you: scontrol release it",
        "JobHeldAdmin" => "it is held by an administrator",
        "PartitionDown" | "PartitionInactive" => "its partition takes no jobs now",
        "PartitionNodeLimit" => "the partition does not have so many nodes",
        "PartitionTimeLimit" => "the partition allows less time",
        "BadConstraints" => "no node has what it asks for",
        // Without accounting, Slurm says this of a job that waits behind others.
        "InvalidAccount" => "it waits for a node, or its account is not valid",
        "InvalidQOS" => "the quality of service is not valid",
        "QOSNotAllowed" => "the account may not use this quality of service",
        "ReservationDeleted" => "its reservation was deleted",
        "AccountNotAllowed" => "the account may not use this partition",
        _ if reason.starts_with("ReqNodeNotAvail") => "a node that it needs is down or reserved",
        _ if reason.contains("GRES") => "a limit on GPUs is reached",
        _ if reason.contains("WallDurationPerJob") => "it asks for more time than is allowed",
        _ if reason.contains("Jobs") => "a limit on the number of jobs is reached",
        _ if reason.contains("Cpu") || reason.contains("CPU") => "a limit on processors is reached",
        _ if reason.contains("Mem") => "a limit on memory is reached",
        _ if reason.contains("Node") => "a limit on nodes is reached",
        _ if reason.starts_with("QOS") => "a limit of the quality of service is reached",
        _ if reason.starts_with("Assoc") => "a limit of the account is reached",
        _ => return reason.to_owned(),
    };
    let code = if reason.is_empty() { "None" } else { reason };
    format!("{plain} ({code})")
}

/// Whether waiting cannot help: the job would be pending for ever.
pub(super) fn is_final(reason: &str) -> bool {
    matches!(
        reason,
        "PartitionNodeLimit"
            | "PartitionTimeLimit"
            | "BadConstraints"
            | "InvalidQOS"
            | "QOSNotAllowed"
            | "AccountNotAllowed"
            | "ReservationDeleted"
            | "DependencyNeverSatisfied"
            | "JobHeldUser"
            | "JobHeldAdmin"
    ) || reason.ends_with("MaxWallDurationPerJobLimit")
        || reason.contains("MaxGRESPerJob")
        || reason.contains("MaxNodePerJob")
}

/// How a job ended, in plain words.
fn end_in_words(state: &str) -> &str {
    match state {
        "TIMEOUT" => "its time limit was reached (TIMEOUT)",
        "CANCELLED" => "it was cancelled (CANCELLED)",
        "COMPLETED" => "its script ended (COMPLETED)",
        "FAILED" => "its script failed (FAILED)",
        "NODE_FAIL" => "a node failed (NODE_FAIL)",
        "OUT_OF_MEMORY" => "it used more memory than it has (OUT_OF_MEMORY)",
        "PREEMPTED" => "another job took its place (PREEMPTED)",
        "BOOT_FAIL" => "its nodes did not start (BOOT_FAIL)",
        "DEADLINE" => "its deadline passed (DEADLINE)",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    const TEXT: &str = r#"Last login: today
::now 1795633236
::job 17|RUNNING|None|9:21|1795633200|2|n[1-2]|gpucl-abcd1234-demo-job
::job 18|PENDING|Priority|3:00:00|1795640000|1||gpucl-abcd1234-demo-b-job
::job 12|TIMEOUT|TimeLimit|0:00|1795600000|1|n1|gpucl-abcd1234-demo-job
::restarts 17 1
::place 18 2 3
::folder gpucl-abcd1234-demo 17
::claim gpucl-abcd1234-demo host0 17.1.0
::node gpucl-abcd1234-demo {"node": "n1", "addresses": ["10.0.0.1"], "own": "/tmp/x", "socket": "/tmp/x/s", "user": "ada", "job": "17", "restarts": 1, "cpus": 4}
::node gpucl-abcd1234-demo {"node": "n2", "job": "17", "restarts": 0}
::node gpucl-abcd1234-demo {"node": "n
::folder gpucl-abcd1234-old -
::ended gpucl-abcd1234-old {"node": "n3", "processes": 0, "files": 2, "folder": "/tmp/y"}
::seen
"#;

    #[test]
    fn jobs_and_folders_are_read_and_a_cut_answer_is_none() {
        let seen = Seen::read(&lines(TEXT)).unwrap();
        let tag: Tag = "gpucl-abcd1234-demo-job".parse().unwrap();
        let job = seen.job(&tag).unwrap();
        assert_eq!((job.id.as_str(), job.nodes, job.restarts), ("17", 2, 1));
        let waiting: Tag = "gpucl-abcd1234-demo-b-job".parse().unwrap();
        assert_eq!(seen.job(&waiting).unwrap().place, Some((2, 3)));
        assert_eq!(job.left, Some(SignedDuration::from_secs(9 * 60 + 21)));
        assert_eq!(seen.ended(&tag, "12").unwrap().describe(), "it ended: its time limit was reached (TIMEOUT)");
        let folder = &seen.folders["gpucl-abcd1234-demo"];
        assert_eq!(folder.claims[&Key::host(0)], host_id(job, 0));
        assert_eq!(folder.nodes.len(), 2, "a file that is half written is not there yet");
        assert_eq!(folder.nodes_of(job), None, "n2 is of the run before");
        assert_eq!(seen.folders["gpucl-abcd1234-old"].job, None);
        assert_eq!(seen.folders["gpucl-abcd1234-old"].ended[0].files, 2);
        let cut = lines(TEXT.trim_end().trim_end_matches("::seen"));
        assert_eq!(Seen::read(&cut), None);
    }

    #[test]
    fn durations_as_slurm_prints_them() {
        for (text, seconds) in
            [("9:21", 561), ("1:02:03", 3723), ("1-02:03:04", 93_784), ("2-00", 172_800), ("0:00", 0), ("30", 30)]
        {
            assert_eq!(duration(text), Some(SignedDuration::from_secs(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "INVALID", "NOT_SET", "", "1-x"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_reason_is_explained_and_kept() {
        assert_eq!(words_for("Priority"), "other jobs come first (Priority)");
        assert_eq!(words_for("QOSMaxGRESPerUser"), "a limit on GPUs is reached (QOSMaxGRESPerUser)");
        assert_eq!(
            words_for("ReqNodeNotAvail, UnavailableNodes:n1"),
            "a node that it needs is down or reserved (ReqNodeNotAvail, UnavailableNodes:n1)"
        );
        assert_eq!(words_for("SomethingNew"), "SomethingNew");
        assert!(is_final("PartitionTimeLimit") && !is_final("QOSMaxGRESPerUser") && !is_final("InvalidAccount"));
    }
}
