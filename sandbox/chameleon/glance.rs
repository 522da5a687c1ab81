//! Glance v2: images.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::answer::{Answer, Ask};
use super::super::clock::after;
use super::config::ImageConfig;
use super::format::{uuid_of, zulu};
use super::state::State;

/// Time between the creation of two images.
const BETWEEN: Duration = Duration::from_secs(60);

impl State {
    pub(super) fn image(&mut self, ask: &Ask, known: bool) -> Answer {
        if !known {
            // Glance words this differently from the other services.
            return Answer::json(
                401,
                json!({"message": "This server could not verify that you are authorized to access the document you requested. Either you \
                    supplied the wrong credentials (e.g., bad password), or your browser does not understand how to supply the \
                    credentials required.<br /><br />\n\n\n", "code": "401 Unauthorized", "title": "Unauthorized"}),
            )
            .with("www-authenticate", format!("Keystone uri=\"{}/identity/v3\"", self.base));
        }
        let (method, path) = ask.route();
        match (method, &path[..]) {
            ("GET", ["v2", "images"]) => {
                let is_meant = |image: &Value| {
                    ["name", "status", "visibility", "id", "owner"].iter().all(|key| match ask.query(key) {
                        None => true,
                        Some("all") if *key == "visibility" => true,
                        Some(asked) => match asked.strip_prefix("in:") {
                            Some(list) => list.split(',').any(|part| image[key] == part.trim_matches('"')),
                            None => image[key] == asked,
                        },
                    })
                };
                let mut images: Vec<Value> = (0..self.config.images.len()).map(|at| self.render_image(at)).collect();
                images.retain(is_meant);
                // Newest first.
                images.reverse();
                let first = if ask.uri.contains('?') { ask.uri.clone() } else { "/v2/images".to_owned() };
                Answer::json(200, json!({"images": images, "first": first, "schema": "/v2/schemas/images"}))
            }
            ("GET", ["v2", "images", id]) => {
                let at = (0..self.config.images.len()).find(|at| self.image_id(*at) == *id);
                match at {
                    Some(at) => Answer::json(200, self.render_image(at)),
                    None => Answer::json(
                        404,
                        json!({"message": format!("No image found with ID {id}<br /><br />\n\n\n"), "code": "404 Not Found",
                            "title": "Not Found"}),
                    ),
                }
            }
            _ => Answer::text(404, "text/html; charset=UTF-8", "<html><body><h1>404 Not Found</h1></body></html>"),
        }
    }

    /// Id of the image at this index, from index and name.
    fn image_id(&self, at: usize) -> String {
        let name = self.config.images.get(at).map(|image| image.name.as_str()).unwrap_or_default();
        uuid_of(&format!("image {at} {name}"))
    }

    /// Whether a server can boot from an image.
    pub(super) fn has_image(&self, id: &str) -> bool {
        self.config.images.iter().enumerate().any(|(at, image)| image.status == "active" && self.image_id(at) == id)
    }

    fn render_image(&self, at: usize) -> Value {
        let Some(ImageConfig { name, status, visibility }) = self.config.images.get(at) else { return Value::Null };
        let id = self.image_id(at);
        let before = u32::try_from(self.config.images.len() - at).unwrap_or(1);
        let made = zulu(after(self.started - BETWEEN * before, Duration::ZERO));
        json!({"name": name, "disk_format": "raw", "container_format": "bare", "visibility": visibility, "size": 1024,
            "virtual_size": 1024, "status": status, "checksum": "0f343b0931126a20f133d67c2b018a3b", "protected": false,
            "min_ram": 0, "min_disk": 0, "owner": Self::project_id("admin"), "os_hidden": false, "os_hash_algo": "sha512",
            "os_hash_value": "8efb4f73c5655351c444eb109230c556d39e2c7624e9c11abc9e3fb4b9b9254218cc5085b454a9698d085cfa92198491f07a723be4574adc70617b73eb0b6461",
            "id": id, "created_at": made, "updated_at": made, "tags": [], "self": format!("/v2/images/{id}"),
            "file": format!("/v2/images/{id}/file"), "schema": "/v2/schemas/image", "stores": "file"})
    }
}
