//! The provider `kubernetes` on a real Kubernetes with KubeRay (`testbed/kube`).

mod contract;
mod crash;
mod ending;
mod losses;
mod manifests;
mod monitoring;
mod preparation;
mod secrets;
mod site;
mod testbed;
mod trouble;
mod whole;
