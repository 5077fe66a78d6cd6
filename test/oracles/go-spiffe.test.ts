/** go-spiffe as a judge of SPIFFE ids and of X.509-SVIDs. */
import assert from 'node:assert/strict';
import { isControlError } from '../../domain/errors.ts';
import { nodeIdentityOf, parseSpiffeId } from '../../pki/x509/index.ts';
import { describeWithGo } from './go-judge.ts';
import { createDeployment, type Deployment, type Issued, tamperings, trustDomain } from './issued.ts';
import { isFailure } from './program.ts';

interface Id {
  readonly id: string;
  readonly trustDomain: string;
  readonly path: string;
}

const base64 = (der: Uint8Array): string => Buffer.from(der).toString('base64');

const orderOf = ({ certificate, intermediates, anchor }: Issued, change: object = {}): object => ({
  chain: [certificate, ...intermediates].map(({ der }) => base64(der)),
  anchors: [base64(anchor.der)],
  trustDomain,
  now: Math.floor(Date.now() / 1_000),
  ...change,
});

const accepts = (text: string): boolean => {
  try {
    parseSpiffeId(text);
    return true;
  } catch (error) {
    assert.ok(isControlError(error) && error.code === 'MALFORMED' && error.details['reason'] === 'spiffe-id', String(error));
    return false;
  }
};

const ours = [
  'spiffe://fleet.example/site/fra1/node/n1',
  'spiffe://a/site/b/node/c',
  'spiffe://1.2-3_4/site/A.b-c_d/node/...',
  `spiffe://${'a'.repeat(255)}/site/b/node/c`,
];
/** SPIFFE ids, but not of our one shape. */
const onlyTheirs = [
  'spiffe://fleet.example',
  'spiffe://fleet.example/site/fra1',
  'spiffe://fleet.example/node/n1/site/fra1',
  'spiffe://fleet.example/site/fra1/node/n1/more',
  'spiffe://fleet.example/ns/default/sa/web',
];
const nobodys = [
  '',
  'fleet.example/site/a/node/b',
  'https://fleet.example/site/a/node/b',
  'SPIFFE://fleet.example/site/a/node/b',
  'spiffe://Fleet.example/site/a/node/b',
  'spiffe://fleet.example:443/site/a/node/b',
  'spiffe://user@fleet.example/site/a/node/b',
  'spiffe:///site/a/node/b',
  'spiffe://fleet.example/site/a/node/b/',
  'spiffe://fleet.example/site//node/b',
  'spiffe://fleet.example/site/./node/b',
  'spiffe://fleet.example/site/../node/b',
  'spiffe://fleet.example/site/a%2fb/node/c',
  'spiffe://fleet.example/site/a/node/b?x',
  'spiffe://fleet.example/site/a/node/b#x',
  'spiffe://fleet.example/site/a/node/ä',
  'spiffe://fleet.example/site/a/node/b ',
];

describeWithGo('go-spiffe', (go) => {
  let deployment: Deployment;
  before(async () => {
    deployment = await createDeployment(Date.now());
  });
  const agents = ['node', 'site', 'ramdisk', 'nodeTenant'].flatMap((kind) => [kind, `${kind} below the former CA`]);

  it('ID-002 reads the ids we read, with the same parts', async () => {
    const answers = await go().ask<Id>('id', ours);
    for (const [i, text] of ours.entries()) {
      const { trustDomain: domain, siteId, nodeId } = parseSpiffeId(text);
      assert.deepEqual(answers[i], { id: text, trustDomain: domain, path: `/site/${siteId}/node/${nodeId}` });
    }
  });

  it('ID-002 ID-003 takes ids of every shape, we of one; what is none for it is none for us', async () => {
    const [theirs, none] = await Promise.all([go().ask<Id>('id', onlyTheirs), go().ask<Id>('id', nobodys)]);
    assert.deepEqual(theirs.filter(isFailure), []);
    assert.deepEqual(
      none.filter((answer) => !isFailure(answer)),
      [],
    );
    assert.deepEqual([...onlyTheirs, ...nobodys].filter(accepts), []);
  });

  it('ID-001 takes the certificate of every kind of agent for an X.509-SVID of the trust domain, with the identity we see', async () => {
    const answers = await go().ask<Id>(
      'svid',
      agents.map((kind) => orderOf(deployment.get(kind))),
    );
    for (const [i, kind] of agents.entries()) {
      const { spiffeId } = nodeIdentityOf(deployment.get(kind).certificate, trustDomain);
      assert.equal((answers[i] as Id).id, spiffeId, `${kind}: ${JSON.stringify(answers[i])}`);
    }
  });

  it('ID-018 takes a certificate with a statement beside its id for no SVID, as we document; we read its identity', async () => {
    const issued = deployment.get('node with a statement');
    const [answer] = await go().ask<Id>('svid', [orderOf(issued)]);
    assert.match(isFailure(answer) ? answer.error : '', /more than one URI SAN/);
    assert.equal(nodeIdentityOf(issued.certificate, trustDomain).spiffeId, 'spiffe://fleet.example/site/fra1/node/n1');
  });

  it('refuses what is no agent, another trust domain, another deployment and what was changed, and so do we', async () => {
    const node = deployment.get('node');
    const foreign = await createDeployment(Date.now());
    const changed = Object.values(tamperings).map((change) => ({
      chain: [change(node.certificate.der, node.certificate), (node.intermediates[0] as typeof node.certificate).der].map(base64),
    }));
    const hosts = ['gateway', 'internal', 'worker'].map((kind) => deployment.get(kind));
    const orders = [
      ...hosts.map((issued) => orderOf(issued)),
      orderOf(node, { trustDomain: 'other.example' }),
      orderOf(node, { anchors: [base64(foreign.get('node').anchor.der)] }),
      ...changed.map((change) => orderOf(node, change)),
    ];
    const answers = await go().ask<Id>('svid', orders);
    assert.deepEqual(
      answers.filter((answer) => !isFailure(answer)),
      [],
    );
    const denied = (reason: string) => (error: unknown) => isControlError(error) && error.details['reason'] === reason;
    for (const { certificate } of hosts) assert.throws(() => nodeIdentityOf(certificate, trustDomain), denied('no-identity'));
    assert.throws(() => nodeIdentityOf(node.certificate, 'other.example'), denied('wrong-trust-domain'));
  });
});
