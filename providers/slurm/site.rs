//! What a site is like, for `gpucl doctor --provider slurm`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Slurm;
use super::login::Effect;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::provider::SiteFinding;
use crate::util::human;

/// The least free space that a home folder should have: files of a job, and logs.
const HOME_BYTES: u64 = 64 << 20;

impl Slurm {
    pub(super) async fn look(&self) -> Result<Vec<SiteFinding>> {
        let doing = format!("inspect {}", self.login.name());
        let lines = self.login.ask(&doing, "main() { look; }", &[], Effect::None, Duration::from_secs(120)).await?;
        if lines.iter().all(|line| line != "::seen") {
            return Err(Error::new(ErrorKind::Provider, doing)
                .because("its answer was cut off")
                .status(Status::Temporary));
        }
        Ok(findings(&lines))
    }
}

/// The findings in the lines `::fact NAME VALUE`.
fn findings(lines: &[String]) -> Vec<SiteFinding> {
    let facts: BTreeMap<&str, &str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("::fact ")?.split_once(' '))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let fact = |name: &str| facts.get(name).copied().unwrap_or_default();
    let found = |what, works, saw: String| SiteFinding { what, works, saw, fix: None };
    let there = |name: &str, absent: &str| match fact(name) {
        "" => absent.to_owned(),
        value => value.to_owned(),
    };
    let mut findings = vec![
        found("Slurm", Some(!fact("version").is_empty()), there("version", "no answer")),
        found(
            "accounting",
            None,
            match fact("accounting") {
                "0" => "on".to_owned(),
                _ => "off: how a job ended is known for some minutes only (MinJobAge)".to_owned(),
            },
        ),
        found("accounts", None, there("accounts", "none listed")),
        found(
            "pinning",
            None,
            format!("TaskPlugin {}, ProctrackType {}", there("TaskPlugin", "?"), there("ProctrackType", "?")),
        ),
    ];
    // The nodes usually have what the login machine has; the job itself says for certain.
    let mut sshd = found("sshd", Some(!fact("sshd").is_empty()), there("sshd", "none"));
    if fact("sshd").is_empty() {
        sshd.fix =
            Some("ask the site for the package openssh-server: its `sshd` is run as you, without root".to_owned());
    }
    findings.push(sshd);
    findings.push(found("python3", Some(!fact("python").is_empty()), there("python", "none")));
    findings.push(found(
        "modules",
        None,
        match fact("modules") {
            "yes" => "there: `provider: {modules: [python/3.12, …]}`".to_owned(),
            _ => "none".to_owned(),
        },
    ));
    findings.push(found(
        "wheels",
        None,
        match fact("wheels") {
            "" => "no `avail_wheels`: packages come from the network, or a folder of wheels".to_owned(),
            _ => "`avail_wheels`: `provider: {packages: site}`".to_owned(),
        },
    ));
    let free = fact("home").parse::<u64>().unwrap_or_default() << 10;
    let mut home = found("home folder", Some(free >= HOME_BYTES), format!("{} free", human::bytes(free)));
    if free < HOME_BYTES {
        home.fix = Some("make room in your home folder: the job's files and logs are there".to_owned());
    }
    findings.push(home);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_a_fix() {
        let lines: Vec<String> =
            ["::fact version slurm-wlm 23.11.4", "::fact accounting 1", "::fact sshd ", "::fact home 100", "::seen"]
                .map(str::to_owned)
                .to_vec();
        let findings = findings(&lines);
        let of = |what: &str| findings.iter().find(|finding| finding.what == what).unwrap();
        assert_eq!(of("Slurm").works, Some(true));
        assert!(of("accounting").saw.starts_with("off"));
        assert!(of("sshd").works == Some(false) && of("sshd").fix.is_some());
        assert!(of("home folder").fix.is_some());
    }
}
