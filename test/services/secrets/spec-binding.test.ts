/** What the desired state of a node names is that node's to ask for (SEC-007), and nobody else's; what nobody signed so is nobody's. */
import assert from 'node:assert/strict';
import type { JsonObject } from '@bufbuild/protobuf';
import { writeNodeSpec } from '../../../services/desired-state.ts';
import { enrol, keyring, trustDomain } from '../support.ts';
import { password, setBrokerStage } from './broker-stage.ts';

describe('secrets that the desired state names', () => {
  const { used, stage, wordOf } = setBrokerStage();
  const pairs = [
    { workflowId: 'host:k8s-join', stepId: 'tokenRef', spec: { k8sJoin: { tokenRef: 'secret://bmc/m-1' } } },
    { workflowId: 'host:telemetry', stepId: 'headersRef', spec: { telemetry: { headersRef: 'secret://bmc/m-1' } } },
  ];
  const write = async (spec: JsonObject, nodeId = stage.agent.id): Promise<number> =>
    writeNodeSpec({ db: used.db, worker: await keyring(used.db, { now: Date.now }), trustDomain, nodeId, spec, now: Date.now() });

  for (const { workflowId, stepId, spec } of pairs) {
    const other = pairs.find((pair) => pair.stepId !== stepId);
    it(`SEC-007 ${workflowId} / ${stepId} gets it while the node’s own spec names it there, and nowhere else`, async () => {
      assert.equal(await wordOf({ workflowId, stepId }), 'not-bound', 'it has no spec');
      await write(spec);
      assert.equal(await wordOf({ workflowId, stepId }), password);
      assert.equal(await wordOf({ workflowId, stepId, ref: 'secret://bmc/m-2' }), 'not-bound', 'it names another one');
      const elsewhere = [
        { workflowId: other?.workflowId ?? '', stepId: other?.stepId ?? '' },
        { workflowId, stepId: other?.stepId ?? '' },
        { workflowId: other?.workflowId ?? '', stepId },
        { workflowId: 'host:access', stepId: 'sshUserCa' },
        { workflowId, stepId: '' },
        { workflowId, stepId: stepId.replace('Ref', '_ref') },
        { workflowId: `${workflowId}/x`, stepId },
        { workflowId, stepId, allocationId: 'i-1' },
      ];
      for (const place of elsewhere) assert.equal(await wordOf(place), 'not-bound', JSON.stringify(place));
      const stranger = await enrol(used.db, `stranger-${stepId}-${stage.count}`, { now: Date.now() });
      assert.equal(await wordOf({ workflowId, stepId, node: stranger }), 'not-bound', 'another node’s spec');
      await write({ daemon: { statusIntervalSeconds: 60 } });
      assert.equal(await wordOf({ workflowId, stepId }), 'not-bound', 'it names it no more');
    });
  }

  it('SEC-007 SPEC-003 a spec that nobody signed so gives nothing: changed in the rows, of another node, without its signature', async () => {
    const [{ workflowId, stepId, spec } = assert.fail()] = pairs;
    const set = (what: string, ...values: unknown[]) =>
      used.db.query({ text: `update nodes set ${what} where id = $1` }, [stage.agent.id, ...values]);
    await write({});
    await set('spec = $2', JSON.stringify(spec));
    assert.equal(await wordOf({ workflowId, stepId }), 'not-bound', 'the rendered spec is not what was signed');
    const other = await enrol(used.db, `spec-of-${stage.count}`, { now: Date.now() });
    await write(spec, other.id);
    await used.db.query(
      { text: 'update nodes a set spec_body = b.spec_body, spec_signature = b.spec_signature from nodes b where a.id = $1 and b.id = $2' },
      [stage.agent.id, other.id],
    );
    assert.equal(await wordOf({ workflowId, stepId }), 'not-bound', 'it was signed for another node');
    assert.equal(await wordOf({ workflowId, stepId, node: other }), password);
    await used.db.query({ text: 'update nodes set spec_signature = null where id = $1' }, [other.id]);
    assert.equal(await wordOf({ workflowId, stepId, node: other }), 'not-bound');
  });

  it('SEC-007 SEC-011 a machine that is let to a tenant gets none of them', async () => {
    const tenant = await enrol(used.db, `tenant-spec-${stage.count}`, { now: Date.now(), role: 'node-tenant' });
    for (const { workflowId, stepId, spec } of pairs) {
      await write(spec, tenant.id);
      assert.equal(await wordOf({ workflowId, stepId, node: tenant }), 'access-denied');
    }
  });
});
