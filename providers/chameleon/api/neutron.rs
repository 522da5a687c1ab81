//! Neutron: networks, ports, floating addresses.

use reqwest::Method;
use serde_json::json;

use super::call::query;
use super::failure::Api;
use super::machine::{FloatingIp, Network, Port};
use super::site::Site;
use crate::provider::http::part;

const SERVICE: &str = "network";

impl Site {
    /// The networks of this name that we may use.
    pub(crate) async fn networks(&self, name: &str) -> Api<Vec<Network>> {
        let path = format!("/networks?{}", query(&[("name", name)]));
        self.list(SERVICE, &path, "networks", &format!("find the network {name}")).await
    }

    /// The ports of a server.
    pub(crate) async fn ports(&self, device_id: &str) -> Api<Vec<Port>> {
        let path = format!("/ports?{}", query(&[("device_id", device_id)]));
        self.list(SERVICE, &path, "ports", &format!("list the ports of {device_id}")).await
    }

    /// The floating addresses of the project.
    pub(crate) async fn floating_ips(&self) -> Api<Vec<FloatingIp>> {
        self.list(SERVICE, "/floatingips", "floatingips", "list the floating addresses").await
    }

    /// Takes a floating address of this network, marked from its first moment.
    pub(crate) async fn create_floating_ip(&self, network_id: &str, description: &str) -> Api<FloatingIp> {
        let body = json!({ "floatingip": { "floating_network_id": network_id, "description": description } });
        self.change(Method::POST, SERVICE, "/floatingips", Some(body), "floatingip", "take a floating address").await
    }

    /// Makes a floating address lead to a port, or to none.
    pub(crate) async fn associate(&self, id: &str, port_id: Option<&str>) -> Api<FloatingIp> {
        let body = json!({ "floatingip": { "port_id": port_id } });
        let path = format!("/floatingips/{}", part(id));
        self.change(
            Method::PUT,
            SERVICE,
            &path,
            Some(body),
            "floatingip",
            &format!("connect the floating address {id}"),
        )
        .await
    }

    /// Writes this beside a floating address, in the place of what was written there before.
    pub(crate) async fn tag_floating_ip(&self, id: &str, tags: &[String]) -> Api<()> {
        let path = format!("/floatingips/{}/tags", part(id));
        let body = json!({ "tags": tags });
        self.change_blindly(Method::PUT, SERVICE, &path, Some(body), &format!("mark the floating address {id}")).await
    }

    /// Gives a floating address back; what is gone is success.
    pub(crate) async fn delete_floating_ip(&self, id: &str) -> Api<()> {
        self.remove(SERVICE, &format!("/floatingips/{}", part(id)), &format!("give the floating address {id} back"))
            .await
    }
}
