//! The stage `data` with containers: sets are filled in a container of the image of nodes, as its user.

use std::collections::BTreeMap;
use std::time::Duration;

use super::images::host_images;
use super::{closed_table, confirm_steps, containers_name};
use crate::error::Result;
use crate::name::Key;
use crate::playbook::{Stage, Step};
use crate::runtime::data::{self, JobUser};
use crate::runtime::project::{Filling, Others, PrepareRequest};

const WAY: &str = include_str!("shell/data.sh");
const OPEN: &str = include_str!("shell/data_open.sh");
const CLOSE: &str = include_str!("shell/data_close.sh");
const BY_IMAGE: &str = include_str!("shell/data_image.sh");

/// How the data folder of a host is filled; `None` when the spec has nothing for it.
pub(super) fn filling(request: &PrepareRequest<'_>) -> Result<Option<Filling>> {
    let PrepareRequest { spec, host, library, .. } = request;
    let images = host_images(spec, &host.facts, host.key == Key::host(0), library)?;
    let bridge = if request.others == Others::None { containers_name(&host.tag) } else { String::new() };
    let open = Step {
        name: "open the data folder".to_owned(),
        run: format!("{WAY}{OPEN}"),
        timeout: Some(Duration::from_secs(3600)),
        hint: Some(format!("check the engine: gpucl exec --host {} --root -- docker ps -a", host.key.display_name())),
        ..Step::default()
    };
    let close = Step { name: "close the data folder".to_owned(), run: CLOSE.to_owned(), ..Step::default() };
    let filling = data::filling(
        request,
        JobUser {
            prelude: WAY,
            by_image: BY_IMAGE,
            program: "lib/fill.py",
            files: Vec::new(),
            before: vec![open],
            after: vec![close],
            variables: BTreeMap::from([
                ("project".to_owned(), host.tag.clone()),
                ("ray_image".to_owned(), images.ray.clone()),
                ("closed".to_owned(), closed_table(&host.tag)),
                ("bridge".to_owned(), bridge),
            ]),
        },
    )?;
    if request.others != Others::Known {
        return Ok(filling);
    }
    let Some(Filling { stage, wants }) = filling else { return Ok(None) };
    // Filling takes longer than the firewall's rules stay unless they are confirmed.
    let confirm = confirm_steps(&host.tag, library)?;
    let limit = stage.timeout + confirm.timeout;
    Ok(Some(Filling { stage: Stage::join(data::STAGE, vec![confirm, stage], limit), wants }))
}
