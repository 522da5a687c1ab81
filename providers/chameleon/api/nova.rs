//! Nova and Glance: servers, flavors, key pairs, images.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::call::query;
use super::failure::Api;
use super::lenient;
use super::machine::{Flavor, Image, KeyPair, NewServer, Server};
use super::site::Site;
use crate::provider::kit::http::part;

const COMPUTE: &str = "compute";
const IMAGE: &str = "image";

/// The response to a request for a server.
#[derive(Deserialize)]
struct Made {
    #[serde(deserialize_with = "lenient::text")]
    id: String,
}

/// Nova wraps each key pair in an object.
#[derive(Deserialize)]
struct Wrapped {
    keypair: KeyPair,
}

impl Site {
    pub(crate) async fn servers(&self) -> Api<Vec<Server>> {
        self.list(COMPUTE, "/servers/detail", "servers", "list the servers").await
    }

    /// One server; `None` when it does not exist.
    pub(crate) async fn server(&self, id: &str) -> Api<Option<Server>> {
        self.one(COMPUTE, &format!("/servers/{}", part(id)), "server", &format!("read the server {id}")).await
    }

    /// Requests a server and returns its id. Its status shows whether it boots.
    pub(crate) async fn create_server(&self, new: &NewServer) -> Api<String> {
        let doing = format!("create the server {}", new.name);
        let made: Made = self.change(Method::POST, COMPUTE, "/servers", Some(new.body()), "server", &doing).await?;
        Ok(made.id)
    }

    /// Requests the deletion of a server. Idempotent.
    pub(crate) async fn delete_server(&self, id: &str) -> Api<()> {
        self.remove(COMPUTE, &format!("/servers/{}", part(id)), &format!("delete the server {id}")).await
    }

    /// The flavors that servers can have.
    pub(crate) async fn flavors(&self) -> Api<Vec<Flavor>> {
        self.list(COMPUTE, "/flavors/detail", "flavors", "list the flavors").await
    }

    /// The key pairs of our user.
    pub(crate) async fn key_pairs(&self) -> Api<Vec<KeyPair>> {
        let pairs: Vec<Wrapped> = self.list(COMPUTE, "/os-keypairs", "keypairs", "list the key pairs").await?;
        Ok(pairs.into_iter().map(|pair| pair.keypair).collect())
    }

    pub(crate) async fn create_key_pair(&self, name: &str, public_key: &str) -> Api<()> {
        let body = json!({ "keypair": { "name": name, "public_key": public_key } });
        let doing = format!("register the key pair {name}");
        self.change_blindly(Method::POST, COMPUTE, "/os-keypairs", Some(body), &doing).await
    }

    /// Deletes a key pair. Idempotent.
    pub(crate) async fn delete_key_pair(&self, name: &str) -> Api<()> {
        self.remove(COMPUTE, &format!("/os-keypairs/{}", part(name)), &format!("delete the key pair {name}")).await
    }

    /// The visible images of this name, including outdated ones.
    pub(crate) async fn images(&self, name: &str) -> Api<Vec<Image>> {
        let path = format!("/images?{}", query(&[("name", name)]));
        self.list(IMAGE, &path, "images", &format!("find the image {name}")).await
    }

    /// One image; `None` when it does not exist.
    pub(crate) async fn image(&self, id: &str) -> Api<Option<Image>> {
        self.one(IMAGE, &format!("/images/{}", part(id)), "", &format!("read the image {id}")).await
    }
}
