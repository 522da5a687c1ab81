//! Fuzz tests for the output of host programs: the host controls every byte of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::follow::Follower;
use super::{Facts, KnownError, Stage, Step};
use crate::event::Bus;
use crate::host::Stream;
use crate::runtime::project::{checks_of, log_line, parse_observation};
use gpucl_fuzz::{Target, demand};

fn stage() -> Stage {
    let error = KnownError {
        matches: "Unable to .* package|No space left".to_owned(),
        says: "apt says: {line}".to_owned(),
        hint: Some("look at {line}".to_owned()),
        retry: false,
    };
    let step = |name: &str| Step { name: name.to_owned(), errors: vec![error.clone()], ..Step::default() };
    Stage {
        name: "prepare".to_owned(),
        steps: vec![step("one"), step("two")],
        files: Vec::new(),
        variables: BTreeMap::new(),
        timeout: Duration::from_secs(60),
        wants_facts: true,
    }
}

const WHOLE: &str = "::gpucl n fact os ubuntu\n::gpucl n fact gpu 0000:c6:00.0 0x10de 0x2330 nvidia - -\n\
    ::gpucl n log m p1 same prepare\n::gpucl m step 1 one\nReading package lists\n10%\r20%\n::gpucl m change 1 1200 one\n\
    ::gpucl m step 2 two\nE: Unable to locate package x\n::gpucl m fail 2 30 100 two\n::gpucl n at 190\n\
    ::gpucl n value ray_env /x\n::gpucl n over p1 result fail\n::gpucl n bye\n";
const CUT: &str = "::gpucl n log m p2 other prepare\n::gpucl m timeout 1 60000 60 step one\n::gpucl n at 10\n::gpucl n over p2 died\n\
    ::gpucl n waiting 60 prepare gpucl-abcdefgh-demo-host0\n::gpucl n trouble the lock is held\n::gpucl m reboot 1 5 one\n\
    ::gpucl m retry 1 2/3 one\n::gpucl n unchanged\n::gpucl n rebooting\n";

#[test]
fn fuzz_lines_of_a_host() {
    let words = [
        "::gpucl n ",
        "::gpucl m ",
        "fact ",
        "value ",
        "log ",
        "at ",
        "over ",
        "step ",
        "fail ",
        "timeout ",
        "change ",
        "result ",
    ];
    let stage = stage();
    Target::of_text("host-lines", &[WHOLE, CUT]).with_words(&words).with_inputs(600, 70).run(|input| {
        let text = String::from_utf8_lossy(input);
        let (bus, mut inbox) = Bus::new();
        let mut follower = Follower::new("host-0", &stage, &bus, "p1");
        let _ = follower.begin_exec("n");
        let mut lines = 0;
        for (number, line) in text.split('\n').enumerate() {
            // A second exec, as after a broken connection.
            if number == 12 {
                let _ = (follower.is_whole(), follower.last_words(), follower.boot_id().len(), follower.restarts());
                let _ = follower.begin_exec("n");
            }
            let stream = if number % 7 == 6 { Stream::Err } else { Stream::Out };
            follower.line(stream, line);
            lines += 1;
        }
        let mut events = 0;
        while inbox.try_recv().is_ok() {
            events += 1;
        }
        demand(events <= 2 * lines, || format!("{events} events of {lines} lines"))?;
        match follower.finish() {
            Ok(report) => demand(report.steps.len() <= lines, || "more steps than lines".to_owned()),
            Err(error) => {
                let length: usize = error.causes().iter().map(String::len).sum();
                demand(length <= 64 * 1024 + 3 * text.len() * 3, || format!("an error of {length} bytes"))
            }
        }
    });
}

#[test]
fn fuzz_facts_of_a_host() {
    let seeds = [
        "os ubuntu\nmemory 263000000\ncpus 64\npython 3.12.3 /usr/bin/python3\ndocker Docker version 29.1.3, build x\ngroup render 992\n\
         gpu 0000:c6:00.0 0x10de 0x2330 nvidia renderD128 -\nnvidia 00000000:C6:00.0, GPU-1, NVIDIA H100, 81559, 570.1, Disabled\n\
         nvidia_loaded NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20\nnvidia_error Failed to initialize NVML\n\
         listening 0100007F:1F90 00000000:0016\naddresses 10.0.0.7/24 172.17.0.1/16\nfirewall ufw\ncloud_init done",
        "amd {\"card0\": {\"PCI Bus\": \"0000:C7:00.0\", \"Card Series\": \"AMD Instinct MI300X\", \"Unique ID\": \"0x1\"}}\n\
         gpu 0000:c7:00.0 0x1002 0x74a1 amdgpu renderD128 de82",
    ];
    let keys =
        ["gpu ", "nvidia ", "amd ", "listening ", "addresses ", "memory ", "uv ", "compose ", "group ", "python "];
    Target::of_text("facts", &seeds).with_words(&keys).with_inputs(700, 60).run(|input| {
        let text = String::from_utf8_lossy(input);
        let mut facts = Facts::default();
        for line in text.split('\n') {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            facts.take(key, rest);
        }
        let _ = (facts.nvidia_differs(), facts.listens_on(22), facts.has(super::Vendor::Amd));
        let kept = serde_json::to_string(&facts).map_err(|error| error.to_string())?;
        let again: Facts = serde_json::from_str(&kept).map_err(|error| format!("cannot be read again: {error}"))?;
        demand(again == facts, || "it differs when read again".to_owned())?;
        demand(kept.len() < 16 * 1024 + 64 * text.len(), || format!("{} bytes of {}", kept.len(), text.len()))
    });
}

#[test]
fn fuzz_projects_of_a_host() {
    let seeds = [
        "::container {\"name\":\"/gpucl-abcd1234-demo-head\",\"key\":\"head\",\"state\":\"running\",\"health\":\"healthy\",\
         \"started_at\":\"x\",\"exit_code\":0}\n::remains volume gpucl-abcd1234-demo-data\n::check {\"check\":\"gpu\",\"target\":\"worker-0\",\"ok\":true,\"saw\":\"1 GPU\"}\n\
         ::known head\n::log head 2026 text",
    ];
    let words =
        ["::container ", "::process ", "::check ", "::remains ", "::known ", "::log ", "{\"name\":\"", "\"ok\":true"];
    Target::of_text("projects", &seeds).with_words(&words).with_inputs(300, 20).run(|input| {
        let lines: Vec<String> = String::from_utf8_lossy(input).split('\n').map(str::to_owned).collect();
        let seen = parse_observation(&lines);
        let checks = checks_of(&lines);
        for line in &lines {
            let _ = log_line(line);
        }
        demand(seen.containers.len() + checks.len() <= 2 * lines.len() + 1, || "more than was printed".to_owned())
    });
}
