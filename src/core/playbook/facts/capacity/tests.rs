//! Tests of limits, with the files of other machines' kernels.

use super::*;

const GIB: u64 = 1 << 30;
/// What version 1 says where nothing is limited, with pages of 4 KiB.
const V1_UNLIMITED: &str = "9223372036854771712\n";
const V2_MOUNT: &str = "/ /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";

/// A machine with 8 processors, of which the last two are offline, and 16 GiB.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(cgroup: &str, mounts: &[&str]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.put("proc/meminfo", "MemFree:  1 kB\nMemTotal:       16777216 kB\n");
        machine.put("sys/devices/system/cpu/online", "0-5\n");
        machine.put("proc/self/status", "Name:\tsh\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n");
        machine.put("proc/self/cgroup", cgroup);
        let lines: Vec<String> = mounts.iter().map(|mount| format!("31 23 0:28 {mount}\n")).collect();
        machine.put("proc/self/mountinfo", &format!("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n{}", lines.concat()));
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    fn facts(&self) -> Facts {
        facts_below(self.0.path()).unwrap()
    }

    /// Processors and memory in GiB, each with what limits it.
    fn has(&self, run_as: RunAs) -> (u32, String, f64, String) {
        let facts = self.facts();
        assert_eq!((facts.cpus, facts.memory), (6, 16 * GIB), "the machine's own stay known");
        let Capacity { cpus, memory, cpus_limit, memory_limit } = facts.capacity(run_as);
        let by = |limit: Option<Limit>| limit.map(|limit| limit.by).unwrap_or_default();
        (cpus, by(cpus_limit), memory as f64 / GIB as f64, by(memory_limit))
    }

    fn says(&self, run_as: RunAs, cpus: (u32, &str), memory: (f64, &str)) {
        assert_eq!(self.has(run_as), (cpus.0, cpus.1.to_owned(), memory.0, memory.1.to_owned()));
    }
}

#[test]
fn version_2_is_read_with_all_that_it_is_in() {
    let machine = Machine::new("0::/user.slice/user-1000.slice/session-3.scope\n", &[V2_MOUNT]);
    machine.says(RunAs::Processes, (6, ""), (16.0, ""));
    let at = |path: &str, text: &str| machine.put(&format!("sys/fs/cgroup/{path}"), text);
    at("user.slice/memory.max", "max\n");
    at("user.slice/cpu.max", "max 100000\n");
    at("user.slice/user-1000.slice/memory.max", &format!("{}\n", 8 * GIB));
    at("user.slice/user-1000.slice/memory.high", &format!("{}\n", 6 * GIB));
    at("user.slice/user-1000.slice/cpu.max", "399999 100000\n");
    at("user.slice/user-1000.slice/session-3.scope/memory.max", "max\n");
    at("user.slice/user-1000.slice/session-3.scope/cpu.max", "500000 100000\n");
    let slice = "the cgroup /user.slice/user-1000.slice";
    machine.says(RunAs::Processes, (3, &format!("the CPU quota of {slice}")), (6.0, slice));
    // An engine starts containers outside of it.
    machine.says(RunAs::Containers, (6, ""), (16.0, ""));
    // Nearly nothing is still one.
    at("user.slice/cpu.max", "10000 100000\n");
    at("user.slice/memory.max", &format!("{}\n", 3 * GIB));
    machine.says(RunAs::Processes, (1, "the CPU quota of the cgroup /user.slice"), (3.0, "the cgroup /user.slice"));
    // More than the machine has.
    let machine = Machine::new("0::/a b/c:d\n", &[V2_MOUNT]);
    machine.put("sys/fs/cgroup/a b/memory.max", &format!("{}\n", 64 * GIB));
    machine.put("sys/fs/cgroup/a b/cpu.max", "6400000 100000\n");
    machine.says(RunAs::Processes, (6, ""), (16.0, ""));
    machine.put("sys/fs/cgroup/a b/c:d/memory.max", &format!("{GIB}\n"));
    machine.says(RunAs::Processes, (6, ""), (1.0, "the cgroup /a b/c:d"));
}

