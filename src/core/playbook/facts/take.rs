//! Parses facts from the lines of a host's program.

use super::{Facts, GpuFact, Limit, PythonFact, Vendor, amd, network, nvidia};

impl Facts {
    /// Takes one fact printed by the host's program: its key and the rest of its line.
    pub(in crate::playbook) fn take(&mut self, key: &str, rest: &str) {
        let text = || rest.trim().to_owned();
        let number = |factor: u64| rest.trim().parse::<u64>().unwrap_or_default().saturating_mul(factor);
        let some = || Some(text()).filter(|text| !text.is_empty());
        let word = |index: usize| some().map(|line| line.split(' ').nth(index).unwrap_or(&line).to_owned());
        match key {
            "os" => self.os = text(),
            "os_version" => self.os_version = text(),
            "kernel" => self.kernel = text(),
            "arch" => self.arch = text(),
            "boot_id" => self.boot_id = text(),
            "cpus" => self.cpus = u32::try_from(number(1)).unwrap_or_default(),
            "memory" => self.memory = number(1024),
            "limit" => self.limits.extend(Limit::of(rest)),
            "disk_free" => self.disk_free = number(1024),
            "lib_free" => self.lib_free = number(1024),
            "shm_free" => self.shm_free = number(1024),
            "shm_size" => self.shm_size = number(1024),
            "python" => {
                self.python = rest
                    .split_once(' ')
                    .map(|(version, path)| PythonFact { path: path.to_owned(), version: version.to_owned() });
            }
            // `uv 0.9.1 (…)`, `Docker version 29.1.3, build …`
            "uv" => self.uv = word(1),
            "docker" => self.docker = word(2).map(|version| version.trim_end_matches(',').to_owned()),
            "docker_engine" => self.docker_engine = some(),
            "compose" => self.compose = some().map(|version| version.trim_start_matches('v').to_owned()),
            "stranger" => self.strangers.push(text()),
            "cdi" => self.cdi.push(text()),
            "gpu" => self.gpus.extend(gpu(rest)),
            "nvidia" => nvidia::take(self, rest),
            "nvidia_loaded" => self.nvidia_loaded = nvidia::version(rest),
            "nvidia_on_disk" => self.nvidia_on_disk = nvidia::version(rest),
            "nvidia_error" => self.nvidia_error = Some(nvidia::failure(rest)),
            "nvswitches" => self.nvswitches = u32::try_from(number(1)).unwrap_or_default(),
            "amd" => amd::take(self, rest),
            "secure_boot" => self.secure_boot = text() == "yes",
            "firewall" => self.firewalls.push(text()),
            "group" => {
                if let Some((name, Ok(number))) = rest.trim().split_once(' ').map(|(name, gid)| (name, gid.parse())) {
                    self.groups.insert(name.to_owned(), number);
                }
            }
            "cloud_init" => self.cloud_init = some(),
            "reboot_required" => self.reboot_required = text() == "yes",
            "systemd" => self.systemd = text() == "yes",
            "listening" => self.listening = network::listening(rest),
            "addresses" => self.addresses = network::addresses(rest),
            // A later version may print more.
            _ => {}
        }
    }
}

/// `ADDRESS VENDOR DEVICE DRIVER RENDER-NODE UNIQUE-ID`, with a dash for missing values.
fn gpu(rest: &str) -> Option<GpuFact> {
    let mut words = rest.split(' ');
    let pci = words.next().filter(|pci| !pci.is_empty())?;
    let vendor = match words.next()? {
        "0x10de" => Vendor::Nvidia,
        "0x1002" => Vendor::Amd,
        _ => return None,
    };
    let device_id = words.next()?;
    let mut some = || words.next().filter(|word| !matches!(*word, "" | "-")).map(str::to_owned);
    Some(GpuFact {
        pci: pci.to_owned(),
        vendor,
        device_id: device_id.to_owned(),
        driver: some(),
        render: some(),
        unique_id: some().map(|id| id.trim_start_matches("0x").to_owned()),
        name: None,
        uuid: None,
        memory: None,
        mig: None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn versions_are_found_in_tool_output() {
        let mut facts = Facts::default();
        facts.take("python", "3.9.2 /usr/bin/python3");
        facts.take("docker", "Docker version 29.1.3, build abc");
        facts.take("compose", "v2.40.3");
        facts.take("docker_engine", "");
        facts.take("uv", "uv 0.9.1 (abc 2025-10-01)");
        facts.take("group", "render 992");
        assert!(!facts.python.as_ref().unwrap().fits_ray());
        assert_eq!((facts.docker.as_deref(), facts.uv.as_deref()), (Some("29.1.3"), Some("0.9.1")));
        assert_eq!((facts.compose.as_deref(), facts.docker_engine.as_deref()), (Some("2.40.3"), None));
        assert_eq!(facts.groups["render"], 992);
        assert!(PythonFact { path: String::new(), version: "3.13.1".to_owned() }.fits_ray());
        assert!(!PythonFact { path: String::new(), version: "3.14.0".to_owned() }.fits_ray());
    }

    #[test]
    fn a_gpu_is_known_without_any_tool() {
        let mut facts = Facts::default();
        facts.take("gpu", "0000:c7:00.0 0x1002 0x74a1 amdgpu renderD128 de8287300da37c72");
        facts.take("gpu", "0000:c6:00.0 0x10de 0x2330 -");
        facts.take("gpu", "0000:c5:00.0 0x8086 0x2330 - - -");
        facts.take("gpu", "");
        assert_eq!(facts.gpus.len(), 2);
        assert_eq!(facts.gpus[0].render.as_deref(), Some("renderD128"));
        assert_eq!(facts.gpus[0].unique_id.as_deref(), Some("de8287300da37c72"));
        assert_eq!((facts.gpus[1].driver.as_deref(), facts.gpus[1].unique_id.as_deref()), (None, None));
    }

    #[test]
    fn facts_of_an_older_version_are_still_read() {
        let old = r#"{"os":"ubuntu","gpus":[{"pci":"0000:c6:00.0","vendor":"nvidia","device_id":"0x2330","driver":null,"name":null,"uuid":null}]}"#;
        let facts: Facts = serde_json::from_str(old).unwrap();
        assert_eq!((facts.os.as_str(), facts.gpus.len(), facts.gpus[0].memory), ("ubuntu", 1, None));
    }

    #[test]
    fn each_firewall_is_named_by_its_own_state() {
        let folder = tempfile::tempdir().unwrap();
        let program = concat!(include_str!("../shell/facts.sh"), "\nfact() { echo \"$*\"; }\nfacts_firewalls\n");
        let of = |states: &str| {
            let systemctl = folder.path().join("systemctl");
            fs_err::write(&systemctl, format!("#!/bin/sh\nprintf '{states}'\nexit 3\n")).unwrap();
            fs_err::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755)).unwrap();
            let path = format!("{}:/usr/bin:/bin", folder.path().display());
            let output = std::process::Command::new("sh").args(["-c", program]).env("PATH", path).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(of("active\\ninactive\\ninactive\\n"), "firewall firewalld\n");
        assert_eq!(of("inactive\\ninactive\\nactive\\n"), "firewall nftables\n");
        // The bus does not answer.
        assert_eq!(of(""), "");
    }
}
