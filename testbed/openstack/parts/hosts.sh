# hosts.sh: what stands behind the servers: the hosts of testbed/hosts, their network, and the two daemons in front.
# shellcheck shell=bash

hosts_up() { "$HERE/up" 9>&-; }
wiring() { :; }
memory() { :; }
