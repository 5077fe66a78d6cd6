import { Command } from 'commander';
import { ControlError } from '../../../domain/errors.ts';
import { type CommonOptions, commonOptions, withExamples } from '../../command.ts';
import { facts } from '../../format.ts';
import { writeJson } from '../../io.ts';
import type { Ports } from '../../ports.ts';

export function newApproversShow(run: (options: CommonOptions) => Promise<void>): Command {
  const command = new Command('show')
    .description('Who approves: the published set, its epoch and digest, and the machines that enforce another one')
    .action(() => run(commonOptions(command)));
  return withExamples(command, ['better-compute approvers show']);
}

/** From the bytes that machines are given, and from what their sessions say. */
export async function approversShowRun({ json }: CommonOptions, { io, settings }: Ports): Promise<void> {
  const url = settings.databaseUrl();
  if (url === null) {
    throw new ControlError('UNAVAILABLE', 'neither the environment nor a running stack names the database', {
      details: { reason: 'no-database', hint: 'set BETTER_COMPUTE_DATABASE_URL' },
    });
  }
  const [{ createDatabase }, { readPublishedQuorum }, { approverFleetFacts }, { approverSetDigest }] = await Promise.all([
    import('../../../drizzle/client.ts'),
    import('../../../services/published-quorum.ts'),
    import('../../../drizzle/queries/approver-fleet.ts'),
    import('../../../pki/trust/index.ts'),
  ]);
  const db = createDatabase(url, { applicationName: 'better-compute approvers', max: 1 });
  try {
    const quorum = await readPublishedQuorum(db);
    const epoch = Number(quorum.approverSetEpoch);
    const sha256 = quorum.approverKeys.length === 0 ? null : approverSetDigest(quorum);
    const fleet = await approverFleetFacts(db, { epoch, sha256, excluded: [] });
    const shown = {
      epoch,
      sha256,
      threshold: quorum.approverThreshold,
      approvers: quorum.approverKeys.map(({ kid }) => kid),
      tiers: quorum.tiers,
      unbatchedDestructivePerHour: quorum.unbatchedDestructivePerHour,
      connected: fleet.connected,
      behind: fleet.behind,
      behindSample: fleet.sample,
    };
    if (json) return writeJson(io, shown);
    io.out(
      facts([
        ['approvers', sha256 === null ? 'none: batches need no approval' : `${shown.threshold} of ${shown.approvers.length}`],
        ['epoch', String(epoch)],
        ...(sha256 === null
          ? []
          : ([['digest', sha256], ...shown.approvers.map((kid): [string, string] => ['key', kid])] as [string, string][])),
        ...shown.tiers.map(({ maxScopeSize, threshold }): [string, string] => ['tier', `up to ${maxScopeSize}: ${threshold}`]),
        ['unbatched', `${shown.unbatchedDestructivePerHour} an hour and machine`],
        ['machines', `${fleet.connected - fleet.behind} of ${fleet.connected} connected enforce it`],
        ...fleet.sample.map(({ nodeId, epoch: held }): [string, string] => ['behind', `${nodeId} at epoch ${held ?? 0}`]),
      ]),
    );
  } finally {
    await db.close();
  }
}
