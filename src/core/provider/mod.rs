//! The contract between the engine and the providers of hosts and clusters.
//!
//! The engine decides by a provider's [`Capability`], never by its name. `docs/design/0002-provider-contract.md`
//! describes how each provider fits; `gpucl provider check NAME` proves that a provider keeps the contract.

mod capability;
pub mod conformance;
mod context;
mod contract;
mod finding;
pub mod kit;
mod login;
mod manifest;
mod outage;
pub mod platform;
mod recorder;
mod reservation;
mod resource;
pub mod settings;
mod site;

pub use capability::{Capability, ProviderKind, Runtime, USUAL_POLL};
pub use context::{Context, UserEnvironment};
pub use contract::{Factory, FieldError, LoginFile, Lookup, Provider};
pub use finding::Finding;
pub use login::{LoggedIn, Login, LoginAsk, LoginForm, LoginPage, ShowPage, SignedIn};
pub use manifest::Manifest;
pub use outage::Outage;
pub use platform::Platform;
pub use recorder::{Acquired, Recorder};
pub use reservation::{
    Booking, CalendarRow, EndAsk, HostFilter, Lease, LeaseAsk, LeaseState, Proposal, Reservations, StartAsk,
};
pub use resource::{
    GpuOffer, HostPlace, HostRequest, ObservedResource, Offer, Resolved, ResourceKind, ResourceRequest, ResourceState,
    Start,
};
pub use site::{Packages, Site, SiteFinding};
