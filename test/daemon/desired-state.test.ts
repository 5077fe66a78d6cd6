import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import { desiredStateFromStored, storedDesiredState, type WorkerKey } from '../../pki/envelope/index.ts';
import { type DesiredState, NodeSpecSchema, SectionState } from '../../proto/index.ts';
import { eventually } from '../harness/eventually.ts';
import { setStage } from './stage.ts';

describe('desired state in the daemon', () => {
  const stage = setStage();

  interface Init {
    readonly generation?: number;
    readonly nodeId?: string;
    readonly worker?: WorkerKey;
    readonly spec?: Uint8Array;
  }

  async function desired({ generation = 1, nodeId = 'node-1', worker, spec }: Init = {}): Promise<DesiredState> {
    const bytes = spec ?? toBinary(NodeSpecSchema, create(NodeSpecSchema, { daemon: { restartableUnits: ['a.service'] }, access: {} }));
    const { trustDomain, workerA } = stage.deployment;
    return desiredStateFromStored(await storedDesiredState(worker ?? workerA, { nodeId, generation, trustDomain, spec: bytes }));
  }

  it('SPEC-010 SKEW-037 SKEW-038 takes a newer generation and reports each section, those it does not know as unsupported', async () => {
    const gateway = await stage.gatewayWith();
    await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    await session.take('status');
    // Field 99 of a newer protocol behind the known sections.
    const known = toBinary(NodeSpecSchema, create(NodeSpecSchema, { daemon: {}, access: {} }));
    const spec = Buffer.concat([known, Buffer.from([0x9a, 0x06, 0x00])]);
    session.send({ frame: { case: 'desiredState', value: await desired({ generation: 4, spec }) } });
    const report = await session.take('status');
    assert.equal(report.specGeneration, 4n);
    assert.deepEqual(
      report.sections.map(({ section, state }) => [section, SectionState[state]]),
      [
        ['daemon', 'APPLIED'],
        ['access', 'UNSUPPORTED'],
        ['field-99', 'UNSUPPORTED'],
      ],
    );
    gateway.cut();
    assert.equal((await gateway.nextSession()).hello?.specGeneration, 4n);
  });

  it('SPEC-010 state that is unsigned, of a foreign signer, of another node or broken is refused by name, an older one passed over', async () => {
    const gateway = await stage.gatewayWith();
    const member = await stage.daemonAt(gateway.url);
    const session = await gateway.nextSession();
    const unsigned = await desired();
    delete unsigned.signature;
    const refusals: [DesiredState, string][] = [
      [unsigned, 'desired-state-unsigned'],
      [await desired({ worker: stage.deployment.foreignWorker }), 'desired-state-unknown-root'],
      [await desired({ nodeId: 'node-2' }), 'desired-state-wrong-node'],
      [await desired({ spec: Buffer.from([0xff]) }), 'desired-state-node-spec'],
    ];
    for (const [value, reason] of refusals) {
      session.send({ frame: { case: 'desiredState', value } });
      await eventually(reason, () => member.status().lastRefusal?.reason === reason);
    }
    session.send({ frame: { case: 'desiredState', value: await desired({ generation: 7 }) } });
    await eventually('taken', () => member.agent.state.spec.current?.generation === 7n);
    session.send({ frame: { case: 'desiredState', value: await desired({ generation: 6 }) } });
    session.send({ frame: { case: 'desiredState', value: await desired({ generation: 8 }) } });
    await eventually('taken', () => member.agent.state.spec.current?.generation === 8n);
    assert.equal(member.status().lastRefusal?.reason, 'desired-state-node-spec', 'an older generation is no refusal');
  });
});
