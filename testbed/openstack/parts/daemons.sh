# daemons.sh: the database, the queue, the schemas, the services, and the resources needed before a host can be leased.
# shellcheck shell=bash

ports_free() {
  local p
  for p in $P_DB:mariadb $P_AMQP:rabbitmq $P_KEYSTONE:keystone $P_PLACEMENT:placement $P_GLANCE:glance-api $P_NEUTRON:neutron-server $P_NOVA:nova-api $P_BLAZAR:blazar-api \
    $P_FAULTS:faults $P_FAULTS_CONTROL:faults; do
    alive "${p#*:}" || ! tcp_answers "${p%%:*}" || die "port ${p%%:*}, wanted for ${p#*:}, is in use: set GPUCL_OPENSTACK_PORT to another first port"
  done
}

queue() {
  mkdir -p "$DATA/rabbit/mnesia"; echo '[].' >"$DATA/rabbit/enabled_plugins"
  # Started here and not by RabbitMQ, so that its pid is known.
  start epmd /usr/bin/epmd -address 127.0.0.1 -port "$P_EPMD"
  wait_for 20 epmd tcp_answers "$P_EPMD"
  # All three addresses are needed to keep it on loopback.
  start rabbitmq env HOME="$DATA/rabbit" ERL_EPMD_PORT="$P_EPMD" ERL_EPMD_ADDRESS=127.0.0.1 \
    RABBITMQ_NODENAME=gpucl@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT="$P_AMQP" \
    RABBITMQ_DIST_PORT="$P_DIST" RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' \
    RABBITMQ_CONF_ENV_FILE="$DATA/rabbit/none.conf" RABBITMQ_CONFIG_FILE="$DATA/rabbit/rabbitmq" \
    RABBITMQ_MNESIA_BASE="$DATA/rabbit/mnesia" RABBITMQ_LOG_BASE="$LOG" RABBITMQ_LOGS=- \
    RABBITMQ_ENABLED_PLUGINS_FILE="$DATA/rabbit/enabled_plugins" "$RABBIT/sbin/rabbitmq-server"
}

database() {
  local q d
  [ -d "$DATA/mysql/mysql" ] || mariadb-install-db --no-defaults --user=root --datadir="$DATA/mysql" --auth-root-authentication-method=normal --skip-test-db >"$LOG/mariadb-install.log" 2>&1 ||
    die "mariadb-install-db: $LOG/mariadb-install.log"
  # Without durability: a state spoiled by a crash is made again.
  start mariadb /usr/sbin/mariadbd --no-defaults --user=root --datadir="$DATA/mysql" --socket="$RUN/mysql.sock" \
    --pid-file="$RUN/mysqld.own" --bind-address=127.0.0.1 --port="$P_DB" --skip-name-resolve --skip-log-bin \
    --max-connections=1000 --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --sync-frm=0 --innodb-buffer-pool-size=256M \
    --character-set-server=utf8mb4 --collation-server=utf8mb4_general_ci
  wait_for 60 mariadb sql 'select 1'
  q="CREATE USER IF NOT EXISTS 'gpucl'@'127.0.0.1' IDENTIFIED BY '$PASS'; GRANT ALL ON *.* TO 'gpucl'@'127.0.0.1';"
  for d in keystone placement glance neutron nova_api nova_cell0 nova blazar; do q="$q CREATE DATABASE IF NOT EXISTS $d;"; done
  sql "$q"
}

once() { local done=$DATA/.done-$1; shift; [ -e "$done" ] || { "$@" && touch "$done"; }; }
# 2: it exists
cell1() { local rc=0; "$BIN/nova-manage" --config-file "$ETC/nova/nova.conf" cell_v2 create_cell --name cell1 || rc=$?; [ $rc = 0 ] || [ $rc = 2 ]; }
schemas_one() {
  local manage=("$BIN/keystone-manage" --config-file "$ETC/keystone/keystone.conf")
  mkdir -p "$DATA/fernet" "$DATA/credential"
  once keystone-db "${manage[@]}" db_sync
  once keystone-fernet "${manage[@]}" fernet_setup --keystone-user root --keystone-group root
  once keystone-credential "${manage[@]}" credential_setup --keystone-user root --keystone-group root
  once keystone-bootstrap env OS_BOOTSTRAP_PASSWORD="$PASS" "${manage[@]}" bootstrap --bootstrap-username admin --bootstrap-project-name admin \
    --bootstrap-role-name admin --bootstrap-service-name keystone --bootstrap-region-id "$REGION" \
    --bootstrap-admin-url "$KS/v3" --bootstrap-public-url "$KS/v3" --bootstrap-internal-url "$KS/v3"
  once neutron-db "$BIN/neutron-db-manage" --config-file "$ETC/neutron/neutron.conf" upgrade heads
  once blazar-db "$BIN/blazar-db-manage" --config-file "$ETC/blazar/blazar.conf" upgrade head
}
schemas_two() {
  local manage=("$BIN/nova-manage" --config-file "$ETC/nova/nova.conf")
  once nova-api-db "${manage[@]}" api_db sync
  once nova-cell0 "${manage[@]}" cell_v2 map_cell0 --database_connection "$DBURL/nova_cell0?charset=utf8mb4"
  once nova-cell1 cell1
  once nova-db "${manage[@]}" db sync
  once placement-db "$BIN/placement-manage" --config-file "$ETC/placement/placement.conf" db sync
  once glance-db "$BIN/glance-manage" --config-file "$ETC/glance/glance-api.conf" db_sync
}
schemas() {
  [ ! -e "$DATA/.done-schemas" ] || return 0
  later schemas-one schemas_one; later schemas-two schemas_two
  await schemas-one schemas-two
  touch "$DATA/.done-schemas"
}

