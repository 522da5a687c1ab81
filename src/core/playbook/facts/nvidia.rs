//! Parses the output of NVIDIA's tools and modules.

use super::{Facts, GpuFact};

/// One line of `nvidia-smi --query-gpu=pci.bus_id,uuid,name,memory.total,driver_version[,mig.mode.current]`, without
/// units: `00000000:C6:00.0, GPU-…, NVIDIA H100 80GB HBM3, 81559, 580.95.05, Disabled`. A failure is printed as a
/// sentence instead.
pub(super) fn take(facts: &mut Facts, line: &str) {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [bus, uuid, name, rest @ ..] = fields.as_slice() else {
        return;
    };
    let pci = address(bus);
    let loaded = rest.get(1).and_then(|version_field| version(version_field));
    let Some(gpu) = facts.gpus.iter_mut().find(|gpu| gpu.pci == pci) else {
        return;
    };
    // Any value may be `[N/A]`, `[Unknown Error]` or another word in brackets.
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty() && !text.starts_with('['));
    gpu.uuid = known(uuid).filter(|uuid| uuid.starts_with("GPU-"));
    gpu.name = known(name);
    gpu.memory = rest.first().and_then(|memory| memory.parse::<u64>().ok()).map(|mib| mib << 20);
    gpu.mig = rest.get(2).and_then(|mode| mig(mode));
    if facts.nvidia_loaded.is_none() {
        facts.nvidia_loaded = loaded;
    }
}

fn mig(mode: &str) -> Option<bool> {
    match mode {
        "Enabled" => Some(true),
        "Disabled" => Some(false),
        _ => None,
    }
}

/// The address in sysfs form: a domain of four digits instead of the tool's eight, in lower case.
fn address(bus: &str) -> String {
    let bus = bus.to_ascii_lowercase();
    match bus.len().checked_sub(12) {
        Some(more) => bus.get(more..).unwrap_or(&bus).to_owned(),
        None => bus,
    }
}

/// The first word that is a version: two or three numbers separated by dots.
pub(super) fn version(line: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        (2..=3).contains(&parts.len()) && parts.iter().all(|part| part.parse::<u32>().is_ok())
    };
    line.split_whitespace().find(is_version).map(str::to_owned)
}

/// `EXITCODE TEXT`: without a text, the meaning of the exit code.
pub(super) fn failure(rest: &str) -> String {
    let (code, text) = rest.split_once(' ').unwrap_or((rest, ""));
    if !text.trim().is_empty() {
        return text.trim().to_owned();
    }
    let meaning = match code {
        "6" => "no devices were found",
        "9" => "the driver is not loaded",
        "12" => "libnvidia-ml.so is missing",
        "15" => "a GPU has fallen off the bus",
        "18" => "driver and library versions differ",
        "124" => "it did not answer within 20 seconds",
        _ => return format!("it ended with exit code {code}"),
    };
    meaning.to_owned()
}

impl GpuFact {
    /// NVIDIA: whether the open kernel modules can drive it (Turing and newer), by its device id; `None` for a GPU
    /// too old for any driver that is still packaged.
    pub fn open_modules(&self) -> Option<bool> {
        let id = u32::from_str_radix(self.device_id.trim_start_matches("0x"), 16).ok()?;
        // Kepler and older end below 0x1340; Maxwell, Pascal and Volta below Turing's 0x1e00.
        match id {
            0..0x1340 => None,
            0x1340..0x1e00 => Some(false),
            _ => Some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playbook::Vendor;

    fn host(gpus: &[&str]) -> Facts {
        let mut facts = Facts::default();
        for pci in gpus {
            facts.take("gpu", &format!("{pci} 0x10de 0x2330 nvidia - -"));
        }
        facts
    }

    #[test]
    fn every_field_finds_its_gpu_by_the_address() {
        let mut facts = host(&["0000:c6:00.0", "0000:00:1e.0", "10de:01:00.0"]);
        facts.take("gpu", "0000:c7:00.0 0x1002 0x74a1 -");
        facts.take("nvidia", "00000000:C6:00.0, GPU-5f1d0f3e, NVIDIA H100 80GB HBM3, 81559, 580.95.05, Enabled");
        facts.take("nvidia", "00000000:00:1E.0, GPU-d37e67a5, Tesla T4, 15360, 515.105.01, [N/A]");
        facts.take("nvidia", "000010DE:01:00.0, GPU-37037c3f, NVIDIA RTX 4000 SFF Ada Generation, 20475, 595.84");
        let found: Vec<_> = facts.gpus.iter().map(|gpu| (gpu.name.as_deref(), gpu.memory, gpu.mig)).collect();
        assert_eq!(
            found,
            [
                (Some("NVIDIA H100 80GB HBM3"), Some(81559 << 20), Some(true)),
                (Some("Tesla T4"), Some(15360 << 20), None),
                (Some("NVIDIA RTX 4000 SFF Ada Generation"), Some(20475 << 20), None),
                (None, None, None)
            ]
        );
        assert_eq!(facts.gpus[0].uuid.as_deref(), Some("GPU-5f1d0f3e"));
        assert_eq!(facts.nvidia_loaded.as_deref(), Some("580.95.05"));
        assert!(facts.has(Vendor::Amd));
    }

    #[test]
    fn errors_on_stdout_are_not_gpus() {
        let mut facts = host(&["0000:c6:00.0"]);
        for line in [
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
            "Failed to initialize NVML: Driver/library version mismatch",
            "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error",
            "No devices were found",
            "00000000:C6:00.0, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [N/A]",
        ] {
            facts.take("nvidia", line);
        }
        assert_eq!((&facts.gpus[0].uuid, &facts.gpus[0].name, &facts.nvidia_loaded), (&None, &None, &None));
        facts.take("nvidia_error", "18 Failed to initialize NVML: Driver/library version mismatch");
        assert!(facts.nvidia_error.as_deref().unwrap().ends_with("version mismatch"));
        facts.take("nvidia_error", "124 ");
        assert!(facts.nvidia_error.unwrap().contains("20 seconds"));
    }

    #[test]
    fn the_loaded_version_is_found_in_every_form_of_the_line() {
        for (line, is) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024", "535.183.01"),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)",
                "580.65.06",
            ),
            ("595.84", "595.84"),
        ] {
            assert_eq!(version(line).as_deref(), Some(is));
        }
        assert_eq!(version(""), None);
    }

    #[test]
    fn the_device_id_decides_which_modules_drive_a_gpu() {
        let gpu = |id: &str| {
            let mut facts = Facts::default();
            facts.take("gpu", &format!("0000:01:00.0 0x10de {id} -"));
            facts.gpus.remove(0).open_modules()
        };
        // K80, GTX 970, P100, V100, T4, A100, H100, B200.
        let ids = ["0x102d", "0x13c2", "0x15f8", "0x1db4", "0x1eb8", "0x20b0", "0x2330", "0x2901"];
        let open = [None, Some(false), Some(false), Some(false), Some(true), Some(true), Some(true), Some(true)];
        assert_eq!(ids.map(gpu), open);
    }
}
