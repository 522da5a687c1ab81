//! The images of a host: the pinned ones, the spec's replacements, and those built on the host.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::playbook::{Facts, Vendor};
use crate::render::{Library, render};
use crate::runtime::project::setup;
use crate::spec::{MLFLOW_VERSION, SetupSpec, Spec};
use crate::util::digest;

/// The file with the pinned images.
const FILE: &str = "templates/ray-compose/images.yaml";

/// An image to build on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The name, with the digest of its Dockerfile and arguments as the tag.
    pub image: String,
    /// The name shown to the user, which is its template's.
    pub title: String,
    /// The Dockerfile's text.
    pub dockerfile: String,
    /// The build arguments.
    pub arguments: BTreeMap<String, String>,
    /// The other files of its folder, by their names.
    pub files: BTreeMap<String, String>,
}

/// The images of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostImages {
    /// The image of the Ray nodes.
    pub ray: String,
    /// The image of Jupyter; empty without Jupyter on this host.
    pub jupyter: String,
    /// The image of the object store.
    pub store: String,
    /// The image of Prometheus.
    pub prometheus: String,
    /// The image of the node exporter.
    pub node_exporter: String,
    /// The image of Grafana.
    pub grafana: String,
    /// The image of MLflow.
    pub mlflow: String,
    /// The images to build on the host, in this order.
    pub builds: Vec<Build>,
    /// The images to pull.
    pub pulls: Vec<String>,
}

impl HostImages {
    /// Whether this image is built on the host, so that it must not be pulled.
    pub fn is_built(&self, image: &str) -> bool {
        self.builds.iter().any(|build| build.image == image)
    }
}

/// Chooses the images of a host; `is_head` is true for the head's host, which runs the services.
pub fn host_images(spec: &Spec, facts: &Facts, is_head: bool, library: &Library) -> Result<HostImages> {
    let names = names(spec, library)?;
    let doing = || Error::new(ErrorKind::Spec, "choose the images");
    let pinned =
        |name: &str| names.get(name).cloned().ok_or_else(|| doing().because(format!("{FILE} has no image `{name}`")));
    let mut pulls = Vec::new();
    let pip_index = spec.build.as_ref().and_then(|build| build.pip_index_url.clone());
    let mut builds = Builds { all: Vec::new(), library, pip_index };
    let (nvidia, amd) = (facts.has(Vendor::Nvidia), facts.has(Vendor::Amd));
    let ray = match (nvidia, amd, names.get("ray_rocm")) {
        (true, true, _) => {
            return Err(doing()
                .because("a host has NVIDIA and AMD GPUs, and no image has the libraries for both")
                .hint("use hosts with GPUs of a single vendor"));
        }
        (true, false, _) => pinned("ray_gpu")?,
        (false, true, Some(image)) => image.clone(),
        (false, true, None) => {
            let base = pinned("ray_rocm_base")?;
            pulls.push(base.clone());
            builds.plain("ray-rocm", &base, Some(&spec.ray.version))?
        }
        (false, false, _) => pinned("ray")?,
    };
    pulls.push(ray.clone());
    let ray = match spec.setup() {
        Some(setup) => builds.setup("ray-setup", &ray, &setup)?,
        None => ray,
    };
    let services = spec.services();
    let mut images = HostImages {
        jupyter: String::new(),
        store: pinned("minio")?,
        prometheus: pinned("prometheus")?,
        node_exporter: pinned("node_exporter")?,
        grafana: pinned("grafana")?,
        mlflow: pinned("mlflow")?,
        ray,
        builds: Vec::new(),
        pulls: Vec::new(),
    };
    if is_head && services.jupyter.settings().is_some() {
        images.jupyter = match names.get("jupyter") {
            Some(image) => {
                pulls.push(image.clone());
                match spec.setup() {
                    Some(setup) => builds.setup("jupyter-setup", image, &setup)?,
                    None => image.clone(),
                }
            }
            None => builds.plain("jupyter-ray", &images.ray, None)?,
        };
    }
    if let Some(store) = services.object_store.settings() {
        images.store = store.image.unwrap_or(images.store);
        if is_head && store.external.is_none() {
            pulls.push(images.store.clone());
        }
    }
    if services.prometheus.settings().is_some() {
        pulls.push(images.node_exporter.clone());
        if is_head {
            pulls.push(images.prometheus.clone());
        }
    }
    if is_head && services.has_grafana() {
        pulls.push(images.grafana.clone());
    }
    if is_head && spec.own_mlflow() {
        pulls.push(images.mlflow.clone());
    }
    images.builds = builds.all;
    pulls.sort();
    pulls.dedup();
    // Built images are in no registry.
    images.pulls = pulls.into_iter().filter(|image| !images.is_built(image)).collect();
    Ok(images)
}

