/** What a control worker makes sure of before it polls: search attributes and schedules. */
import assert from 'node:assert/strict';
import type { Connection } from '@temporalio/client';
import proto from '@temporalio/proto';
import { ControlError } from '../../domain/errors.ts';
import { scheduleIds } from '../../temporal.config.ts';
import { ensureSchedules } from '../../workers/schedules.ts';
import { ensureSearchAttributes, registerCommand } from '../../workers/search-attributes.ts';
import { sharedTemporal, type TestTemporal } from '../harness/temporal.ts';

const { IndexedValueType } = proto.temporal.api.enums.v1;

describe('the namespace', function () {
  this.timeout(60_000);
  let temporal: TestTemporal;
  before(async () => {
    temporal = await sharedTemporal();
  });

  it('registers what is missing, and again changes nothing', async () => {
    const { operatorService } = temporal.connection;
    await operatorService.removeSearchAttributes({ namespace: 'default', searchAttributes: ['BcBehind'] });
    await ensureSearchAttributes(temporal.connection, 'default');
    await ensureSearchAttributes(temporal.connection, 'default');
    const { customAttributes } = await operatorService.listSearchAttributes({ namespace: 'default' });
    assert.equal(customAttributes['BcBehind'], IndexedValueType.INDEXED_VALUE_TYPE_INT);
  });

  /** Answers as an operator service does that this caller may only read. */
  const readOnly = (customAttributes: Record<string, number>): Connection =>
    ({
      operatorService: {
        listSearchAttributes: async () => ({ customAttributes }),
        addSearchAttributes: async () => {
          throw new Error('7 PERMISSION_DENIED');
        },
      },
    }) as unknown as Connection;

  it('refuses to start when one cannot be had, with the command to run', async () => {
    const have = {
      BcSummary: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
      BcPhase: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
      BcWaitingOn: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    };
    await assert.rejects(ensureSearchAttributes(readOnly(have), 'fleet'), (error: unknown) => {
      assert.ok(error instanceof ControlError);
      assert.equal(error.code, 'INVALID_CONFIG');
      assert.equal(
        error.message,
        'namespace fleet lacks the search attribute(s) BcDeadline, BcBehind; run: temporal operator search-attribute create --namespace fleet --name BcDeadline --type Datetime --name BcBehind --type Int',
      );
      return true;
    });
    assert.match(registerCommand('fleet', ['BcPhase']), /--name BcPhase --type Keyword$/);
  });

  it('refuses one of another type', async () => {
    await assert.rejects(
      ensureSearchAttributes(readOnly({ BcPhase: IndexedValueType.INDEXED_VALUE_TYPE_TEXT }), 'fleet'),
      /^ControlError: search attribute\(s\) BcPhase of namespace fleet have another type than Keyword$/,
    );
  });

  it('ensures the schedules at every start, and leaves a paused one paused', async () => {
    // The server is shared: a worker of another file may have left its own, under a key this client does not have.
    for (const id of Object.values(scheduleIds))
      await temporal.client.schedule
        .getHandle(id)
        .delete()
        .catch(() => undefined);
    await ensureSchedules(temporal.client);
    await temporal.client.schedule.getHandle(scheduleIds.resign).pause('someone looks into it');
    await ensureSchedules(temporal.client);
    const resign = await temporal.client.schedule.getHandle(scheduleIds.resign).describe();
    assert.equal(resign.state.paused, true);
    assert.equal(resign.action.type === 'startWorkflow' && resign.action.workflowType, 'resignExpiring');
    const reconcile = await temporal.client.schedule.getHandle(scheduleIds.reconcileCommands).describe();
    assert.equal(reconcile.spec.intervals?.[0]?.every, 60_000);
    assert.equal(String(reconcile.policies.overlap), 'SKIP');
    for (const id of Object.values(scheduleIds)) await temporal.client.schedule.getHandle(id).delete();
  });
});
