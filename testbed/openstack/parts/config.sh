# config.sh: the services' configuration, rewritten at each start.
# shellcheck shell=bash

# authtoken USER
authtoken() {
  cat <<EOF
www_authenticate_uri = $KS/v3
auth_url = $KS/v3
auth_type = password
project_domain_name = Default
user_domain_name = Default
project_name = service
username = $1
password = $PASS
region_name = $REGION
EOF
}
rabbit_opts() {
  cat <<EOF
[oslo_messaging_rabbit]
heartbeat_in_pthread = false
rabbit_retry_interval = 1
EOF
}

configure_keystone() {
  cat >"$ETC/keystone/keystone.conf" <<EOF
[DEFAULT]
transport_url = $AMQP
[database]
connection = $DBURL/keystone?charset=utf8mb4
[token]
provider = fernet
expiration = 14400
# Services and clients log in for nearly every call: checking a password that protects nothing need not take 0.25 s of CPU.
[identity]
password_hash_rounds = 4
[fernet_tokens]
key_repository = $DATA/fernet
[credential]
key_repository = $DATA/credential
[cache]
enabled = true
backend = dogpile.cache.memory
[oslo_messaging_notifications]
driver = noop
EOF
}

configure_placement() {
  cat >"$ETC/placement/placement.conf" <<EOF
[api]
auth_strategy = keystone
[placement_database]
connection = $DBURL/placement?charset=utf8mb4
[keystone_authtoken]
$(authtoken placement)
EOF
}

configure_glance() {
  cat >"$ETC/glance/glance-api.conf" <<EOF
[DEFAULT]
bind_host = 127.0.0.1
bind_port = $P_GLANCE
workers = 1
transport_url = $AMQP
enabled_backends = file:file
[glance_store]
default_backend = file
[file]
filesystem_store_datadir = $DATA/glance/images
[os_glance_staging_store]
filesystem_store_datadir = $DATA/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = $DATA/glance/tasks
[database]
connection = $DBURL/glance?charset=utf8mb4
[paste_deploy]
flavor = keystone
config_file = $VENV/etc/glance/glance-api-paste.ini
[keystone_authtoken]
$(authtoken glance)
[oslo_concurrency]
lock_path = $DATA/locks
EOF
}

configure_neutron() {
  cat >"$ETC/neutron/neutron.conf" <<EOF
[DEFAULT]
bind_host = 127.0.0.1
bind_port = $P_NEUTRON
state_path = $DATA/neutron
api_paste_config = $VENV/etc/neutron/api-paste.ini
core_plugin = ml2
service_plugins = router
auth_strategy = keystone
transport_url = $AMQP
api_workers = 1
rpc_workers = 1
rpc_state_report_workers = 0
dhcp_agent_notification = false
enable_traditional_dhcp = false
allow_automatic_l3agent_failover = false
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
send_events_interval = 1
[database]
connection = $DBURL/neutron?charset=utf8mb4
[keystone_authtoken]
$(authtoken neutron)
[nova]
$(authtoken nova)
[placement]
$(authtoken placement)
[oslo_concurrency]
lock_path = $DATA/locks
[oslo_messaging_notifications]
driver = noop
[quotas]
quota_floatingip = 50
quota_port = 500
$(rabbit_opts)
[ml2]
type_drivers = flat,vlan,local
tenant_network_types = vlan
mechanism_drivers = gpucl
extension_drivers = port_security
[ml2_type_flat]
flat_networks = public
[ml2_type_vlan]
network_vlan_ranges = physnet1:100:199
EOF
}

configure_nova() {
  cat >"$ETC/nova/nova.conf" <<EOF
[DEFAULT]
my_ip = 127.0.0.1
state_path = $DATA/nova
transport_url = $AMQP
enabled_apis = osapi_compute
osapi_compute_listen = 127.0.0.1
osapi_compute_listen_port = $P_NOVA
osapi_compute_workers = 1
cpu_allocation_ratio = 1.0
ram_allocation_ratio = 1.0
disk_allocation_ratio = 1.0
reserved_host_memory_mb = 0
reserved_host_disk_mb = 0
heal_instance_info_cache_interval = 60
update_resources_interval = 0
[api]
auth_strategy = keystone
[wsgi]
api_paste_config = $VENV/etc/nova/api-paste.ini
[api_database]
connection = $DBURL/nova_api?charset=utf8mb4
[database]
connection = $DBURL/nova?charset=utf8mb4
[keystone_authtoken]
$(authtoken nova)
[service_user]
send_service_user_token = true
$(authtoken nova)
[placement]
$(authtoken placement)
[neutron]
service_metadata_proxy = false
$(authtoken neutron)
[glance]
region_name = $REGION
[keystone]
$(authtoken nova)
[conductor]
workers = 1
[scheduler]
workers = 1
discover_hosts_in_cells_interval = 30
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = blazarnova.scheduler.filters.blazar_filter.BlazarFilter
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,AggregateInstanceExtraSpecsFilter,BlazarFilter
track_instance_changes = false
[quota]
instances = -1
cores = -1
ram = -1
[vnc]
enabled = false
[oslo_concurrency]
lock_path = $DATA/locks
[oslo_messaging_notifications]
driver = noop
$(rabbit_opts)
EOF
  local n id
  for n in $NODES; do
    n=${n%%:*}; id=$(uuid_of "$n"); mkdir -p "$DATA/nova-$n"
    uuid_of "node_$id" >"$DATA/nova-$n/compute_id"
    printf '%s\n' '[DEFAULT]' "host = $id" "state_path = $DATA/nova-$n" 'compute_driver = fake.SmallFakeDriver' >"$ETC/nova/compute-$n.conf"
  done
}

configure_blazar() {
  cat >"$ETC/blazar/blazar.conf" <<EOF
[DEFAULT]
host = 127.0.0.1
port = $P_BLAZAR
transport_url = $AMQP
os_auth_protocol = http
os_auth_host = 127.0.0.1
os_auth_port = $P_KEYSTONE
os_auth_version = v3
os_admin_username = blazar
os_admin_password = $PASS
os_admin_project_name = service
os_admin_user_domain_name = Default
os_admin_project_domain_name = Default
os_region_name = $REGION
identity_service = identity
[manager]
plugins = physical.host.plugin,virtual.floatingip.plugin
minutes_before_end_lease = 60
[enforcement]
enabled_filters = MaxLeaseDurationFilter
max_lease_duration = $MAX_LEASE_SECONDS
[physical:host]
before_end =
[oslo_policy]
policy_file = $ETC/blazar/policy.yaml
[database]
connection = $DBURL/blazar?charset=utf8mb4
[keystone_authtoken]
$(authtoken blazar)
[oslo_concurrency]
lock_path = $DATA/locks
[oslo_messaging_notifications]
driver = noop
$(rabbit_opts)
EOF

  # Blazar's own default lets only admins list hosts and allocations; Chameleon's users see the host calendar, which needs both.
  cat >"$ETC/blazar/policy.yaml" <<'EOF'
"blazar:oshosts:get": "@"
"blazar:oshosts:get_allocations": "@"
"blazar:oshosts:get_resource_properties": "@"
EOF
}

configuration() {
  mkdir -p "$ETC"/{keystone,placement,glance,neutron,nova,blazar} "$DATA"/{glance,nova,neutron,blazar,locks} "$DATA"/glance/{images,staging,tasks}
  configure_keystone
  configure_placement
  configure_glance
  configure_neutron
  configure_nova
  configure_blazar
}
