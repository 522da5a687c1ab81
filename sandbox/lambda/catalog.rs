//! Regions, types with their prices, and images: Lambda's as observed in 2026.

use std::collections::BTreeMap;
use std::time::Duration;

/// A region of the stand-in.
#[derive(Debug, Clone)]
pub struct RegionConfig {
    /// Name: `us-west-1`.
    pub name: String,
    /// Location: `California, USA`.
    pub description: String,
    /// Whether the region supports firewall rules and rulesets.
    pub firewall: bool,
}

/// An instance type of the stand-in.
#[derive(Debug, Clone)]
pub struct TypeConfig {
    /// Name: `gpu_1x_a10`.
    pub name: String,
    /// GPU model: `A10 (24 GB PCIe)`.
    pub gpu: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Price in US cents per hour.
    pub cents: u32,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Memory in GiB.
    pub memory_gib: u32,
    /// Disk in GiB.
    pub storage_gib: u32,
    /// Whether the CPU is ARM64.
    pub arm: bool,
    /// Boot time of this type; `None` for [`Config::boot`](super::Config::boot).
    pub boot: Option<Duration>,
}

/// An image of the stand-in.
#[derive(Debug, Clone)]
pub struct ImageConfig {
    /// Family: `lambda-stack-24-04`.
    pub family: String,
    /// Description: `Lambda Stack 24.04`.
    pub description: String,
    /// Version: `24.4.4`.
    pub version: String,
    /// Whether the image is for ARM64.
    pub arm: bool,
}

const REGIONS: &[(&str, &str, bool)] = &[
    ("us-east-1", "Virginia, USA", true),
    ("us-west-1", "California, USA", true),
    ("us-west-2", "Arizona, USA", true),
    ("us-south-1", "Texas, USA", false),
    ("us-south-2", "North Texas, USA", true),
    ("us-midwest-1", "Illinois, USA", true),
    ("europe-central-1", "Germany", true),
    ("asia-northeast-1", "Osaka, Japan", true),
];

/// Name, GPU, number of GPUs, price in cents per hour, vCPUs, memory and disk in GiB.
type Row = (&'static str, &'static str, u32, u32, u32, u32, u32);

const TYPES: &[Row] = &[
    ("cpu_4x_general", "N/A", 0, 20, 4, 16, 512),
    ("gpu_1x_rtx6000", "RTX 6000 (24 GB)", 1, 69, 14, 46, 512),
    ("gpu_1x_a6000", "A6000 (48 GB)", 1, 109, 14, 100, 200),
    ("gpu_2x_a6000", "A6000 (48 GB)", 2, 218, 28, 200, 1024),
    ("gpu_4x_a6000", "A6000 (48 GB)", 4, 436, 56, 400, 1024),
    ("gpu_1x_a10", "A10 (24 GB PCIe)", 1, 129, 30, 200, 1434),
    ("gpu_1x_a100_sxm4", "A100 (40 GB SXM4)", 1, 199, 30, 200, 512),
    ("gpu_8x_a100", "A100 (40 GB SXM4)", 8, 1592, 124, 1800, 6144),
    ("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 8, 2232, 240, 1800, 19456),
    ("gpu_8x_v100", "Tesla V100 (16 GB)", 8, 632, 92, 448, 6041),
    ("gpu_1x_gh200", "GH200 (96 GB)", 1, 229, 64, 432, 4096),
    ("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 1, 329, 26, 200, 1024),
    ("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 1, 429, 26, 225, 2816),
    ("gpu_2x_h100_sxm5", "H100 (80 GB SXM5)", 2, 838, 52, 450, 5632),
    ("gpu_4x_h100_sxm5", "H100 (80 GB SXM5)", 4, 1636, 104, 900, 11264),
    ("gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 8, 3192, 208, 1800, 22528),
    ("gpu_1x_b200_sxm6", "B200 (180 GB SXM6)", 1, 699, 26, 360, 2816),
    ("gpu_8x_b200_sxm6", "B200 (180 GB SXM6)", 8, 5352, 208, 2880, 22528),
];

const CAPACITY: &[(&str, &str, u32)] = &[
    ("cpu_4x_general", "us-east-1", 8),
    ("gpu_1x_a10", "us-east-1", 8),
    ("gpu_1x_a10", "us-west-1", 4),
    ("gpu_1x_a100_sxm4", "us-south-1", 4),
    ("gpu_1x_gh200", "us-east-1", 2),
    ("gpu_1x_h100_pcie", "us-west-1", 2),
    ("gpu_8x_a100", "europe-central-1", 2),
    ("gpu_8x_h100_sxm5", "us-south-2", 1),
];

/// Observed: eight GPUs take ten minutes and more, one about four.
const BIG_BOOT: Duration = Duration::from_secs(720);

pub(super) fn regions() -> Vec<RegionConfig> {
    let made = |(name, description, firewall): &(&str, &str, bool)| RegionConfig {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
        firewall: *firewall,
    };
    REGIONS.iter().map(made).collect()
}

pub(super) fn types() -> Vec<TypeConfig> {
    let made = |(name, gpu, gpus, cents, vcpus, memory_gib, storage_gib): &Row| TypeConfig {
        name: (*name).to_owned(),
        gpu: (*gpu).to_owned(),
        gpus: *gpus,
        cents: *cents,
        vcpus: *vcpus,
        memory_gib: *memory_gib,
        storage_gib: *storage_gib,
        arm: name.contains("gh200"),
        boot: (*gpus >= 8).then_some(BIG_BOOT),
    };
    TYPES.iter().map(made).collect()
}

pub(super) fn images() -> Vec<ImageConfig> {
    [
        ("lambda-stack-22-04", "Lambda Stack 22.04", "22.4.5", false),
        ("lambda-stack-24-04", "Lambda Stack 24.04", "24.4.4", false),
        ("lambda-stack-24-04", "Lambda Stack 24.04", "24.4.4", true),
        ("ubuntu-lts", "Ubuntu LTS", "24.04.1", false),
    ]
    .map(|(family, description, version, arm)| ImageConfig {
        family: family.to_owned(),
        description: description.to_owned(),
        version: version.to_owned(),
        arm,
    })
    .to_vec()
}

pub(super) fn capacity() -> BTreeMap<(String, String), u32> {
    CAPACITY.iter().map(|(kind, region, count)| (((*kind).to_owned(), (*region).to_owned()), *count)).collect()
}
