/**
 * The script that makes a machine one of the fleet: POSIX sh, run as root, again as often as one likes.
 *
 * Invariants
 *   - It holds no secret: pins, a public key, the program's checksum. The token comes to it by file or standard input.
 *   - The program is verified before it is put in place; every file appears whole (written beside, then renamed), with its mode.
 *   - What the operator gives is quoted for the shell and cannot leave its quotes; here-documents are not expanded.
 *   - A machine keeps the approver set it is pinned to, unless the script names one (PIN-006): the pin is what stands between a hostile
 *     api and the machine's first approvers, and an upgrade must not take it away.
 *   - A machine that has joined is left joined: the script brings program, pins and unit up to date and restarts the daemon.
 */
import { shellQuoted } from '../../../runtime/shell.ts';
import { systemdUnit, unitName } from '../../../runtime/systemd-unit.ts';

export interface ScriptOptions {
  readonly trustDomain: string;
  /** The pins' file, whole. */
  readonly pins: string;
  readonly role: 'node' | 'site';
  readonly program: string;
  readonly dataDir: string;
  /** Where machines fetch the program, and its SHA-256; null: it is there already. */
  readonly download: { readonly url: string; readonly sha256: string } | null;
  /** Public keys (PEM) of who may publish the program; null: it is replaced by hand alone (SKEW-017). */
  readonly releaseKeys: string | null;
  /** Where the machine reaches the gateway over a WebSocket; null: gRPC. */
  readonly websocketUrl: string | null;
}

const configFolder = '/etc/better-compute';
const releaseKeysPath = `${configFolder}/release-keys.pem`;
const pinsPath = `${configFolder}/pins.json`;
const unitFolder = '/etc/systemd/system';

export function installScript(options: ScriptOptions): string {
  const { trustDomain, pins, role, program, dataDir, releaseKeys, websocketUrl } = options;
  return `#!/bin/sh
# Makes this machine one of the fleet ${trustDomain}. Written by: better-compute daemon install-script
#
#   sh install.sh @/run/bcd-token     join with the token (or join string) in that file, and start
#   sh install.sh -                   the same, from standard input
#   sh install.sh                     bring program, pins and unit up to date on a machine that has joined
#
# It holds no secret. Compare its checksum (sha256sum install.sh) with the one its maker printed.
set -eu
umask 077
program=${shellQuoted(program)}
data_dir=${shellQuoted(dataDir)}
pins=${shellQuoted(pinsPath)}
unit=${shellQuoted(`${unitFolder}/${unitName}`)}
fail() { printf 'error: %s\\nhint: %s\\n' "$1" "$2" >&2; exit 1; }

# Whole or not at all: FILE MODE, the content from standard input.
put() {
  mkdir -p "$(dirname "$1")"
  cat > "$1.new.$$"
  chmod "$2" "$1.new.$$"
  mv -f "$1.new.$$" "$1"
}

[ "$#" -le 1 ] || fail 'this script takes one argument at most' 'give @FILE, or - for standard input'
[ "$(id -u)" = 0 ] || fail 'this script changes the system' 'run it as root'
command -v systemctl >/dev/null 2>&1 || fail 'this machine has no systemctl' 'run bcd under its own service manager'
${programStep(options.download)}
[ -x "$program" ] || fail "there is no program $program" 'put bcd there first, or make the script with --bcd-url and --bcd-sha256'

# An approver set that is pinned here stays pinned, unless these pins name one.
kept_set=
[ ! -f "$pins" ] || kept_set=$(sed -n 's/^  "approverSetSha256": "\\([0-9a-f]\\{64\\}\\)",\\{0,1\\}$/\\1/p' "$pins")
put_pins() {
  awk -v set="$kept_set" '
    /^  "approverSetSha256": / { set = "" }
    { line[NR] = $0 }
    END {
      for (n = 1; n <= NR; n++) {
        print line[n]
        if (set != "" && line[n] ~ /^  "version": /) printf "  \\"approverSetSha256\\": \\"%s\\",\\n", set
      }
    }' | put "$pins" 0644
}
put_pins <<'END_OF_PINS'
${pins}END_OF_PINS

${releaseKeysStep(releaseKeys)}put "$unit" 0644 <<'END_OF_UNIT'
${systemdUnit({ program, dataDir, trustDomain, pins: pinsPath, releaseKeys: releaseKeys === null ? null : releaseKeysPath, websocketUrl })}END_OF_UNIT

if [ -e "$data_dir/identity.json" ]; then
  [ "$#" = 0 ] || printf 'this machine has joined already: the token is not used\\n' >&2
elif [ "$#" = 1 ]; then
  "$program" join "$1" --pins "$pins" --role ${role} --data-dir "$data_dir"
else
  fail 'this machine has not joined yet' 'make a token with better-compute tokens create, and give it by file: sh install.sh @FILE'
fi

systemctl daemon-reload
systemctl enable ${unitName}
systemctl restart ${unitName}
printf 'bcd is installed and running; see: systemctl status %s\\n' ${unitName}
`;
}

/** Before the unit that names the file. */
const releaseKeysStep = (keys: string | null): string =>
  keys === null ? '' : `put ${shellQuoted(releaseKeysPath)} 0644 <<'END_OF_KEYS'\n${keys}END_OF_KEYS\n\n`;

/** Fetched beside its place, compared, and only then moved there. */
function programStep(download: ScriptOptions['download']): string {
  if (download === null) return '';
  return `
url=${shellQuoted(download.url)}
sha256=${shellQuoted(download.sha256)}
if ! { [ -f "$program" ] && printf '%s  %s\\n' "$sha256" "$program" | sha256sum -c - >/dev/null 2>&1; }; then
  mkdir -p "$(dirname "$program")"
  fetched="$program.new.$$"
  trap 'rm -f "$fetched"' EXIT
  curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' --output "$fetched" "$url" ||
    fail "$url cannot be fetched" 'does this machine reach it?'
  printf '%s  %s\\n' "$sha256" "$fetched" | sha256sum -c - >/dev/null 2>&1 ||
    fail "what $url gave is not the program: its SHA-256 is not $sha256" 'make the script again for the program that is published there'
  chmod 0755 "$fetched"
  mv -f "$fetched" "$program"
fi
`;
}
