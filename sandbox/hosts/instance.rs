//! Local hosts behind the instances of the Lambda stand-in.

use std::net::SocketAddr;

use async_trait::async_trait;

use super::super::lambda::{Boot, Hosts};
use super::{LocalHosts, NewHost};
use crate::error::Result;

#[async_trait]
impl Hosts for LocalHosts {
    async fn boot(&self, instance: &Boot) -> Result<SocketAddr> {
        let new = NewHost {
            id: instance.id.clone(),
            user_data: instance.user_data.clone(),
            public_keys: instance.public_keys.clone(),
            silent: instance.silent,
        };
        LocalHosts::boot(self, &new).await
    }

    async fn end(&self, id: &str) -> Result<()> {
        LocalHosts::end(self, id).await
    }
}
