/**
 * daemon.upgrade: the daemon replaces its own program by one that a pinned release key signed (KIND-009, SKEW-016, SKEW-017).
 *
 *   judge → fetch beside → compare → try → note (durable) → replace → leave; the service manager starts the new program →
 *   its first session reports the end
 *
 * A new program that gets no session is taken back (upgrade/probation.ts), and the old one reports that. Every step may be
 * repeated, so a daemon killed between two of them goes on where the files say it is.
 */
import { assertMayReplace, type Release } from '../../domain/commands/release.ts';
import { ControlError } from '../../domain/errors.ts';
import { openDaemonRelease } from '../../pki/envelope/index.ts';
import { type DaemonUpgrade, DaemonUpgradeResultSchema } from '../../proto/index.ts';
import { assertReplaceable, fetchProgram, fileSha256, putInPlace } from '../upgrade/program-file.ts';
import { endTrial, readTrial, writeTrial } from '../upgrade/trial.ts';
import { type KindContext, type KindEnd, type KindHandler, leftToNextStart, succeeded } from './handler.ts';

export interface UpgradePorts {
  /** SPKI; without one, the program is replaced by hand alone. */
  readonly releaseKeys: readonly Uint8Array[];
  /** The file that is replaced. */
  readonly program: string;
  /** Of the program that runs. */
  readonly version: string;
  /** node's platform-architecture. */
  readonly platform: string;
  readonly dataDir: string;
  /** Ends this process soon; its service manager starts what is in place. */
  readonly leave: (why: string) => void;
}

/** null: this daemon is no program of its own. */
export function daemonUpgradeHandler(ports: UpgradePorts | null): KindHandler {
  if (ports === null) return { run: async () => Promise.reject(byHand('this daemon runs inside another program')) };
  const run = async (payload: DaemonUpgrade, context: KindContext): Promise<KindEnd> => {
    const { release, verdict, sha256 } = await judged(payload, ports);
    if (verdict === 'same') return done(release, ports.version);
    const { program, dataDir, version } = ports;
    const fetched = await fetchProgram({
      program,
      url: payload.url,
      release,
      signal: context.signal,
      progress: (done, total) => context.progress({ done, total, note: 'fetching' }),
    });
    await writeTrial(dataDir, {
      commandId: context.commandId,
      versionBefore: version,
      versionAfter: release.version,
      sha256: release.sha256,
      program,
      state: 'trial',
      why: '',
      starts: 0,
    });
    await putInPlace(program, fetched);
    return leaving(ports, release, sha256);
  };
  return {
    prepare: async (payload) => {
      await judged(payload as DaemonUpgrade, ports);
      return { versionBefore: ports.version };
    },
    run: (payload, context) => run(payload as DaemonUpgrade, context),
    async recover(payload, context) {
      const upgrade = payload as DaemonUpgrade;
      const release = openDaemonRelease(upgrade, ports.releaseKeys);
      const trial = await readTrial(ports.dataDir);
      const ours = trial?.commandId === context.commandId ? trial : undefined;
      if (ports.version === release.version) {
        await endTrial(ports.dataDir);
        return done(release, context.note['versionBefore'] ?? '');
      }
      if (ours?.state === 'rolled-back') {
        await endTrial(ports.dataDir);
        return { kind: 'failed', code: 'INVALID_STATE', message: `bcd ${ours.versionAfter} was put in place and taken back: ${ours.why}` };
      }
      const sha256 = await fileSha256(ports.program);
      return sha256 === release.sha256 ? leaving(ports, release, sha256) : run(upgrade, context);
    },
  };
}

async function judged(payload: DaemonUpgrade, { releaseKeys, program, version, platform }: UpgradePorts) {
  if (releaseKeys.length === 0) throw byHand('its owner pins no release key');
  const release = openDaemonRelease(payload, releaseKeys);
  const sha256 = await fileSha256(program);
  const verdict = assertMayReplace(release, { version, sha256, platform });
  if (verdict === 'newer') await assertReplaceable(program);
  return { release, verdict, sha256 };
}

const byHand = (why: string): ControlError =>
  new ControlError('UNSUPPORTED', `this daemon does not replace its own program: ${why}; it is replaced by hand`, {
    details: { reason: 'no-release-keys' },
  });

function leaving({ leave, version }: UpgradePorts, release: Release, sha256: string): never {
  leave(`bcd ${version} is replaced by ${release.version} (${sha256.slice(0, 12)} by ${release.sha256.slice(0, 12)})`);
  throw leftToNextStart;
}

const done = (release: Release, versionBefore: string): KindEnd =>
  succeeded(DaemonUpgradeResultSchema, {
    versionBefore,
    versionAfter: release.version,
    sha256: Buffer.from(release.sha256, 'hex'),
  });
