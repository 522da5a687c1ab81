# stop.sh: ends what runs.
# shellcheck shell=bash

unwire() { :; }
stop_all() {
  local f n
  for f in "$RUN"/*.pid; do
    [ -f "$f" ] || continue
    n=$(basename "$f" .pid)
    case $n in mariadb | rabbitmq | epmd) ;; *) stop "$n" & ;; esac
  done
  wait
  # What the others stand on, last.
  for n in rabbitmq epmd mariadb; do stop "$n"; done
}
