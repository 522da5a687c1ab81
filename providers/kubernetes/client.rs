//! The API server of a Kubernetes cluster: which one, as whom, and calls to it.

use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectList, Patch, PatchParams,
};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::config::Settings;
use super::kubeconfig;
use super::names::{MONITORING_GROUP, ObjectKind};
use super::refusal;
use crate::error::{Doing as _, Error, ErrorKind, Result, Status};
use crate::provider::UserEnvironment;

/// The timeout for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The timeout of a call's answer.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// The longest pause before a call is sent again. An API server that is started again is away for some seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a call is sent again.
const RETRIES: usize = 8;
/// Who owns the fields that gpucl sets, as the API server records it.
pub(super) const MANAGER: &str = "gpucl";
/// Who owns the fields of [`KubeContext::merge`]: an apply by [`MANAGER`] leaves them.
const MERGER: &str = "gpucl-jobs";

/// The place of clusters: an API server, a user and a namespace.
pub(super) struct KubeContext {
    /// The client of the API server.
    pub(super) client: Client,
    /// The address of the API server.
    pub(super) server: String,
    /// The context of the kubeconfig; `in-cluster` in a pod.
    pub(super) context: String,
    /// The user's name in the kubeconfig; empty in a pod.
    pub(super) user: String,
    pub(super) namespace: String,
}

/// Opens the place of some settings, once.
pub(super) struct Connector {
    settings: Settings,
    environment: UserEnvironment,
    place: OnceCell<KubeContext>,
}

impl Connector {
    /// Creates a connector; nothing is read yet.
    pub(super) fn new(settings: Settings, environment: UserEnvironment) -> Self {
        Self { settings, environment, place: OnceCell::new() }
    }

    /// The place, opened at the first call.
    pub(super) async fn place(&self) -> Result<&KubeContext> {
        self.place.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<KubeContext> {
        let doing = "read the kubeconfig";
        let files = self.files()?;
        let Some(kubeconfig) = kubeconfig::read_files(&files)? else {
            return self.open_in_cluster(&files).await;
        };
        let options = KubeConfigOptions { context: self.settings.context.clone(), ..KubeConfigOptions::default() };
        let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        let context = options.context.clone().or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
        if !known.contains(&context) {
            let cause = match context.is_empty() {
                true => "it has no current context".to_owned(),
                false => format!("it has no context `{context}`"),
            };
            return Err(Error::new(ErrorKind::Spec, doing).because(cause).hint(format!(
                "`provider: {{name: kubernetes, context: NAME}}`; there are: {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )));
        }
        let user =
            kubeconfig.contexts.iter().find(|named| named.name == context).and_then(|named| named.context.as_ref());
        let user = user.and_then(|context| context.user.clone()).unwrap_or_default();
        let login = kubeconfig.auth_infos.iter().find(|named| named.name == user);
        let login = login.and_then(|named| named.auth_info.as_ref()?.exec.as_ref()?.command.clone());
        kubeconfig::check(&kubeconfig, &context)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| refusal::of_config(&format!("open the context `{context}` of the kubeconfig"), &error))?;
        config.auth_info.exec.iter_mut().for_each(kubeconfig::away_from_here);
        self.opened(config, context, user).map_err(|error| match login {
            Some(program) => error.because(format!("the user of the kubeconfig logs in by the program `{program}`")),
            None => error,
        })
    }

    async fn open_in_cluster(&self, files: &[PathBuf]) -> Result<KubeContext> {
        let named: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let none = || {
            Error::new(ErrorKind::Spec, "find a Kubernetes cluster")
                .because(format!("there is no kubeconfig: {}", named.join(", ")))
                .hint("your cluster's provider says how to get one; name it with `provider: {kubeconfig: …}` or KUBECONFIG")
        };
        if self.environment.variable("KUBERNETES_SERVICE_HOST").is_none() || self.settings.context.is_some() {
            return Err(none());
        }
        let config = Config::incluster().map_err(|error| none().caused_by(&error))?;
        self.opened(config, "in-cluster".to_owned(), String::new())
    }

    fn opened(&self, mut config: Config, context: String, user: String) -> Result<KubeContext> {
        config.connect_timeout = Some(CONNECT_LIMIT);
        // A watched log or a forwarded port may be silent for hours; calls have a limit of their own.
        config.read_timeout = None;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = self.settings.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config)
            .map_err(|error| refusal::of_call(&format!("open the context `{context}`"), &error))?;
        Ok(KubeContext { client, server, context, user, namespace })
    }

    /// The kubeconfigs, in the order in which they are merged.
    fn files(&self) -> Result<Vec<PathBuf>> {
        if let Some(file) = &self.settings.kubeconfig {
            // A state of an older version may hold it as it was written.
            let file = match file.strip_prefix("~") {
                Ok(rest) => self.environment.home.join(rest),
                Err(_) => file.clone(),
            };
            if file.is_relative() {
                return Err(Error::new(ErrorKind::State, "read the kubeconfig")
                    .because(format!("{} is not an absolute path, and could be a file of any folder", file.display()))
                    .hint("`gpucl up` with its spec records the path of the file"));
            }
            return Ok(vec![file]);
        }
        Ok(match self.environment.variable("KUBECONFIG") {
            Some(list) => list.split(':').filter(|file| !file.is_empty()).map(PathBuf::from).collect(),
            None => vec![self.environment.home.join(".kube/config")],
        })
    }
}

impl KubeContext {
    /// The objects of a kind in the namespace.
    pub(super) fn objects(&self, kind: ObjectKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    /// The objects of a kind of the core API in the namespace.
    ///
    /// All objects are read as JSON: readers of its types were a third of the providers' generated code.
    pub(super) fn core_objects(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &core_resource(kind))
    }

    /// The objects of a kind of the core API in all namespaces, or in none.
    pub(super) fn all_core_objects(&self, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &core_resource(kind))
    }

    /// Makes an object by one call, and returns the answer.
    pub(super) async fn create(&self, path: &str, object: &Value) -> kube::Result<Value> {
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes());
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }

    /// The objects of a kind that have these labels, as JSON.
    pub(super) async fn list(&self, kind: ObjectKind, selector: &str) -> Result<Vec<Value>> {
        let objects = self.objects(kind);
        let params = ListParams::default().labels(selector);
        let found = call(&format!("list the {}s of {}", kind.name(), self.namespace), || objects.list(&params)).await;
        let found = match found {
            // Most clusters have no Prometheus Operator, and who may not see such an object has made none.
            Err(error) if kind == ObjectKind::Monitor && refusal::is_absent(&error) => return Ok(Vec::new()),
            found => found?,
        };
        values(&found)
    }

    /// The object of this name, as JSON; `None` if there is none.
    pub(super) async fn get(&self, kind: ObjectKind, name: &str) -> Result<Option<Value>> {
        let objects = self.objects(kind);
        let found = call(&format!("look at the {} {name}", kind.name()), || objects.get_opt(name)).await?;
        found.map(|object| value(&object)).transpose()
    }

    /// Makes an object, or changes it to this, by a server-side apply.
    pub(super) async fn apply(&self, kind: ObjectKind, object: &Value, how: Apply) -> Result<Value> {
        self.patch(kind, object, how, false).await
    }

    /// What [`Self::apply`] would make of it. Changes nothing.
    pub(super) async fn dry_run(&self, kind: ObjectKind, object: &Value, how: Apply) -> Result<Value> {
        self.patch(kind, object, how, true).await
    }

    async fn patch(&self, kind: ObjectKind, object: &Value, how: Apply, dry_run: bool) -> Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let objects = self.objects(kind);
        let mut params = PatchParams::apply(MANAGER);
        params.dry_run = dry_run;
        params.force = how == Apply::Force;
        let patch = Patch::Apply(object);
        let found = call(&format!("apply the {} {name}", kind.name()), || objects.patch(name, &params, &patch)).await?;
        value(&found)
    }

    /// Changes these fields of an object, which are not those of [`Self::apply`].
    pub(super) async fn merge(&self, kind: ObjectKind, name: &str, fields: &Value) -> Result<()> {
        let objects = self.objects(kind);
        let params = PatchParams { field_manager: Some(MERGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(fields);
        call(&format!("change the {} {name}", kind.name()), || objects.patch(name, &params, &patch)).await.map(drop)
    }

    /// Deletes an object if it still has this id; one that is gone is no error.
    pub(super) async fn delete(&self, kind: ObjectKind, name: &str, id: &str) -> Result<()> {
        let objects = self.objects(kind);
        let only = kube::api::Preconditions { uid: Some(id.to_owned()), resource_version: None };
        let params = DeleteParams::foreground().preconditions(only);
        let once = || async {
            match objects.delete(name, &params).await {
                Ok(_) => Ok(()),
                // 409: another object has that name now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                Err(error) => Err(error),
            }
        };
        call(&format!("delete the {} {name}", kind.name()), once).await
    }
}

/// How an object is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apply {
    /// Refused where somebody else has set the same fields to other values.
    Gently,
    /// Others' fields are taken over.
    Force,
}

fn resource(kind: ObjectKind) -> ApiResource {
    let (group, version, kind) = match kind {
        ObjectKind::Token => ("", "v1", "Secret"),
        ObjectKind::Policy => ("networking.k8s.io", "v1", "NetworkPolicy"),
        ObjectKind::Monitor => (MONITORING_GROUP, "v1", "PodMonitor"),
        ObjectKind::Preparation => ("", "v1", "ConfigMap"),
        ObjectKind::RayCluster => ("ray.io", "v1", "RayCluster"),
    };
    let kind = GroupVersionKind::gvk(group, version, kind);
    let plural = if kind.kind == "NetworkPolicy" {
        "networkpolicies".to_owned()
    } else {
        format!("{}s", kind.kind.to_lowercase())
    };
    ApiResource::from_gvk_with_plural(&kind, &plural)
}

fn core_resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}

/// The objects of a list, as JSON.
pub(super) fn values(list: &ObjectList<DynamicObject>) -> Result<Vec<Value>> {
    list.items.iter().map(value).collect()
}

/// An object as JSON.
pub(super) fn value(object: &DynamicObject) -> Result<Value> {
    serde_json::to_value(object).doing(ErrorKind::Internal, || "read an object".to_owned())
}

/// Makes a call, and makes it again while that may help: each of ours may be repeated.
pub(super) async fn call<T, F, C>(doing: &str, once: F) -> Result<T>
where
    F: Fn() -> C,
    C: Future<Output = kube::Result<T>>,
    T: Debug,
{
    let limited = || async {
        match tokio::time::timeout(READ_LIMIT, once()).await {
            Ok(result) => result.map_err(|error| refusal::of_call(doing, &error)),
            Err(_) => Err(Error::new(ErrorKind::Provider, doing)
                .because(format!("the API server did not answer within {} s", READ_LIMIT.as_secs()))
                .status(Status::Temporary)),
        }
    };
    let again = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(LONGEST_PAUSE)
        .with_max_times(RETRIES);
    limited.retry(again).when(|error: &Error| error.retry_status() == Status::Temporary).await.map_err(|error| {
        match error.retry_status() {
            Status::Temporary => error.status(Status::Persistent),
            _ => error,
        }
    })
}