#[test]
fn version_1_and_both_side_by_side_are_read() {
    let machine = Machine::new(
        "9:name=systemd:/\n4:memory:/gpucl/inner\n2:cpu,cpuacct:/slice\n0::/\ngarbage\n",
        &[
            "/ /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755",
            "/ /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
            "/ /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
            "/ /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
            "/ /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        ],
    );
    let at = |path: &str, text: &str| machine.put(&format!("sys/fs/cgroup/{path}"), text);
    for level in ["", "gpucl/", "gpucl/inner/"] {
        at(&format!("memory/{level}memory.limit_in_bytes"), V1_UNLIMITED);
    }
    for level in ["", "slice/"] {
        at(&format!("cpu,cpuacct/{level}cpu.cfs_quota_us"), "-1\n");
        at(&format!("cpu,cpuacct/{level}cpu.cfs_period_us"), "100000\n");
    }
    machine.says(RunAs::Processes, (6, ""), (16.0, ""));
    at("memory/gpucl/memory.limit_in_bytes", &format!("{}\n", 3 * GIB));
    at("cpu,cpuacct/slice/cpu.cfs_quota_us", "250000\n");
    machine.says(RunAs::Processes, (2, "the CPU quota of the cgroup /slice"), (3.0, "the cgroup /gpucl"));
    machine.says(RunAs::Containers, (6, ""), (16.0, ""));
}

#[test]
fn what_limits_a_container_limits_everything_in_it() {
    let id = "/docker/3f1a";
    let limited = |machine: &Machine, folder: &str| {
        machine.put(&format!("{folder}/memory.max"), &format!("{}\n", 2 * GIB));
        machine.put(&format!("{folder}/cpu.max"), "150000 100000\n");
        for run_as in [RunAs::Processes, RunAs::Containers] {
            machine.says(run_as, (1, "the container's cgroup"), (2.0, "the container's cgroup"));
        }
    };
    // With a namespace of its own, and where the path is that outside of it, which does not exist here.
    for path in ["/", "/../..", id, "/kubepods/pod1 (deleted)"] {
        limited(&Machine::new(&format!("0::{path}\n"), &[V2_MOUNT]), "sys/fs/cgroup");
    }
    // Its part of the hierarchy is mounted; of two mounts, that which holds it counts.
    let part = format!("{id} /sys/fs/cgroup ro - cgroup2 cgroup rw");
    let other = "/docker/3f1 /mnt/other ro - cgroup2 cgroup rw";
    let machine = Machine::new(&format!("0::{id}\n"), &[other, &part]);
    machine.put("mnt/other/memory.max", &format!("{GIB}\n"));
    limited(&machine, "sys/fs/cgroup");
    // Version 1, as in a container of an old engine; its processors are chosen.
    let machine = Machine::new(
        &format!("5:cpuset:{id}\n4:memory:{id}\n"),
        &[
            &format!("{id} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"),
            &format!("{id} /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset"),
        ],
    );
    machine.put("sys/fs/cgroup/memory/memory.limit_in_bytes", &format!("{GIB}\n"));
    machine.put("sys/fs/cgroup/cpuset/cpuset.cpus", "1-2,5,7\n");
    machine.says(RunAs::Containers, (3, "the container's cgroup"), (1.0, "the container's cgroup"));
}

#[test]
fn the_affinity_counts_processors_that_are_online() {
    let machine = Machine::new("0::/\n", &[V2_MOUNT]);
    for (list, cpus) in [("0-7", 6), ("4-7", 2), ("1,3,6", 2), ("0-1,3-5", 5), ("5", 1)] {
        machine.put("proc/self/status", &format!("Name:\tsh\nCpus_allowed_list:\t{list}\nMems_allowed_list:\t0\n"));
        machine.says(RunAs::Processes, (cpus, if cpus < 6 { "the CPU affinity" } else { "" }), (16.0, ""));
        machine.says(RunAs::Containers, (6, ""), (16.0, ""));
    }
}

/// A batch system may count more processors than there are, as on machines that stand for larger ones.
#[test]
fn a_part_of_a_machine_is_limited_by_what_leaves_less_than_all_of_it() {
    let machine = Machine::new("0::/\n", &[V2_MOUNT]);
    let has = |list: &str, part: &str| {
        machine.put("proc/self/status", &format!("Cpus_allowed_list:\t{list}\n"));
        let root = machine.0.path().display().to_string();
        let program = format!("fact() {{ echo \"$@\"; }}\n{PROGRAM}facts_capacity {} self\n", quote(&root));
        let output = std::process::Command::new("sh").args(["-c", &program]).env("GPUCL_CPUS", part).output().unwrap();
        let mut facts = Facts::default();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let (key, rest) = line.split_once(' ').unwrap();
            facts.take(key, rest);
        }
        facts.capacity(RunAs::Processes).cpus
    };
    for (list, part, cpus) in [("0-7", "12", 12), ("0-7", "4", 4), ("1,3", "12", 2), ("1,3", "4", 2), ("1,3", "1", 1)] {
        assert_eq!(has(list, part), cpus, "{list} {part}");
    }
}

