//! The facts about a host, collected in one round trip.

mod amd;
mod capacity;
mod network;
mod nvidia;
mod take;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

pub use capacity::{Capacity, Limit, LimitOf, RunAs, capacity_here};

/// The facts about a host. Unknown values are empty or 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The distribution's id: `ubuntu`.
    pub os: String,
    /// The distribution's version: `24.04`.
    pub os_version: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's architecture: `x86_64`.
    pub arch: String,
    /// The kernel's boot id; it changes with each boot.
    pub boot_id: String,
    /// Logical processors, without any limit.
    pub cpus: u32,
    /// Memory in bytes, without any limit.
    pub memory: u64,
    /// What limits these two.
    pub limits: Vec<Limit>,
    /// Free bytes on the file system of the host's folder.
    pub disk_free: u64,
    /// Free bytes in `/var/lib`, where engines keep images.
    pub lib_free: u64,
    /// Free bytes of shared memory, `/dev/shm`.
    pub shm_free: u64,
    /// All bytes of shared memory that `/dev/shm` can hold; 0 where there is none.
    pub shm_size: u64,
    /// The first Python that Ray supports, or else the first one found.
    pub python: Option<PythonFact>,
    /// The version of `uv`.
    pub uv: Option<String>,
    /// The GPUs on the PCI bus, with or without a driver.
    pub gpus: Vec<GpuFact>,
    /// The version of the `docker` command.
    pub docker: Option<String>,
    /// The version of the engine; `None` when it does not run or answer.
    pub docker_engine: Option<String>,
    /// The version of compose v2.
    pub compose: Option<String>,
    /// The names of running containers without a gpucl tag.
    pub strangers: Vec<String>,
    /// The files that describe devices to engines (CDI).
    pub cdi: Vec<String>,
    /// The version of the loaded NVIDIA driver.
    pub nvidia_loaded: Option<String>,
    /// The version of the NVIDIA module on the disk; if it differs from the loaded one, a reboot is needed.
    pub nvidia_on_disk: Option<String>,
    /// The error of a failed `nvidia-smi`.
    pub nvidia_error: Option<String>,
    /// How many NVSwitches are on the bus; if any, the fabric manager must run.
    pub nvswitches: u32,
    /// Secure Boot is on: the kernel rejects modules built on the host.
    pub secure_boot: bool,
    /// The active firewalls: `firewalld`, `ufw`, `nftables`.
    pub firewalls: Vec<String>,
    /// The group ids of `video` and `render`.
    pub groups: BTreeMap<String, u32>,
    /// The state of cloud-init: `running` or `done`; `None` without cloud-init.
    pub cloud_init: Option<String>,
    /// The distribution asks for a reboot.
    pub reboot_required: bool,
    /// The host runs systemd.
    pub systemd: bool,
    /// Its IPv4 addresses, without loopback.
    pub addresses: Vec<Ipv4Addr>,
    /// The TCP addresses and ports it listens on.
    pub listening: Vec<SocketAddr>,
}

/// A Python interpreter on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonFact {
    /// The interpreter's path.
    pub path: String,
    /// The version: `3.11.7`.
    pub version: String,
}

/// The vendor of a GPU.
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
    /// The PCI address: `0000:c6:00.0`.
    pub pci: String,
    /// The vendor.
    pub vendor: Vendor,
    /// The PCI device id: `0x2330`.
    pub device_id: String,
    /// The kernel driver bound to it.
    pub driver: Option<String>,
    /// The product name, from the driver's tool.
    pub name: Option<String>,
    /// NVIDIA: the UUID, from the driver's tool.
    pub uuid: Option<String>,
    /// The memory in bytes, from the driver's tool.
    #[serde(default)]
    pub memory: Option<u64>,
    /// NVIDIA: whether MIG is enabled; `None` where it is not supported.
    #[serde(default)]
    pub mig: Option<bool>,
    /// The name of its render node: `renderD128`, of `/dev/dri/renderD128`.
    #[serde(default)]
    pub render: Option<String>,
    /// AMD: the driver's unique id, in hexadecimal digits; not all cards have one.
    #[serde(default)]
    pub unique_id: Option<String>,
}

impl PythonFact {
    /// Whether Ray has packages for it: 3.10 to 3.13.
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

    /// Whether anything listens on this port, on any address.
    pub fn listens_on(&self, port: u16) -> bool {
        self.listening.iter().any(|address| address.port() == port)
    }

    /// Whether the loaded driver differs from the one on the disk, so that only a reboot helps.
    pub fn nvidia_differs(&self) -> bool {
        matches!((&self.nvidia_loaded, &self.nvidia_on_disk), (Some(loaded), Some(disk)) if loaded != disk)
    }
}
