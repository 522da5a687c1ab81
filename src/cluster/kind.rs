//! Which of the two worlds a cluster is of.

use crate::provider::Runtime;
use crate::providers;
use crate::spec::Spec;

/// The nodes of this spec run on machines that are reached by SSH, and a project is deployed on each. Else they are processes of
/// this machine.
pub fn is_deployed(spec: &Spec) -> bool {
    spec.runtime == Runtime::Docker
        || providers::find(spec.provider.name()).is_ok_and(|factory| !factory.is_this_machine())
}
