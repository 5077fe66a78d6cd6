import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { create, fromBinary, toBinary, toJson } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { day } from '../../../domain/time.ts';
import { certificateAuthorityOf } from '../../../pki/authority/index.ts';
import {
  createWorkerKey,
  desiredStateBodyFromJson,
  desiredStateFromStored,
  encodeDesiredStateBody,
  storedDesiredState,
  verifyDesiredState,
  verifyIntent,
  type WorkerKey,
} from '../../../pki/envelope/index.ts';
import { createSerial } from '../../../pki/x509/index.ts';
import { DesiredStateBodySchema, DesiredStateSchema, NodeSpecSchema } from '../../../proto/index.ts';
import { now, refusal, sharedBundle, trustDomain } from '../support.ts';

const spec = toBinary(
  NodeSpecSchema,
  create(NodeSpecSchema, { daemon: { statusIntervalSeconds: 30, restartableUnits: ['nginx.service'] } }),
);
const input = { nodeId: 'n1', generation: 7, trustDomain, spec };

describe('desired state', () => {
  let worker: WorkerKey;
  let roots: Uint8Array[];
  before(async () => {
    const root = (await sharedBundle()).commandSigning;
    assert.ok(root !== undefined);
    roots = [root.certificate.der];
    worker = await createWorkerKey({ root: certificateAuthorityOf(root), now, lifetimeMs: day, serial: createSerial() });
  });

  const options = (change = {}) => ({ roots, now, nodeId: 'n1', required: true, trustDomain, ...change });

  it('SPEC-001 SPEC-002 SPEC-004 SPEC-007 is signed by a worker key and relayed as stored', async () => {
    const stored = await storedDesiredState(worker, input);
    const desired = desiredStateFromStored(stored);
    assert.deepEqual(desired.body, stored.body);
    const { body, signer } = verifyDesiredState(desired, options());
    assert.deepEqual([body.nodeId, body.generation, signer?.serial], ['n1', 7n, worker.serial]);
    const asCommand = { purpose: 'command', body: desired.body, signature: desired.signature, roots, now, required: true } as const;
    assert.throws(() => verifyIntent(asCommand), refusal('BAD_SIGNATURE', 'bad-signature', /command/));
  });

  it('SPEC-003 names the hash of the encoded spec', () => {
    const body = fromBinary(DesiredStateBodySchema, encodeDesiredStateBody(input));
    assert.deepEqual(Buffer.from(body.specSha256), createHash('sha256').update(spec).digest());
  });

  it('SPEC-008 SPEC-009 the rendering from JSON is byte for byte what the writer makes', () => {
    const units = fc.array(fc.string({ maxLength: 20 }), { maxLength: 4 });
    const specs = fc.record({
      interval: fc.nat(0xffff_ffff),
      units,
      jwks: units,
      krl: fc.uint8Array({ maxLength: 40 }),
      daemon: fc.boolean(),
      access: fc.boolean(),
    });
    fc.assert(
      fc.property(
        specs,
        fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
        ({ interval, units: restartableUnits, jwks, krl, daemon, access }, generation) => {
          const message = create(NodeSpecSchema, {
            ...(daemon ? { daemon: { statusIntervalSeconds: interval, restartableUnits } } : {}),
            ...(access ? { access: { jwks, sshKrl: krl } } : {}),
          });
          const json = JSON.parse(JSON.stringify(toJson(NodeSpecSchema, message))) as ReturnType<typeof toJson>;
          const written = encodeDesiredStateBody({ ...input, generation, spec: toBinary(NodeSpecSchema, message) });
          assert.deepEqual(desiredStateBodyFromJson({ nodeId: 'n1', generation, trustDomain, json }), written);
        },
      ),
    );
  });

  it('SPEC-008 a stored spec that is no NodeSpec is MALFORMED', () => {
    for (const json of [{ unknown: 1 }, [], 'text', { daemon: { statusIntervalSeconds: -1 } }]) {
      assert.throws(
        () => desiredStateBodyFromJson({ nodeId: 'n1', generation: 1, trustDomain, json }),
        refusal('MALFORMED', 'node-spec', /is not a NodeSpec/),
      );
    }
  });

  it('SPEC-010 refuses what is unsigned, foreign, late or for another node', async () => {
    const desired = desiredStateFromStored(await storedDesiredState(worker, input));
    const unsigned = create(DesiredStateSchema, { body: desired.body });
    assert.throws(() => verifyDesiredState(unsigned, options()), refusal('BAD_SIGNATURE', 'unsigned', /the desired-state is not signed/));
    assert.equal(verifyDesiredState(unsigned, options({ required: false })).signer, null);
    assert.throws(
      () => verifyDesiredState(desired, options({ nodeId: 'n2' })),
      refusal('PERMISSION_DENIED', 'wrong-node', /for node n1, not n2/),
    );
    assert.throws(
      () => verifyDesiredState(desired, options({ trustDomain: 'other' })),
      refusal('PERMISSION_DENIED', 'wrong-trust-domain', /of trust domain compute/),
    );
    assert.throws(
      () => verifyDesiredState(desired, options({ now: now + 2 * day })),
      refusal('BAD_SIGNATURE', 'signer-expired', /expired/),
    );
    assert.throws(() => verifyDesiredState(desired, options({ roots: [] })), refusal('BAD_SIGNATURE', 'unknown-root', /held roots/));
  });

  it('SPEC-003 SPEC-010 refuses another hash and bytes that do not decode', () => {
    const lying = fromBinary(DesiredStateBodySchema, encodeDesiredStateBody(input));
    lying.specSha256 = new Uint8Array(32);
    const body = toBinary(DesiredStateBodySchema, lying);
    assert.throws(
      () => verifyDesiredState(create(DesiredStateSchema, { body }), options({ required: false })),
      refusal('MALFORMED', 'spec-hash', /another hash/),
    );
    const garbage = create(DesiredStateSchema, { body: Buffer.from([0xff]) });
    assert.throws(
      () => verifyDesiredState(garbage, options({ required: false })),
      refusal('MALFORMED', 'desired-state', /does not decode/),
    );
  });
});
