"""gpucl_ml2: STAND-IN for Neutron's L2 and L3 agents. Binds every port at once, and makes a floating address ACTIVE when it is associated."""
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events, registry, resources
from neutron_lib import constants
from neutron_lib.plugins import constants as plugins
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api


class AnyHost(api.MechanismDriver):
    def initialize(self):
        for event in (events.AFTER_CREATE, events.AFTER_UPDATE):
            registry.subscribe(self._floating, resources.FLOATING_IP, event)

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        for segment in context.segments_to_bind:
            context.set_binding(segment[api.ID], portbindings.VIF_TYPE_OTHER, {}, status=constants.PORT_STATUS_ACTIVE)
            return

    def _floating(self, resource, event, trigger, payload):
        bound = payload.latest_state.get("port_id")
        status = constants.FLOATINGIP_STATUS_ACTIVE if bound else constants.FLOATINGIP_STATUS_DOWN
        l3 = directory.get_plugin(plugins.L3)
        if l3 is not None:
            l3.update_floatingip_status(payload.context.elevated(), payload.resource_id, status)
