//! What one round trip learns of a host.

mod amd;
mod network;
mod nvidia;
mod take;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What a host is. What could not be learned is empty or 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
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
    /// Bytes that are free in `/var/lib`, where engines keep images.
    pub lib_free: u64,
    /// Bytes of shared memory that are free.
    pub shm_free: u64,
    /// The user that commands run as.
    pub user: String,
    /// The user that became root by `sudo`, where commands run as root by it.
    pub sudo_user: Option<String>,
    /// The Python that fits Ray best, or the one there is.
    pub python: Option<PythonFact>,
    /// The version of `uv`.
    pub uv: Option<String>,
    /// The GPUs on the PCI bus, with or without a driver.
    pub gpus: Vec<GpuFact>,
    /// The version of the `docker` command.
    pub docker: Option<String>,
    /// The version of the engine; none when it does not run, or does not answer us.
    pub docker_engine: Option<String>,
    /// The version of compose v2.
    pub compose: Option<String>,
    /// The names of running containers that carry no tag of gpucl's.
    pub strangers: Vec<String>,
    /// The files that tell engines of devices (CDI).
    pub cdi: Vec<String>,
    /// The version of the NVIDIA driver that is loaded.
    pub nvidia_loaded: Option<String>,
    /// The version of the NVIDIA module on the disk; another one than the loaded needs a reboot.
    pub nvidia_on_disk: Option<String>,
    /// What `nvidia-smi` said when it failed.
    pub nvidia_error: Option<String>,
    /// How many NVSwitches are on the bus; with any, the fabric manager must run.
    pub nvswitches: u32,
    /// Secure Boot is on: the kernel refuses modules that were built on the host.
    pub secure_boot: bool,
    /// The firewalls that are active: `firewalld`, `ufw`, `nftables`.
    pub firewalls: Vec<String>,
    /// The numbers of the groups `video` and `render`.
    pub groups: BTreeMap<String, u32>,
    /// How far cloud-init is: `running` or `done`; none where there is none.
    pub cloud_init: Option<String>,
    /// The distribution asks for a reboot.
    pub reboot_required: bool,
    /// Services are systemd's.
    pub systemd: bool,
    /// Its own IPv4 addresses, without the loopback's.
    pub addresses: Vec<Ipv4Addr>,
    /// Where it listens, by TCP.
    pub listening: Vec<SocketAddr>,
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
    /// NVIDIA: its UUID, as its driver's tool tells.
    pub uuid: Option<String>,
    /// Its memory in bytes, as its driver's tool tells.
    #[serde(default)]
    pub memory: Option<u64>,
    /// NVIDIA: whether it is cut into instances (MIG); none where it cannot be.
    #[serde(default)]
    pub mig: Option<bool>,
    /// The name of its render node: `renderD128`, of `/dev/dri/renderD128`.
    #[serde(default)]
    pub render: Option<String>,
    /// AMD: the id that its driver tells, in hexadecimal digits; not all cards have one.
    #[serde(default)]
    pub unique_id: Option<String>,
}

impl PythonFact {
    /// Whether Ray has packages for it.
    pub fn fits_ray(&self) -> bool {
        let mut numbers = self.version.split('.').map(str::parse::<u32>);
        matches!((numbers.next(), numbers.next()), (Some(Ok(3)), Some(Ok(10..=13))))
    }
}

impl Facts {
    /// Whether a GPU of this vendor is on the bus.
    pub fn has(&self, vendor: Vendor) -> bool {
        self.gpus.iter().any(|gpu| gpu.vendor == vendor)
    }

    /// Whether anything listens on this port, at whatever address.
    pub fn listens_on(&self, port: u16) -> bool {
        self.listening.iter().any(|address| address.port() == port)
    }

    /// Whether another driver is loaded than lies on the disk, so that only a reboot helps.
    pub fn nvidia_differs(&self) -> bool {
        matches!((&self.nvidia_loaded, &self.nvidia_on_disk), (Some(loaded), Some(disk)) if loaded != disk)
    }
}
