//! What one round trip learns of a host.

use serde::{Deserialize, Serialize};

/// What a host is. What could not be learned is empty or 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The distribution's id: `ubuntu`.
    pub os: String,
    /// Its version: `24.04`.
    pub os_version: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's architecture: `x86_64`.
    pub arch: String,
    /// Which boot this is.
    pub boot_id: String,
    /// Logical processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Bytes that are free where the host's folder lies.
    pub disk_free: u64,
    /// Bytes of shared memory that are free.
    pub shm_free: u64,
    /// The user that commands run as.
    pub user: String,
    /// The Python that fits Ray best, or the one there is.
    pub python: Option<PythonFact>,
    /// The version of `uv`.
    pub uv: Option<String>,
    /// The GPUs on the PCI bus, with or without a driver.
    pub gpus: Vec<GpuFact>,
    /// The version of the `docker` command.
    pub docker: Option<String>,
}

/// A Python of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonFact {
    /// Where it is.
    pub path: String,
    /// Its version: `3.11.7`.
    pub version: String,
}

/// Who made a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
}

/// A GPU on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFact {
    /// Its address: `0000:c6:00.0`.
    pub pci: String,
    /// Who made it.
    pub vendor: Vendor,
    /// Its PCI device id: `0x2330`.
    pub device_id: String,
    /// The kernel driver bound to it.
    pub driver: Option<String>,
    /// The product's name, as its driver's tool tells.
    pub name: Option<String>,
    /// Its UUID, as its driver's tool tells.
    pub uuid: Option<String>,
}

impl PythonFact {
    /// Whether Ray has packages for it.
    pub fn fits_ray(&self) -> bool {
        let mut numbers = self.version.split('.').map(str::parse::<u32>);
        matches!((numbers.next(), numbers.next()), (Some(Ok(3)), Some(Ok(10..=13))))
    }
}

impl Facts {
    /// Takes one fact as the host's program says it: its key and the rest of its line.
    pub(super) fn take(&mut self, key: &str, rest: &str) {
        let text = || rest.trim().to_owned();
        let number = |factor: u64| rest.trim().parse::<u64>().unwrap_or_default().saturating_mul(factor);
        let some = || Some(text()).filter(|text| !text.is_empty());
        match key {
            "os" => self.os = text(),
            "os_version" => self.os_version = text(),
            "kernel" => self.kernel = text(),
            "arch" => self.arch = text(),
            "boot_id" => self.boot_id = text(),
            "user" => self.user = text(),
            "cpus" => self.cpus = u32::try_from(number(1)).unwrap_or_default(),
            "memory" => self.memory = number(1024),
            "disk_free" => self.disk_free = number(1024),
            "shm_free" => self.shm_free = number(1024),
            "python" => {
                self.python = rest
                    .split_once(' ')
                    .map(|(version, path)| PythonFact { path: path.to_owned(), version: version.to_owned() });
            }
            // `uv 0.9.1 (…)`, `Docker version 29.1.3, build …`
            "uv" => self.uv = some().map(|line| line.split(' ').nth(1).unwrap_or(&line).to_owned()),
            "docker" => {
                self.docker =
                    some().map(|line| line.split(' ').nth(2).unwrap_or(&line).trim_end_matches(',').to_owned());
            }
            "gpu" => self.take_gpu(rest),
            "nvidia" => self.take_nvidia(rest),
            // A later version may say more.
            _ => {}
        }
    }

    fn take_gpu(&mut self, rest: &str) {
        let words: Vec<&str> = rest.split(' ').collect();
        let &[pci, vendor, device_id, driver] = words.as_slice() else {
            return;
        };
        let vendor = match vendor {
            "0x10de" => Vendor::Nvidia,
            "0x1002" => Vendor::Amd,
            _ => return,
        };
        self.gpus.push(GpuFact {
            pci: pci.to_owned(),
            vendor,
            device_id: device_id.to_owned(),
            driver: Some(driver.to_owned()).filter(|driver| driver != "-"),
            name: None,
            uuid: None,
        });
    }

    /// `00000000:C6:00.0, GPU-…, NVIDIA H100`: the domain has eight digits here and four in sysfs.
    fn take_nvidia(&mut self, rest: &str) {
        let mut fields = rest.splitn(3, ',').map(str::trim);
        let (Some(pci), Some(uuid), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            return;
        };
        let pci = pci.to_ascii_lowercase();
        let pci = if pci.len() > 12 { pci.get(pci.len() - 12..).unwrap_or(&pci) } else { &pci };
        if let Some(gpu) = self.gpus.iter_mut().find(|gpu| gpu.pci == pci) {
            gpu.uuid = Some(uuid.to_owned()).filter(|uuid| uuid.starts_with("GPU-"));
            gpu.name = Some(name.to_owned()).filter(|name| !name.starts_with('['));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_gpu_by_its_address() {
        let mut facts = Facts::default();
        facts.take("gpu", "0000:c6:00.0 0x10de 0x2330 nvidia");
        facts.take("gpu", "0000:c7:00.0 0x1002 0x74a1 -");
        facts.take("nvidia", "00000000:C6:00.0, GPU-5f1d0f3e, NVIDIA H100 80GB HBM3");
        facts.take("nvidia", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.");
        assert_eq!(facts.gpus[0].name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
        assert_eq!(facts.gpus[0].uuid.as_deref(), Some("GPU-5f1d0f3e"));
        assert_eq!((facts.gpus[1].vendor, &facts.gpus[1].driver, &facts.gpus[1].name), (Vendor::Amd, &None, &None));
    }

    #[test]
    fn versions_are_found_in_what_the_tools_print() {
        let mut facts = Facts::default();
        facts.take("python", "3.9.2 /usr/bin/python3");
        facts.take("docker", "Docker version 29.1.3, build abc");
        facts.take("uv", "uv 0.9.1 (abc 2025-10-01)");
        assert!(!facts.python.unwrap().fits_ray());
        assert_eq!((facts.docker.as_deref(), facts.uv.as_deref()), (Some("29.1.3"), Some("0.9.1")));
        assert!(PythonFact { path: String::new(), version: "3.13.1".to_owned() }.fits_ray());
        assert!(!PythonFact { path: String::new(), version: "3.14.0".to_owned() }.fits_ray());
    }
}
