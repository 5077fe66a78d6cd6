/** Where things lie on a machine that is enrolled; as the script of `daemon install-script` puts them, unless the operator says otherwise. */
export interface HostLayout {
  readonly program: string;
  readonly dataDir: string;
  /** Of pins.json. */
  readonly configDir: string;
  /** Of systemd units. */
  readonly unitDir: string;
}

export const usualLayout: HostLayout = Object.freeze({
  program: '/usr/local/bin/bcd',
  dataDir: '/var/lib/better-compute/bcd',
  configDir: '/etc/better-compute',
  unitDir: '/etc/systemd/system',
});
