//! Environment variables of nodes: those that gpucl sets itself, and those that ask nothing of anybody.

/// Variables that gpucl sets itself, or that would undo what it sets.
const OUR_VARIABLES: &[&str] = &[
    "AUTOSCALER_METRIC_PORT",
    "CUDA_VISIBLE_DEVICES",
    "DASHBOARD_METRIC_PORT",
    "HIP_VISIBLE_DEVICES",
    "PATH",
    "RAY_ADDRESS",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
    "RAY_OVERRIDE_LABELS",
    "RAY_OVERRIDE_RESOURCES",
    "ROCR_VISIBLE_DEVICES",
    "SPT_NOENV",
    "TMPDIR",
    "VIRTUAL_ENV",
];
/// Prefixes of variables that gpucl sets itself.
const OUR_PREFIXES: &[&str] = &["GPUCL_", "RAY_AUTH_"];

/// Whether gpucl itself sets this variable of nodes.
pub(super) fn is_our_variable(name: &str) -> bool {
    OUR_VARIABLES.contains(&name) || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Variables that neither load a program nor name a server, of those that people set. Any other one may, on the reader's
/// own machine: `LD_PRELOAD`, `PYTHONPATH`, `RAY_JEMALLOC_LIB_PATH`, `NCCL_NET_PLUGIN`, `HF_ENDPOINT`.
const ORDINARY: &[&str] = &[
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "HF_DATASETS_OFFLINE",
    "HF_HUB_OFFLINE",
    "LANG",
    "LOG_LEVEL",
    "MKL_NUM_THREADS",
    "MLFLOW_EXPERIMENT_NAME",
    "NCCL_DEBUG",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONUNBUFFERED",
    "PYTORCH_CUDA_ALLOC_CONF",
    "RAY_DEDUP_LOGS",
    "RAY_memory_monitor_refresh_ms",
    "RAY_memory_usage_threshold",
    "TF_CPP_MIN_LOG_LEVEL",
    "TOKENIZERS_PARALLELISM",
    "TQDM_DISABLE",
    "TRANSFORMERS_OFFLINE",
    "TZ",
    "WANDB_MODE",
    "WANDB_NAME",
    "WANDB_PROJECT",
];

/// Whether a variable neither loads a program nor names a server.
pub(super) fn is_ordinary(name: &str) -> bool {
    ORDINARY.contains(&name)
}