#[test]
fn what_cannot_be_read_limits_nothing() {
    let machine = Machine::new("0::/a\n\n:::\n4:memory\n0::relative\n", &[V2_MOUNT, "", "x - cgroup2"]);
    let junk =
        ["", "\n", "0\n", "-5\n", "max\n", "1e9\n", "0x10\n", "010\n", "99999999999999999999999999\n", "$(exit)\n"];
    for text in junk {
        for file in ["memory.max", "memory.high", "cpu.max", "cpuset.cpus.effective"] {
            // A processor has this number.
            if (text, file) == ("0\n", "cpuset.cpus.effective") {
                continue;
            }
            machine.put(&format!("sys/fs/cgroup/a/{file}"), text);
            machine.put(&format!("sys/fs/cgroup/{file}"), text);
        }
        machine.says(RunAs::Processes, (6, ""), (16.0, ""));
    }
    for quota in ["100000 0\n", "100000\n", "0 100000\n", "100000 x\n", "max max\n"] {
        machine.put("sys/fs/cgroup/a/cpu.max", quota);
        machine.says(RunAs::Processes, (6, ""), (16.0, ""));
    }
    for list in ["", "-", "3-", "-3", "a-b", "0-3,", ",", "1--2"] {
        machine.put("proc/self/status", &format!("Cpus_allowed_list:\t{list}\n"));
        let (cpus, ..) = machine.has(RunAs::Processes);
        assert!(cpus == 6 || list == "0-3,", "{list:?}: {cpus}");
    }
    for file in ["proc/self/cgroup", "proc/self/mountinfo", "proc/self/status"] {
        fs_err::remove_file(machine.0.path().join(file)).unwrap();
        machine.says(RunAs::Processes, (6, ""), (16.0, ""));
    }
}

#[test]
fn a_running_cluster_has_the_limits_of_its_supervisor() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::create_dir(folder.path().join("run")).unwrap();
    let who = |line: &str| {
        fs_err::write(folder.path().join("run/supervisor"), line).unwrap();
        let program = [
            include_str!("../../shell/common.sh"),
            PROGRAM,
            &format!("home={}\nfacts_who\necho \"$who\"\n", quote(&folder.path().to_string_lossy())),
        ];
        let output = child::command("sh").arg("-c").arg(program.concat()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let own = std::process::id();
    let stat = fs_err::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap();
    assert_eq!(who(&format!("running {own} {ticks} 2026-01-01T00:00:00Z 0 - -\n")), own.to_string());
    // Its number is another process' now.
    assert_eq!(who(&format!("running {own} 1 2026-01-01T00:00:00Z 0 - -\n")), "self");
    assert_eq!(who("running\n"), "self");
    fs_err::remove_dir_all(folder.path().join("run")).unwrap();
    fs_err::create_dir(folder.path().join("run")).unwrap();
    assert_eq!(who(""), "self");
}

#[test]
fn a_limit_is_described_and_facts_of_an_older_version_have_none() {
    let limit = |line: &str| Limit::of(line).map(|limit| (limit.most, limit.to_string()));
    assert_eq!(limit("memory 3145728 own cgroup /a b"), Some((3 * GIB, "limit of the cgroup /a b".to_owned())));
    assert_eq!(limit("cpus 1 own affinity"), Some((1, "limit of the CPU affinity".to_owned())));
    for odd in ["", "memory", "memory x own cgroup /", "memory 0 own cgroup /", "disk 3 own cgroup /", "cpus 1 own"] {
        assert_eq!(limit(odd), None, "{odd}");
    }
    let old: Facts = serde_json::from_str(r#"{"cpus": 8, "memory": 1024}"#).unwrap();
    let capacity = old.capacity(RunAs::Processes);
    assert_eq!((capacity.cpus, capacity.memory, capacity.memory_limit), (8, 1024, None));
}
