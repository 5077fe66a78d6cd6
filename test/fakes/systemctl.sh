#!/bin/sh
# What a machine's systemctl does for one service, where no systemd runs: it reads the unit's ExecStart and keeps the process. FAKE_UNITS is the folder of
# the units, FAKE_STATE where it remembers; each word that it was told is a line of FAKE_STATE/told.
set -eu
echo "$*" >> "$FAKE_STATE/told"
stop() {
  if [ -f "$FAKE_STATE/pid" ]; then
    pid=$(cat "$FAKE_STATE/pid")
    kill -TERM "$pid" 2>/dev/null || true
    for _ in $(seq 1 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    rm -f "$FAKE_STATE/pid"
  fi
}
start() {
  line=$(sed -n 's/^ExecStart=//p' "$FAKE_UNITS/$1")
  # shellcheck disable=SC2086
  setsid sh -c "echo \$\$ > '$FAKE_STATE/pid.new'; mv '$FAKE_STATE/pid.new' '$FAKE_STATE/pid'; exec $line" </dev/null >>"$FAKE_STATE/log" 2>&1 &
  for _ in $(seq 1 100); do [ -f "$FAKE_STATE/pid" ] && break; sleep 0.05; done
}
case "$1" in
  daemon-reload) ;;
  enable) touch "$FAKE_STATE/enabled" ;;
  disable) rm -f "$FAKE_STATE/enabled"; [ "${2:-}" != --now ] || stop ;;
  restart) stop; start "$2" ;;
  stop) stop ;;
  *) echo "unknown: $*" >&2; exit 1 ;;
esac
