/**
 * The systemd unit of bcd. It runs as root, because the commands it takes restart services and the machine; what it does not need is
 * taken away all the same. It may write to the folder that docs/runbooks/break-glass.md names for sshd, and nowhere else in /etc. It is
 * started again however it ends: a configuration that was put right is read by itself then, and a new program that cannot read the old one
 * comes to the start at which it takes itself back.
 */
import { dirname } from 'node:path';

export interface UnitOptions {
  readonly program: string;
  readonly dataDir: string;
  readonly trustDomain: string;
  /** Whom the machine believes; the approver set that it names stays pinned over every restart. */
  readonly pins: string;
  /** File of the pinned release keys: the daemon may replace its program then. null: it is replaced by hand. */
  readonly releaseKeys: string | null;
  /** wss URL; null: gRPC. */
  readonly websocketUrl: string | null;
}

export const unitName = 'bcd.service';

export const systemdUnit = ({ program, dataDir, trustDomain, pins, releaseKeys, websocketUrl }: UnitOptions): string => `[Unit]
Description=Better Compute daemon (${escaped(trustDomain)})
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=${quoted(program)} run ${dataDirArgument(dataDir)}--pins ${quoted(pins)}${releaseKeys === null ? '' : ` --release-keys ${quoted(releaseKeys)}`}${websocketUrl === null ? '' : ` --websocket-url ${quoted(websocketUrl)}`}
Restart=always
RestartSec=5
KillMode=mixed
TimeoutStopSec=30
UMask=0077
NoNewPrivileges=yes
ProtectSystem=full
ReadWritePaths=-${quoted(dataDir)}${releaseKeys === null ? '' : ` -${quoted(dirname(program))}`}
ReadWritePaths=-/etc/ssh/better-compute
ProtectHome=yes
PrivateTmp=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
`;

/** As it stands in the unit's ExecStart, with the space behind it: which bcd the unit is of. */
export const dataDirArgument = (dataDir: string): string => `--data-dir ${quoted(dataDir)} `;

/** systemd expands %; a path is quoted whole. Line ends cannot occur: paths are checked before. */
const escaped = (text: string): string => text.replaceAll('%', '%%');
const quoted = (path: string): string =>
  /^[A-Za-z0-9/._-]+$/.test(path) ? path : `"${escaped(path).replaceAll(/["\\$]/g, (mark) => (mark === '$' ? '$$' : `\\${mark}`))}"`;
