/** The workload issuer among the options of a deployment, and behind the port of its gateways. */
import assert from 'node:assert/strict';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { decodeJwt } from 'jose';
import {
  createGatewayServices,
  createWorkloadIssuer,
  type DeploymentOptions,
  defineConfig,
  initialise,
  pkiJoinCrypto,
} from '../../config/index.ts';
import { createWorkloadTokenRequest, openWorkloadTokenResponse } from '../../pki/workload/index.ts';
import { signerFromPrivateKey } from '../../pki/x509/index.ts';
import { WorkloadTokenRequestSchema, WorkloadTokenResponseSchema } from '../../proto/index.ts';
import { placeInstance } from '../../services/workload-instances.ts';
import { useDatabase } from '../harness/postgres.ts';
import { type EnrolledNode, enrol, recordingLog, refused, t0, testBundle } from '../services/support.ts';

describe('workload identity of a deployment in code', () => {
  const used = useDatabase();
  let host: EnrolledNode;
  before(async () => {
    host = await enrol(used.db, 'host-config', { now: Date.now() });
    await placeInstance(used.db, { instanceId: 'i-1', tenantId: 'acme', nodeId: host.id }, t0);
  });

  async function optionsWith(more: Partial<DeploymentOptions>): Promise<Readonly<DeploymentOptions>> {
    const { trustDomain, nodeCa, joinSigning, joinEncryption } = await testBundle();
    const join = pkiJoinCrypto({ trustDomain, nodeCa, signingKey: joinSigning, encryptionKey: joinEncryption.privateKey });
    return initialise(defineConfig(() => ({ pki: { nodeCa, join }, ...more })));
  }

  /** What the host of these options is told. */
  async function ask({ pki, workloadIdentity }: DeploymentOptions): Promise<string> {
    const log = recordingLog();
    const workload = workloadIdentity === undefined ? null : () => workloadIdentity.issuer;
    const services = createGatewayServices({ db: used.db, crypto: () => pki.join, workload, log, now: () => t0 });
    const pending = await createWorkloadTokenRequest({ signer: signerFromPrivateKey(host.key.privateKey), instanceId: 'i-1' });
    const bytes = await services.workloadToken?.(toBinary(WorkloadTokenRequestSchema, pending.request), { chain: [host.certificate.der] });
    return openWorkloadTokenResponse(fromBinary(WorkloadTokenResponseSchema, bytes as Uint8Array), { pending, now: t0 }).token;
  }

  it('WID-003 WID-004 the issuer is an option; with it hosts get tokens, without it they are told that there are none', async () => {
    const issuer = createWorkloadIssuer({ issuer: 'https://id.example.com', defaultAudience: 'https://api.example.com', now: () => t0 });
    const token = await ask(await optionsWith({ workloadIdentity: { issuer } }));
    assert.equal(decodeJwt(token).sub, 't:acme:instance:i-1');
    await assert.rejects(ask(await optionsWith({})), refused('UNSUPPORTED', /\(disabled\)/, 'disabled'));
  });

  it('WID-004 refuses what is no issuer, by name', async () => {
    const bad: [unknown, RegExp][] = [
      [{}, /workloadIdentity\.issuer must come from createWorkloadIssuer/],
      [{ issuer: 'https://id.example.com' }, /workloadIdentity\.issuer must come from createWorkloadIssuer/],
      [{ isuer: {} }, /workloadIdentity\.isuer is no option: did you mean workloadIdentity\.issuer\?/],
      [7, /workloadIdentity\.issuer must come from/],
    ];
    for (const [workloadIdentity, message] of bad)
      await assert.rejects(optionsWith({ workloadIdentity: workloadIdentity as never }), refused('INVALID_CONFIG', message, 'options'));
  });
});