/// The images to build on a host.
struct Builds<'a> {
    all: Vec<Build>,
    library: &'a Library,
    /// The package index of the spec's `build`.
    pip_index: Option<String>,
}

impl Builds<'_> {
    /// Adds an image that needs only its Dockerfile; returns its name.
    fn plain(&mut self, template: &str, base: &str, version: Option<&str>) -> Result<String> {
        let (dockerfile, _) = self.library.read_text(&format!("templates/{template}/Dockerfile"))?;
        let mut arguments = BTreeMap::from([("BASE".to_owned(), base.to_owned())]);
        arguments.extend(version.map(|version| ("RAY_VERSION".to_owned(), version.to_owned())));
        let image =
            format!("gpucl/{template}:{}", digest::of_json(&(&dockerfile, arguments.iter().collect::<Vec<_>>())));
        // The source of packages does not change the image.
        arguments.extend(self.pip_index.clone().map(|url| ("PIP_INDEX_URL".to_owned(), url)));
        let (title, files) = (template.to_owned(), BTreeMap::new());
        self.all.push(Build { image: image.clone(), title, dockerfile, arguments, files });
        Ok(image)
    }

    /// Adds an image with the spec's `setup` in it; returns its name.
    fn setup(&mut self, title: &str, base: &str, setup: &SetupSpec) -> Result<String> {
        let (dockerfile, _) = self.library.read_text("templates/ray-setup/Dockerfile")?;
        let image = format!("gpucl/{title}:{}", digest::of_json(&(&dockerfile, base, setup.digest())));
        let mut arguments = BTreeMap::from([("BASE".to_owned(), base.to_owned())]);
        let index = setup.index_url.clone().or_else(|| self.pip_index.clone());
        arguments.extend(index.map(|url| ("PIP_INDEX_URL".to_owned(), url)));
        let files = BTreeMap::from([
            ("requirements.txt".to_owned(), setup::requirements(setup)),
            ("commands.sh".to_owned(), setup::commands(setup)),
        ]);
        self.all.push(Build { image: image.clone(), title: title.to_owned(), dockerfile, arguments, files });
        Ok(image)
    }
}

/// All images by name: the built-in ones, overridden by the data folders', overridden by the spec's.
fn names(spec: &Spec, library: &Library) -> Result<BTreeMap<String, String>> {
    let mut names = read(spec, &Library::default())?;
    names.extend(read(spec, library)?);
    names.extend(spec.images.clone());
    Ok(names)
}

fn read(spec: &Spec, library: &Library) -> Result<BTreeMap<String, String>> {
    let (text, origin) = library.read_text(FILE)?;
    let variables = BTreeMap::from([("ray_version", spec.ray.version.as_str()), ("mlflow_version", MLFLOW_VERSION)]);
    let text = render(&origin.to_string(), &text, &variables)?;
    serde_yaml::from_str(&text)
        .map_err(|error| Error::new(ErrorKind::Spec, format!("read the images in {origin}")).because(error))
}
