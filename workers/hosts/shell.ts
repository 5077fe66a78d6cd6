/** The scripts that run on a machine: POSIX sh, as root, again as often as one likes. What they are told is quoted; nothing secret is among it. */
import { shellQuoted } from '../../runtime/shell.ts';
import { dataDirArgument, unitName } from '../../runtime/systemd-unit.ts';
import type { HostLayout } from './layout.ts';

/** Programs of the system lie beside the path of a login that is no login shell. */
const prelude = 'set -eu; umask 077; PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; export PATH';

/** One command for the other side's shell, whichever that is. */
export function shellCommand(script: string, { becomeRoot }: { readonly becomeRoot: boolean }): string {
  const command = `sh -c ${shellQuoted(`${prelude}\n${script}`)}`;
  return becomeRoot ? `sudo -n -- ${command}` : command;
}

/** Lines of `name=value`, for the worker. */
export const lookScript = ({ program, dataDir, unitDir }: HostLayout): string => `
program=${shellQuoted(program)}
say() { printf '%s=%s\\n' "$1" "$2"; }
say system "$(uname -sm 2>/dev/null || true)"
say uid "$(id -u)"
say node "$(node --version 2>/dev/null || true)"
say systemctl "$(command -v systemctl || true)"
say sha256 "$(sha256sum "$program" 2>/dev/null | cut -d' ' -f1 || true)"
say version "$("$program" --version 2>/dev/null || true)"
if [ -e ${shellQuoted(`${dataDir}/identity.json`)} ]; then say joined yes; else say joined no; fi
unit=${shellQuoted(`${unitDir}/${unitName}`)}
if [ -e "$unit" ] && ! grep -qF -- ${shellQuoted(dataDirArgument(dataDir))} "$unit"; then say unit other; else say unit ours; fi
`;

export interface Put {
  readonly path: string;
  readonly mode: '0644' | '0755';
  /** Of the content, hex. */
  readonly sha256: string;
}

/** The content comes from standard input, and takes its place whole or not at all: a connection that is lost looks like its end. */
export const putScript = ({ path, mode, sha256 }: Put): string => `
path=${shellQuoted(path)}
mkdir -p "$(dirname "$path")"
trap 'rm -f "$path.new.$$"' EXIT
cat > "$path.new.$$"
printf '%s  %s\\n' ${shellQuoted(sha256)} "$path.new.$$" | sha256sum -c - >/dev/null
chmod ${mode} "$path.new.$$"
mv -f "$path.new.$$" "$path"
`;

export const words = (...parts: readonly string[]): string => parts.map(shellQuoted).join(' ');
