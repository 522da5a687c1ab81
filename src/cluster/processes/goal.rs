//! What a spec comes to on this machine.

use crate::error::Result;
use crate::name::{Key, Scope};
use crate::plan::{Desired, Machine, Preparation, desired};
use crate::playbook::Stage;
use crate::provider::{HostRequest, Provider};
use crate::runtime::native;
use crate::spec::Loaded;
use crate::state::Paths;

/// Works out all that a spec asks for; pure but for the provider's read-only offers.
pub(in crate::cluster) async fn desired_of(
    loaded: &Loaded,
    scope: &Scope,
    provider: &dyn Provider,
    stage: &Stage,
) -> Result<Desired> {
    let spec = &loaded.spec;
    let offers = provider.offers().await?;
    let mut resources = Vec::new();
    let mut machines = Vec::new();
    let mut preparations = Vec::new();
    for (index, settings) in spec.hosts.iter().enumerate() {
        let request = HostRequest::new(Key::host(index), settings.clone());
        resources.extend(provider.expand(scope, &request)?);
        let offer = offers.get(index).or(offers.first());
        machines.push((
            request.key.clone(),
            offer.map_or_else(Machine::default, |offer| Machine {
                cpus: offer.cpus,
                memory: offer.memory,
                gpus: offer.gpus.iter().map(|gpu| gpu.count.unwrap_or(1)).sum(),
            }),
        ));
        preparations.push(Preparation { host: request.key, digest: stage.digest(), behind: None });
    }
    let nodes = desired(spec, &machines).map_err(|(path, sentence)| loaded.places.error(&path, sentence))?;
    let agent = Some(crate::engine::agent_digest());
    Ok(Desired { resources, preparations, agent, nodes, ..Desired::default() })
}

/// Where things lie on a host.
pub(in crate::cluster) fn layout(paths: &Paths, scope: &Scope, host: &Key) -> native::Layout {
    let tag = scope.tag(host);
    native::Layout::new(&paths.data.join("hosts").join(tag.to_string()), &tag, &paths.runtime)
}
