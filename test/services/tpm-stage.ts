/** Attestor tpm over a database, and machines with TPMs of their own (swtpm) that ask it. */
import assert from 'node:assert/strict';
import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { tpmAnswer, tpmEvidence } from '../../daemon/tpm/attest.ts';
import type { TpmPlace } from '../../daemon/tpm/machine-tpm.ts';
import { day } from '../../domain/time.ts';
import { verifyJoinResponse } from '../../pki/enroll/index.ts';
import { parseTpmPublic, spkiDigest } from '../../pki/tpm/index.ts';
import { type Certificate, parseCertificate } from '../../pki/x509/index.ts';
import {
  type JoinDeferral,
  type JoinGranted,
  JoinRequestSchema,
  type JoinResponseBody,
  type TpmEvidence,
  TpmEvidenceSchema,
} from '../../proto/index.ts';
import { createGatewayServices } from '../../services/gateway-services.ts';
import type { JoinPolicy, TpmEnrolment, TpmTrust } from '../../services/join/types.ts';
import { settleAndPublish } from '../../services/trust-publication.ts';
import { useDatabase } from '../harness/postgres.ts';
import { removeScratchFolders, scratchFolder } from '../harness/scratch.ts';
import { type SoftwareTpm, startSwtpm, swtpmMissing } from '../harness/swtpm.ts';
import { joinRequest } from './identity-support.ts';
import { csrOf, type NodeKey, newKey, recordingLog, sha256, t0, testBundle } from './support.ts';

type Ek = TpmPlace['ek'];

export interface TpmMachine {
  readonly tpm: SoftwareTpm;
  readonly dataDir: string;
  readonly ek: Ek;
  readonly ekSha256: string;
  /** As the first request shows it. */
  readonly shown: Uint8Array;
}

export interface Answering {
  readonly key: NodeKey;
  readonly csr: Uint8Array;
  readonly evidence: Uint8Array;
}

export const deferredOf = ({ outcome }: JoinResponseBody): JoinDeferral => {
  assert.equal(outcome.case, 'deferral');
  return outcome.value;
};
export const grantedOf = ({ outcome }: JoinResponseBody): JoinGranted => {
  assert.equal(outcome.case, 'granted');
  return outcome.value;
};
export const leafOf = ({ chain }: JoinGranted): Certificate => parseCertificate(chain[0] as Uint8Array);
export const evidenceOf = (bytes: Uint8Array): TpmEvidence => fromBinary(TpmEvidenceSchema, bytes);
export const changed = (evidence: Uint8Array, change: (evidence: TpmEvidence) => MessageInitShape<typeof TpmEvidenceSchema>): Uint8Array =>
  toBinary(TpmEvidenceSchema, create(TpmEvidenceSchema, change(evidenceOf(evidence))));
export const answerWith = (evidence: Uint8Array, change: (answer: NonNullable<TpmEvidence['answer']>) => void): Uint8Array =>
  changed(evidence, (one) => {
    assert.ok(one.answer);
    change(one.answer);
    return one;
  });

/** Within a describe: two machines, and a service that lists neither. Skips it all, by name, where there is no swtpm. */
export function useTpmStage() {
  const used = useDatabase({ max: 10 });
  const listed = new Map<string, TpmEnrolment>();
  const tpms: SoftwareTpm[] = [];
  const anyTrust = (): TpmTrust => ({ find: async (ek) => listed.get(ek), roots: null });
  let names = 0;
  const stage = {
    used,
    listed,
    now: t0,
    trust: anyTrust() as TpmTrust | null,
    policy: undefined as JoinPolicy | undefined,
    machine: undefined as unknown as TpmMachine,
    adversary: undefined as unknown as TpmMachine,

    at: ({ tpm, dataDir, ek }: Pick<TpmMachine, 'tpm' | 'dataDir' | 'ek'>) => ({ dataDir, place: { tcti: tpm.tcti, ek } }),
    async machineWith(
      tpm: SoftwareTpm,
      { ek = 'ecc', dataDir = scratchFolder() }: { ek?: Ek; dataDir?: string } = {},
    ): Promise<TpmMachine> {
      const shown = await tpmEvidence(stage.at({ tpm, dataDir, ek }));
      return { tpm, dataDir, ek, shown, ekSha256: spkiDigest(parseTpmPublic(evidenceOf(shown).ekPublic, 'ek')) };
    },
    /** @returns the node's name */
    list({ ekSha256 }: TpmMachine, changes: Partial<TpmEnrolment> = {}): string {
      names += 1;
      const nodeId = changes.nodeId === undefined ? `metal-${names}` : changes.nodeId;
      listed.set(ekSha256, { ekSha256, siteId: 'berlin', role: 'node', tenantId: 'default', ...changes, nodeId });
      return nodeId ?? '';
    },
    async ask(key: NodeKey, evidence: Uint8Array, changes: { csr?: Uint8Array; role?: string } = {}): Promise<JoinResponseBody> {
      const bundle = await testBundle();
      const { trust, policy } = stage;
      const services = createGatewayServices({
        db: used.db,
        bundle: () => bundle,
        log: recordingLog(),
        now: () => stage.now,
        tpm: trust,
        ...(policy === undefined ? {} : { joinPolicy: policy }),
      });
      const request = { ...(await joinRequest(key, '', { attestor: 'tpm', ...changes })), evidence };
      const response = await services.join(toBinary(JoinRequestSchema, request));
      return verifyJoinResponse(response, { joinKey: bundle.joinSigning.spki, nonce: request.nonce, csrSha256: sha256(request.csr) });
    },
    /** Up to the second request, which is handed back unsent. */
    async answered(one: TpmMachine): Promise<Answering> {
      const key = newKey();
      const csr = await csrOf(key);
      const { challenge } = deferredOf(await stage.ask(key, one.shown, { csr }));
      return { key, csr, evidence: await tpmAnswer(stage.at(one), { challenge, csr }) };
    },
    async join(one: TpmMachine): Promise<{ granted: JoinGranted } & Answering> {
      const { key, csr, evidence } = await stage.answered(one);
      return { key, csr, evidence, granted: grantedOf(await stage.ask(key, evidence, { csr })) };
    },
  };

  before(async function () {
    if (swtpmMissing() !== null) return this.skip();
    const bundle = await testBundle();
    await settleAndPublish({ db: used.db, bundle, floorOption: 0, overlapMs: day, processId: 'api', now: t0, log: recordingLog() });
    tpms.push(await startSwtpm(), await startSwtpm());
    const [own, other] = tpms as [SoftwareTpm, SoftwareTpm];
    stage.machine = await stage.machineWith(own);
    stage.adversary = await stage.machineWith(other);
  });
  beforeEach(() => {
    listed.clear();
    Object.assign(stage, { now: t0, trust: anyTrust(), policy: undefined });
  });
  after(async () => {
    for (const tpm of tpms) await tpm.stop();
    removeScratchFolders();
  });
  return stage;
}
