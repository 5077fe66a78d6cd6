/** Enrolments as the routes and the command line see them: what is ordered is kept; a machine called `good…` completes when it is looked at. */
import type { OperatorEnrolments } from '../../api/operator-enrolments.ts';
import { ControlError } from '../../domain/errors.ts';
import { workflowIds } from '../../temporal.config.ts';

export function createFakeEnrolments(): OperatorEnrolments {
  const kept = new Map<string, Awaited<ReturnType<OperatorEnrolments['get']>>>();
  const get: OperatorEnrolments['get'] = async (id) => {
    const found = kept.get(id);
    if (found === undefined) throw new ControlError('NOT_FOUND', `no enrolment is called ${id}`);
    if (found.state !== 'open') return found;
    const over = found.nodeId.startsWith('good')
      ? { ...found, state: 'completed' as const, endedAt: 2 }
      : { ...found, state: 'failed' as const, endedAt: 2, endReason: 'the machine cannot be enrolled: it has no node' };
    kept.set(id, over);
    return over;
  };
  const draft: OperatorEnrolments['draft'] = async ({ kind, nodeId, address = '10.0.0.7', ...rest }) => {
    if (rest.hostKey === undefined && kind === 'enrol')
      throw new ControlError('INVALID_INPUT', 'the host key is not known, and none is trusted on first use', {
        details: { reason: 'ssh-hostkey-required' },
      });
    return {
      kind,
      nodeId,
      siteId: 'eu-1',
      role: 'node',
      tenantId: 'default',
      baseGeneration: kind === 'enrol' ? null : 3,
      address,
      port: rest.port ?? 22,
      login: rest.login ?? 'root',
      becomeRoot: rest.becomeRoot ?? false,
      hostKey: rest.hostKey ?? `SHA256:${'A'.repeat(43)}`,
      credential: rest.credential ?? 'file://web',
    };
  };
  return {
    draft,
    get,
    async order(order, { actor, reason }) {
      const id = `enr-${String(kept.size + 1).padStart(24, '0')}`;
      const drafted = await draft(order);
      const ordered = {
        ...drafted,
        id,
        state: 'open' as const,
        deadline: null,
        createdBy: actor,
        reason,
        createdAt: 1,
        endedAt: null,
        endReason: '',
      };
      kept.set(id, { ...ordered, workflowId: workflowIds.enrolment(order.nodeId) });
      return { ...ordered, workflowId: workflowIds.enrolment(order.nodeId) };
    },
    list: async ({ nodeId, openOnly }) =>
      [...kept.values()].filter((one) => (nodeId === null || one.nodeId === nodeId) && (!openOnly || one.state === 'open')),
    async cancel(id, { reason }) {
      const found = kept.get(id);
      if (found?.state !== 'open') throw new ControlError('INVALID_STATE', `enrolment ${id} is ${found?.state ?? 'gone'}`);
      const ended = { ...found, state: 'cancelled' as const, endedAt: 2, endReason: reason };
      kept.set(id, ended);
      return ended;
    },
  };
}
