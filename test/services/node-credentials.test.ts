import assert from 'node:assert/strict';
import { findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { readAuditEvents } from '../../services/audit.ts';
import { writeNodeSpec } from '../../services/desired-state.ts';
import { accessKeysOf, writeAccess } from '../../services/node-access.ts';
import { type NodeCredentialOptions, setNodeCredential } from '../../services/node-credentials.ts';
import { useDatabase } from '../harness/postgres.ts';
import { addNode, keyring, refused, testBundle, trustDomain } from './support.ts';

describe('credentials that a desired state names', () => {
  const used = useDatabase();
  let options: NodeCredentialOptions;
  const announced: string[] = [];
  before(async () => {
    const worker = await keyring(used.db, { now: Date.now });
    options = { db: used.db, worker, trustDomain, announce: async (ids) => void announced.push(...ids) };
    for (const id of ['node-1', 'node-2']) await addNode(used.db, id);
  });
  const words = { actor: 'ann', reason: 'joins eu-1' };
  const specOf = async (id: string) => (await findStoredSpec(used.db, id))?.spec;
  const token = { nodeId: 'node-1', name: 'k8s-join', ref: 'secret://k8s/eu-1/token', ...words } as const;

  it('SEC-007 the reference goes into the next generation, beside what others wrote, with an event of the trail; a repeat changes nothing', async () => {
    const keys = accessKeysOf(await testBundle());
    const before = await writeAccess({ ...options, keys }, 'node-1');
    announced.length = 0;
    assert.equal(await setNodeCredential(options, token), before + 1);
    assert.equal(await setNodeCredential(options, token), before + 1);
    assert.deepEqual(new Set(announced), new Set(['node-1']));
    assert.equal(await setNodeCredential(options, { ...token, name: 'telemetry', ref: 'env://OTLP_HEADERS' }), before + 2);
    const spec = (await specOf('node-1')) as Record<string, unknown>;
    assert.deepEqual(Object.keys(spec).sort(), ['access', 'k8sJoin', 'telemetry']);
    assert.deepEqual([spec['k8sJoin'], spec['telemetry']], [{ tokenRef: token.ref }, { headersRef: 'env://OTLP_HEADERS' }]);
    assert.equal(await setNodeCredential(options, { ...token, ref: null }), before + 3);
    assert.deepEqual(Object.keys((await specOf('node-1')) as object).sort(), ['access', 'telemetry']);
    const events = await readAuditEvents(used.db, { afterSeq: 0, limit: 100 });
    assert.deepEqual(
      events.map(({ action, actor, subject, details }) => [action, actor, subject, (details as { ref: unknown }).ref]),
      [
        ['node.credential', 'ann', 'node-1', token.ref],
        ['node.credential', 'ann', 'node-1', 'env://OTLP_HEADERS'],
        ['node.credential', 'ann', 'node-1', null],
      ],
    );
    await assert.rejects(setNodeCredential(options, { ...token, nodeId: 'nobody' }), refused('NOT_FOUND', /no node is called nobody/));
  });

  it('writers of different sections do not undo each other, whoever reads first', async () => {
    const { db, worker } = options;
    const write = (name: string) =>
      writeNodeSpec({ db, worker, trustDomain, nodeId: 'node-2', now: Date.now(), spec: (stored) => ({ ...stored, [name]: {} }) }).catch(
        (error: Error) => error.message,
      );
    await Promise.all(['daemon', 'k8sJoin', 'telemetry'].map(write));
    for (const name of ['daemon', 'k8sJoin', 'telemetry']) await write(name);
    assert.deepEqual(await specOf('node-2'), { daemon: {}, k8sJoin: {}, telemetry: {} });
  });
});
