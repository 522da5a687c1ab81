//! The provider `kubernetes` on a real Kubernetes with KubeRay (`testbed/kube`).

mod contract;
mod crash;
mod losses;
mod manifests;
mod preparation;
mod site;
mod testbed;
mod trouble;
mod whole;
