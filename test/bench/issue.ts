/**
 * How much of the speed of signing is left when whole certificates are issued: agent certificates a second, 250 in flight as after
 * an outage, against bare P-256 signatures a second, one after another on this thread. The two are measured in turns, round by
 * round, and the median of the rounds' ratios counts, so that whatever else the machine does meets both. The detail says what
 * one certificate at a time reaches, and bare signatures with as many in flight.
 */
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { availableParallelism } from 'node:os';
import {
  type Certificate,
  type CertificateAuthority,
  createCsr,
  issueCa,
  issueLeaf,
  parseCsr,
  type Signer,
  signerFromPrivateKey,
} from '../../pki/x509/index.ts';

export interface IssueFigure {
  readonly figure: 'issue';
  /** Certificates a second over signatures a second. */
  readonly ratio: number;
  readonly goal: 0.75;
  readonly holds: boolean;
  readonly detail: {
    readonly certificatesPerSecond: number;
    readonly signaturesPerSecond: number;
    /** The same ratio with one certificate in flight. */
    readonly oneAtATime: number;
    /** Bare signatures with as many in flight, over bare signatures one after another. */
    readonly signaturesInFlight: number;
    readonly inFlight: number;
    readonly rounds: number;
    readonly cores: number;
  };
}

const goal = 0.75;
const rounds = 15;
const perRound = 1_000;
const inFlight = 250;
const trustDomain = 'bench.example';

interface Bench {
  readonly ca: CertificateAuthority;
  readonly privateKey: KeyObject;
  readonly signer: Signer;
  /** Keys of verified requests, as a join hands them over. */
  readonly keys: readonly Uint8Array[];
  readonly now: number;
}

const createKeys = (): { privateKey: KeyObject; signer: Signer } => {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { privateKey, signer: signerFromPrivateKey(privateKey) };
};

const createBench = async (now: number): Promise<Bench> => {
  const [root, node] = [createKeys(), createKeys()];
  const rootCa = await issueCa({ profile: 'rootCa', trustDomain, spki: root.signer.spki, issuer: { self: root.signer }, now });
  const issuer = { certificate: rootCa.der, signer: root.signer };
  const nodeCa = await issueCa({ profile: 'nodeCa', trustDomain, spki: node.signer.spki, issuer, now });
  const requests = await Promise.all(Array.from({ length: 64 }, () => createCsr({ key: createKeys().signer })));
  return { ...node, ca: { certificate: nodeCa.der, signer: node.signer }, keys: requests.map((der) => parseCsr(der).spki), now };
};

const issueOne = ({ ca, keys, now }: Bench, i: number): Promise<Certificate> =>
  issueLeaf({
    ca,
    profile: 'node',
    spki: keys[i % keys.length] as Uint8Array,
    identity: { trustDomain, siteId: 'site', nodeId: `node-${i}` },
    now,
  });

/** Work a second. */
const rateOf = async (work: () => Promise<void> | void): Promise<number> => {
  const startedAt = performance.now();
  await work();
  return (perRound * 1_000) / (performance.now() - startedAt);
};

const flights = async (one: (i: number) => Promise<unknown>): Promise<void> => {
  for (let i = 0; i < perRound; i += inFlight) await Promise.all(Array.from({ length: inFlight }, (_, j) => one(i + j)));
};

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;

/** Measures for a few seconds. Nothing is kept. */
export const figure = async (): Promise<IssueFigure> => {
  const bench = await createBench(Date.now());
  const { tbs } = await issueOne(bench, 0);
  const work = {
    signatures: () => {
      for (let i = 0; i < perRound; i++) sign('sha256', tbs, bench.privateKey);
    },
    certificates: () => flights((i) => issueOne(bench, i)),
    single: async () => {
      for (let i = 0; i < perRound; i++) await issueOne(bench, i);
    },
    signaturesInFlight: () => flights(() => bench.signer.sign(tbs)),
  };
  const found: Record<keyof typeof work, number>[] = [];
  for (let round = -2; round < rounds; round++) {
    const rates = {
      signatures: await rateOf(work.signatures),
      certificates: await rateOf(work.certificates),
      single: await rateOf(work.single),
      signaturesInFlight: await rateOf(work.signaturesInFlight),
    };
    if (round >= 0) found.push(rates);
  }
  const ratioOf = (name: keyof typeof work): number => Number(median(found.map((rates) => rates[name] / rates.signatures)).toFixed(3));
  const ratio = ratioOf('certificates');
  return {
    figure: 'issue',
    ratio,
    goal,
    holds: ratio >= goal,
    detail: {
      certificatesPerSecond: Math.round(median(found.map(({ certificates }) => certificates))),
      signaturesPerSecond: Math.round(median(found.map(({ signatures }) => signatures))),
      oneAtATime: ratioOf('single'),
      signaturesInFlight: ratioOf('signaturesInFlight'),
      inFlight,
      rounds,
      cores: availableParallelism(),
    },
  };
};
