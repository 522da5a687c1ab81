//! Neutron: networks, ports, floating IPs.

use reqwest::Method;
use serde_json::json;

use super::call::query;
use super::failure::Api;
use super::machine::{FloatingIp, Network, Port};
use super::site::Site;
use crate::provider::kit::http::part;

const SERVICE: &str = "network";

impl Site {
    /// The usable networks of this name.
    pub(crate) async fn networks(&self, name: &str) -> Api<Vec<Network>> {
        let path = format!("/networks?{}", query(&[("name", name)]));
        self.list(SERVICE, &path, "networks", &format!("find the network {name}")).await
    }

    pub(crate) async fn ports(&self, device_id: &str) -> Api<Vec<Port>> {
        let path = format!("/ports?{}", query(&[("device_id", device_id)]));
        self.list(SERVICE, &path, "ports", &format!("list the ports of {device_id}")).await
    }

    pub(crate) async fn floating_ips(&self) -> Api<Vec<FloatingIp>> {
        self.list(SERVICE, "/floatingips", "floatingips", "list the floating IPs").await
    }

    /// Allocates a floating IP of this network, with its description set by the same call.
    pub(crate) async fn create_floating_ip(&self, network_id: &str, description: &str) -> Api<FloatingIp> {
        let body = json!({ "floatingip": { "floating_network_id": network_id, "description": description } });
        self.change(Method::POST, SERVICE, "/floatingips", Some(body), "floatingip", "allocate a floating IP").await
    }

    /// Attaches a floating IP to a port, or detaches it.
    pub(crate) async fn associate(&self, id: &str, port_id: Option<&str>) -> Api<FloatingIp> {
        let body = json!({ "floatingip": { "port_id": port_id } });
        let path = format!("/floatingips/{}", part(id));
        self.change(Method::PUT, SERVICE, &path, Some(body), "floatingip", &format!("attach the floating IP {id}"))
            .await
    }

    pub(crate) async fn tag_floating_ip(&self, id: &str, tags: &[String]) -> Api<()> {
        let path = format!("/floatingips/{}/tags", part(id));
        let body = json!({ "tags": tags });
        self.change_blindly(Method::PUT, SERVICE, &path, Some(body), &format!("mark the floating IP {id}")).await
    }

    /// Releases a floating IP. Idempotent.
    pub(crate) async fn delete_floating_ip(&self, id: &str) -> Api<()> {
        self.remove(SERVICE, &format!("/floatingips/{}", part(id)), &format!("release the floating IP {id}")).await
    }
}
