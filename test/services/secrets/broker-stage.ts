/** The broker of secrets over a real database that holds one secret, a site agent of each test, and how a machine asks. */
import assert from 'node:assert/strict';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { splitCommandId } from '../../../domain/secrets/binding.ts';
import { day } from '../../../domain/time.ts';
import { createSecretRequest, openSecretResponse, type PendingSecret } from '../../../pki/secrets/index.ts';
import { signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { type SecretRequest, SecretRequestSchema, type SecretResponse, SecretResponseSchema } from '../../../proto/index.ts';
import { brokerSecret, type SecretBrokerOptions } from '../../../services/secrets/broker.ts';
import { createSecretResolver } from '../../../services/secrets/providers.ts';
import { setSecret } from '../../../services/secrets/store.ts';
import { settleAndPublish } from '../../../services/trust-publication.ts';
import { useDatabase } from '../../harness/postgres.ts';
import { type EnrolledNode, enrol, recordingLog, testBundle, trustDomain } from '../support.ts';

export const secret = 'a secret of thirty-two characters at least';
/** What secret://bmc/m-1 holds. */
export const password = '{"username":"root","password":"calvin-and-hobbes"}';

export type Ask = { id?: string; ref?: string; node?: EnrolledNode; workflowId?: string; stepId?: string; allocationId?: string };

/** Called inside a `describe`. */
export function setBrokerStage() {
  const used = useDatabase();
  const stage = { agent: undefined as unknown as EnrolledNode, log: recordingLog(), count: 0 };
  before(async () => {
    const bundle = await testBundle();
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: Date.now(), log: recordingLog() });
    const path = { path: 'bmc/m-1', value: Buffer.from(password), secret, actor: 'olga', now: Date.now() };
    await used.db.transaction((tx) => setSecret(tx, path));
  });
  beforeEach(async () => {
    stage.count += 1;
    stage.agent = await enrol(used.db, `site-${stage.count}`, { now: Date.now(), role: 'site' });
    stage.log = recordingLog();
  });

  const ask = ({ id = '', ref = 'secret://bmc/m-1', node = stage.agent, ...binding }: Ask): Promise<PendingSecret> =>
    createSecretRequest({ signer: signerFromPrivateKey(node.key.privateKey), ref, ...splitCommandId(id), ...binding });
  const encode = (request: SecretRequest): Uint8Array => toBinary(SecretRequestSchema, request);
  async function send(
    bytes: Uint8Array,
    changes: Partial<SecretBrokerOptions> & { chain?: Uint8Array[]; node?: EnrolledNode } = {},
  ): Promise<SecretResponse> {
    const keys = await testBundle();
    const { node = stage.agent, chain = [node.certificate.der, keys.nodeCa.certificate.der], ...rest } = changes;
    const settings = { secret, vault: null, environment: { allowed: [], values: {} } };
    const options = {
      db: used.db,
      trustDomain,
      anchors: [keys.nodeCa.certificate.der],
      nodeCa: keys.nodeCa.spki,
      joinKey: keys.joinSigning.spki,
      resolve: createSecretResolver(used.db, settings),
      log: stage.log,
      ...rest,
    };
    return fromBinary(SecretResponseSchema, await brokerSecret(bytes, { chain }, options));
  }
  const wordOf = async (asked: Ask, changes?: Parameters<typeof send>[1]): Promise<string> => {
    const pending = await ask(asked);
    const { error, jwe, requestId } = await send(encode(pending.request), {
      ...(asked.node === undefined ? {} : { node: asked.node }),
      ...changes,
    });
    assert.equal(requestId, pending.request.requestId);
    return jwe === ''
      ? error
      : Buffer.from(
          openSecretResponse({ $typeName: 'bettercompute.agent.v1.SecretResponse', requestId, jwe, error }, { pending, now: Date.now() }),
        ).toString();
  };
  return { used, stage, ask, encode, send, wordOf };
}