identity_services() {
  # `Connection: close`: uwsgi's plain socket resets connections that are kept.
  local web=(--master --need-app --die-on-term --buffer-size 65535 --enable-threads --threads 4 --disable-logging --thunder-lock --socket-timeout 60 --virtualenv "$VENV" --add-header "Connection: close")
  start keystone env OS_KEYSTONE_CONFIG_FILES="$ETC/keystone/keystone.conf" "$BIN/uwsgi" --http-socket "127.0.0.1:$P_KEYSTONE" --wsgi-file "$BIN/keystone-wsgi-public" --processes 2 "${web[@]}"
  start placement env OS_PLACEMENT_CONFIG_DIR="$ETC/placement" "$BIN/uwsgi" --http-socket "127.0.0.1:$P_PLACEMENT" --wsgi-file "$BIN/placement-api" --processes 1 "${web[@]}"
  wait_for 120 keystone http_answers "$KS/v3"
  ensure identity
}

# broken01's compute runs only until Blazar knows the host.
wants_compute() { case $1 in *:broken) [ ! -e "$DATA/.done-broken" ] ;; esac; }
cloud_services() {
  local n conf=(--config-file "$ETC/nova/nova.conf")
  start neutron-server "$BIN/neutron-server" --config-file "$ETC/neutron/neutron.conf"
  start nova-api "$BIN/nova-api" "${conf[@]}"
  start nova-conductor "$BIN/nova-conductor" "${conf[@]}"
  start nova-scheduler "$BIN/nova-scheduler" "${conf[@]}"
  start glance-api "$BIN/glance-api" --config-file "$ETC/glance/glance-api.conf"
  start blazar-api "$BIN/blazar-api" --config-file "$ETC/blazar/blazar.conf"
  start blazar-manager "$BIN/python" "$OPENSTACK/files/blazar_manager.py" --config-file "$ETC/blazar/blazar.conf"
  wait_for 120 placement http_answers "http://127.0.0.1:$P_PLACEMENT/"
  wait_for 120 nova-api http_answers "http://127.0.0.1:$P_NOVA/"
  for n in $NODES; do
    ! wants_compute "$n" || start "nova-compute-${n%%:*}" "$BIN/python" -m gpucl_compute "${conf[@]}" --config-file "$ETC/nova/compute-${n%%:*}.conf"
  done
  wait_for 120 neutron-server http_answers "http://127.0.0.1:$P_NEUTRON/"
  wait_for 120 glance-api http_answers "http://127.0.0.1:$P_GLANCE/"
  wait_for 120 blazar-api http_answers "http://127.0.0.1:$P_BLAZAR/"
}

ensure() {
  GPUCL_KS=$KS GPUCL_REGION=$REGION GPUCL_PASS=$PASS GPUCL_ROOT=$ROOT GPUCL_NODES=$NODES GPUCL_PUBLIC=$PUBLIC GPUCL_FIXED=$FIXED GPUCL_FIXED_GATEWAY=$FIXED_GATEWAY \
    GPUCL_PORTS="$P_PLACEMENT $P_GLANCE $P_NEUTRON $P_NOVA $P_BLAZAR $P_FAULTS $P_FAULTS_CONTROL" "$BIN/python" "$OPENSTACK/files/ensure.py" "$@"
}
known_computes() { [ "$(sql 'select count(*) from nova.compute_nodes where deleted=0')" -ge "$(wc -w <<<"$NODES")" ]; }
hosts_into_blazar() {
  local n
  wait_for 120 nova-conductor known_computes
  "$BIN/nova-manage" --config-file "$ETC/nova/nova.conf" cell_v2 discover_hosts
  ensure blazar
  for n in $NODES; do
    case $n in *:broken) ;; *) continue ;; esac
    n=${n%%:*}
    # As an operator's monitor does with a failed host. Blazar's API has no call for it.
    sql "update blazar.computehosts set reservable = 0 where hypervisor_hostname = '$(uuid_of "$n")'"
    touch "$DATA/.done-broken"; stop "nova-compute-$n"
  done
}
