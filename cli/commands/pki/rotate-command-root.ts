import { randomUUID } from 'node:crypto';
import { Command, Option } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import {
  addCommandRoot,
  type BundleStep,
  bundleDigest,
  commandRootPins,
  dropCommandRoot,
  type PkiBundle,
  switchCommandRoot,
  updateBundle,
} from '../../../pki/bundle/index.ts';
import type { ExternalSigners } from '../../../pki/signers/index.ts';
import { noQuorum } from '../../../pki/trust/index.ts';
import { rotationTimes } from '../../../runtime/config.ts';
import { assertOverrideApproved } from '../../../services/override-approval.ts';
import { quorumOfBytes } from '../../../services/published-quorum.ts';
import { type ApprovalInFile, approvalsOption } from '../../approvals-file.ts';
import { actorOption, type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { writeJson } from '../../io.ts';
import { type Deployment, getDeployment, type PkiPorts } from './deployment.ts';
import { dropGate, switchGate } from './gates.ts';
import { rootLine } from './pins-view.ts';
import { createSignerKeysOption, withSigners } from './signers.ts';
import { assertMayWriteBack, pkiOption, secretOf, withSource } from './source.ts';

const stages = ['add', 'switch', 'drop'] as const;
type Stage = (typeof stages)[number];

export interface PkiRotateOptions extends CommonOptions {
  readonly stage: Stage;
  readonly force: boolean;
  readonly reason: string | null;
  readonly actor: string;
  readonly pki: string | null;
  /** Where the new root's key is kept; null: where the present one's is. */
  readonly signer: string | null;
  readonly createSignerKeys: boolean;
  /** Of approvers, over a step whose gate is forced (H-08). */
  readonly approvals?: readonly ApprovalInFile[];
}

interface RotateFlags {
  readonly stage: Stage;
  readonly force: boolean;
  readonly reason?: string;
  readonly actor: string;
  readonly pki?: string;
  readonly signer?: string;
  readonly createSignerKeys: boolean;
  readonly approvals?: readonly ApprovalInFile[];
}

export function newPkiRotateCommandRoot(ports: PkiPorts, run: (options: PkiRotateOptions) => Promise<void>): Command {
  const command = new Command('rotate-command-root')
    .description('One step of a rotation of the command-signing root on the key bundle: add, switch, drop')
    .addOption(new Option('--stage <stage>', 'the step').choices(stages).makeOptionMandatory())
    .option('--force', 'skip the gates of switch and drop; needs --reason', false)
    .option('--reason <text>', 'why the gates are skipped, for the bundle and the audit trail')
    .option('--signer <reference>', 'add: keep the new root in this token or with this signer program')
    .addOption(approvalsOption())
    .addOption(createSignerKeysOption())
    .addOption(actorOption(ports.io))
    .addOption(pkiOption())
    .action((flags: RotateFlags) =>
      run({
        ...commonOptions(command),
        ...flags,
        reason: flags.reason ?? null,
        pki: flags.pki ?? null,
        signer: flags.signer ?? null,
      }),
    );
  return withExamples(command, [
    'better-compute pki rotate-command-root --stage add      # a new root beside the current one',
    'better-compute pki rotate-command-root --stage switch   # once every process and node holds it',
    'better-compute pki rotate-command-root --stage drop     # at least 24 hours later',
    'better-compute pki rotate-command-root --stage switch --force --reason "rack 7 is being scrapped"',
  ]);
}

/** ROT-006 to ROT-013, ROT-020 to ROT-028. The workflow `rotation start` does the same steps by itself. */
export async function pkiRotateCommandRootRun(options: PkiRotateOptions, ports: PkiPorts): Promise<void> {
  assertMayWriteBack(ports);
  const forcedReason = forcedReasonOf(options);
  assertSignerIsForAdd(options);
  const change =
    (signers: ExternalSigners) =>
    async (before: PkiBundle): Promise<PkiBundle> => {
      const step = await steps[options.stage]({ bundle: before, options, forcedReason, ports, signers });
      // A step that repeats one is out of order for a person: the rotation has gone past it (ROT-012).
      if (!step.changed)
        throw new ControlError('INVALID_STATE', `${options.stage}: this rotation is past that step`, {
          details: { reason: 'out-of-order' },
        });
      return step.bundle;
    };
  const { bundle } = await withSigners(ports, (signers) =>
    withSource(options.pki, ports, (source) => updateBundle(source, secretOf(ports), change(signers))),
  );
  report(bundle, options, ports);
}

function assertSignerIsForAdd({ stage, signer, createSignerKeys }: PkiRotateOptions): void {
  if (stage === 'add' || (signer === null && !createSignerKeys)) return;
  throw new ControlError('INVALID_INPUT', `--signer and --create-signer-keys belong to --stage add: ${stage} makes no key`, {
    details: { reason: 'no-new-key' },
  });
}

function forcedReasonOf({ force, reason, actor, stage }: PkiRotateOptions): string {
  const words = reason?.trim() ?? '';
  if (force && words === '')
    throw new ControlError('INVALID_INPUT', '--force needs --reason: it is kept for the audit trail', {
      details: { reason: 'reason-needed' },
    });
  if (!force && words !== '')
    throw new ControlError('INVALID_INPUT', '--reason says why a gate is forced: it needs --force', {
      details: { reason: 'force-needed' },
    });
  if (force && stage === 'add')
    throw new ControlError('INVALID_INPUT', '--force: add has no gate to skip', { details: { reason: 'nothing-to-force' } });
  return force ? `${words} (${actor})` : '';
}

interface StepInput {
  readonly bundle: PkiBundle;
  readonly options: PkiRotateOptions;
  readonly forcedReason: string;
  readonly ports: PkiPorts;
  readonly signers: ExternalSigners;
}

const steps: Readonly<Record<Stage, (input: StepInput) => Promise<BundleStep>>> = Object.freeze({
  add: ({ bundle, options: { signer, createSignerKeys }, ports, signers }) =>
    addCommandRoot(bundle, {
      rotationId: `cli-${randomUUID()}`,
      now: ports.io.now(),
      reference: signer ?? undefined,
      // A key that nobody named has a name that nobody used before: it must be made.
      keyAt: signer === null || createSignerKeys ? signers.create : signers.find,
    }),
  switch: async ({ bundle, options, forcedReason, ports }) => {
    const rotationId = rotationOf(bundle, 'switch');
    // The order of steps is judged before anybody is asked: --force never skips it (A-PKI-20).
    const step = switchCommandRoot(bundle, { rotationId, now: ports.io.now() });
    if (!step.changed) return step;
    // By the clock that the drop will be judged by.
    if (forcedReason !== '') return switchCommandRoot(bundle, { rotationId, now: await recordForce({ bundle, options, ports }) });
    return withDeployment(ports, 'the switch', async (deployment) => {
      await switchGate({ bundle, rotationId, deployment });
      return switchCommandRoot(bundle, { rotationId, now: await deployment.now() });
    });
  },
  drop: async ({ bundle, options, forcedReason, ports }) => {
    const rotationId = rotationOf(bundle, 'drop');
    const now = ports.io.now();
    // Rehearsed with an open gate, for the order of steps.
    dropCommandRoot(bundle, { rotationId, now, opensAt: 0, forcedReason });
    const times = rotationTimes(ports.io.env);
    // A forced drop still says that it came early: a daemon gives the root up only then or after the overlap.
    if (forcedReason !== '') {
      const at = await recordForce({ bundle, options, ports });
      return dropCommandRoot(bundle, { rotationId, now: at, opensAt: Number.MAX_SAFE_INTEGER, forcedReason });
    }
    const judged = await withDeployment(ports, 'the drop', (deployment) => dropGate({ bundle, deployment, times }));
    return dropCommandRoot(bundle, { rotationId, ...judged, forcedReason });
  },
});

/** The rotation a step belongs to: the one in progress, or none at all, which the step refuses. */
const rotationOf = (bundle: PkiBundle, stage: Stage): string => {
  const { rotation } = bundle.commandRoots;
  if (rotation !== null) return rotation.id;
  throw new ControlError('INVALID_STATE', `${stage} without add: no rotation is in progress`, { details: { reason: 'out-of-order' } });
};

async function withDeployment<T>(ports: PkiPorts, purpose: string, ask: (deployment: Deployment) => Promise<T>): Promise<T> {
  const deployment = await getDeployment(ports, purpose, '; or answer for it yourself: --force --reason TEXT');
  try {
    return await ask(deployment);
  } finally {
    await deployment.close();
  }
}

/** Asks the approvers first, where there are any (H-08). @returns when: the database's time, or this host's where no database is known */
async function recordForce({
  bundle,
  options: { stage, actor, reason, approvals = [] },
  ports,
}: Pick<StepInput, 'bundle' | 'options' | 'ports'>): Promise<number> {
  const deployment = await ports.deployment();
  if (deployment === null) {
    ports.io.err('warning: no database is known, so the audit trail does not hold this decision');
    return ports.io.now();
  }
  try {
    const published = await deployment.published();
    const rotationId = rotationOf(bundle, stage);
    const quorum = published === null ? noQuorum : quorumOfBytes(published.body);
    const approvers = await assertOverrideApproved(
      { published: async () => quorum, trustDomain: () => bundle.trustDomain },
      { rotationId, kind: 'force', subject: stage, reason: reason ?? '', approvals },
    );
    const version = published?.version ?? 0;
    const fleet = await deployment.fleet(version, []);
    const leftBehind = fleet.sample.map(({ nodeId }) => nodeId);
    const details = { version, connected: fleet.connected, behind: fleet.behind, leftBehind, approvers };
    await deployment.recordForce({ rotationId, stage, actor, reason: reason ?? '', details });
    return await deployment.now();
  } finally {
    await deployment.close();
  }
}

const next: Readonly<Record<Stage, string>> = Object.freeze({
  add: 'roll the bundle out to every process; daemons get the new version by themselves. Then: better-compute pki rotate-command-root --stage switch',
  switch:
    'roll the bundle out to every process; workers sign under the new root. At least 24 hours later: better-compute pki rotate-command-root --stage drop',
  drop: 'roll the bundle out to every process; daemons get the new version by themselves. The rotation is done.',
});

function report(bundle: PkiBundle, { stage, json }: PkiRotateOptions, ports: PkiPorts): void {
  const commandRoots = commandRootPins(bundle);
  const { rotation, lastRotation } = bundle.commandRoots;
  const done = {
    stage,
    rotation: rotation?.id ?? lastRotation?.id ?? null,
    trustVersion: bundle.trustVersion,
    generation: bundle.generation,
    bundleDigest: bundleDigest(bundle),
  };
  if (json) return writeJson(ports.io, { ...done, commandRoots });
  ports.io.out(
    [
      ...Object.entries(done).map(([name, value]) => `${name}: ${value}`),
      ...commandRoots.map((root) => `commandRoot: ${rootLine(root)}`),
    ].join('\n'),
  );
  ports.io.err(`next: ${next[stage]}`);
}
