//! The provider `kubernetes` on a real Kubernetes with KubeRay (`testbed/kube`).

mod contract;
mod testbed;
mod trouble;
mod whole;
