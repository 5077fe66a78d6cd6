import assert from 'node:assert/strict';
import {
  caProfiles,
  createSerial,
  type IssueLeafOptions,
  issueCa,
  issueLeaf,
  leafProfiles,
  oids,
  parseCertificate,
} from '../../../pki/x509/index.ts';
import { type Authorities, createAuthorities, createAuthority, createKey, now, refusedWith, trustDomain } from './authorities.ts';

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;
const identity = { trustDomain, siteId: 'fra1', nodeId: 'n1' };
const statement = (i: number): string => `urn:bc:tpm-ak:000b:${`${i}`.repeat(64).slice(0, 64)}`;

describe('pki/x509 issuing', () => {
  let all: Authorities;
  before(async () => {
    all = await createAuthorities();
  });
  const node = (change: Partial<IssueLeafOptions> = {}): ReturnType<typeof issueLeaf> =>
    issueLeaf({ ca: all.nodeCa, profile: 'node', spki: createKey().spki, identity, now, ...change });

  it('KEY-010 each authority says what its row says', () => {
    for (const [name, { parsed }] of Object.entries({
      rootCa: all.root,
      nodeCa: all.nodeCa,
      servingCa: all.servingCa,
      internalCa: all.internalCa,
      commandRoot: all.commandRoot,
    })) {
      const row = caProfiles[name as keyof typeof caProfiles];
      assert.deepEqual(
        { isCa: parsed.isCa, pathLen: parsed.pathLen, keyUsage: parsed.keyUsage, ekus: parsed.ekus ?? [] },
        { isCa: true, pathLen: row.pathLen, keyUsage: row.keyUsage, ekus: row.ekus },
      );
      assert.deepEqual(
        parsed.subject.attributes.map(({ value }) => value),
        [trustDomain, row.commonName],
      );
      assert.equal(parsed.notBefore, now - minute - (now % 1_000));
    }
  });

  it('KEY-011 an authority never outlives the root, in GeneralizedTime past 2049 too', async () => {
    const root = await createAuthority('rootCa', { lifetimeMs: 100 * day });
    const nodeCa = await createAuthority('nodeCa', { parent: root });
    assert.equal(nodeCa.parsed.notAfter, root.parsed.notAfter);
    const late = Date.UTC(2041, 0, 1);
    const lateRoot = await createAuthority('rootCa', { now: late });
    assert.ok(lateRoot.parsed.notAfter > Date.UTC(2050, 0, 1));
    const lateCa = await createAuthority('servingCa', { parent: lateRoot, now: Date.UTC(2049, 6, 1) });
    assert.equal(lateCa.parsed.notAfter, lateRoot.parsed.notAfter);
  });

  it('KEY-012, JOIN-003, JOIN-004 and A-PKI-24 the profile bounds the lifetime whatever is asked', async () => {
    const lives = async (change: Partial<IssueLeafOptions>): Promise<number> => (await node(change)).notAfter - now;
    for (const profile of ['node', 'site', 'nodeTenant'] as const) {
      assert.equal(await lives({ profile }), day);
      assert.equal(await lives({ profile, lifetimeMs: 365 * day }), day);
    }
    assert.equal(await lives({ profile: 'ramdisk', lifetimeMs: 6 * hour }), 2 * hour);
    assert.equal(await lives({ lifetimeMs: hour }), hour);
    const gateway = (lifetimeMs?: number): ReturnType<typeof issueLeaf> =>
      issueLeaf({
        ca: all.servingCa,
        profile: 'gateway',
        spki: createKey().spki,
        sans: { dns: ['gw.example'] },
        now,
        ...(lifetimeMs === undefined ? {} : { lifetimeMs }),
      });
    assert.equal((await gateway()).notAfter - now, 14 * day);
    assert.equal((await gateway(365 * day)).notAfter - now, 90 * day);
    for (const lifetimeMs of [0, -1, 999, Number.NaN])
      await assert.rejects(node({ lifetimeMs }), refusedWith('INVALID_INPUT', 'lifetime', /lives a second at least/));
  });

  it('H-13 a leaf never outlives its issuer, is backdated a minute, and never begins before its issuer', async () => {
    const short = await createAuthority('nodeCa', { parent: all.root, lifetimeMs: hour });
    const leaf = await node({ ca: short });
    assert.equal(leaf.notAfter, short.parsed.notAfter);
    assert.equal(leaf.notBefore, now - minute);
    assert.equal((await node({ ca: all.nodeCa, now: all.nodeCa.parsed.notBefore })).notBefore, all.nodeCa.parsed.notBefore);
  });

  it('H-13 C43 nothing fails when the authority has less left than a leaf lives: leaves end with it', async () => {
    const end = all.nodeCa.parsed.notAfter;
    for (const left of [25 * hour, 23 * hour, hour, 10 * minute]) {
      const leaf = await node({ now: end - left, lifetimeMs: 24 * hour });
      assert.equal(leaf.notAfter, Math.min(end, end - left + 24 * hour), String(left / hour));
    }
  });

  it('H-13 an authority with under ten minutes left refuses with ca-expired and a retry hint', async () => {
    const end = all.nodeCa.parsed.notAfter;
    assert.equal((await node({ now: end - 10 * minute })).notAfter, end);
    await assert.rejects(node({ now: end - 10 * minute + 1 }), (error: { details: Record<string, unknown> }) => {
      refusedWith('CA_EXPIRED', 'ca-expired', /issues nothing in its last ten minutes/)(error);
      assert.deepEqual(error.details, { reason: 'ca-expired', notAfterMs: end, retryAfterMs: 10 * minute });
      return true;
    });
    await assert.rejects(node({ now: end + day }), refusedWith('CA_EXPIRED', 'ca-expired', /ends at/));
    await assert.rejects(
      node({ now: all.nodeCa.parsed.notBefore - 1 }),
      refusedWith('INVALID_STATE', 'ca-not-yet-valid', /not valid before/),
    );
    await assert.rejects(
      issueCa({ profile: 'nodeCa', trustDomain, spki: createKey().spki, issuer: all.root, now: all.root.parsed.notAfter - minute }),
      refusedWith('CA_EXPIRED', 'ca-expired', /ends at/),
    );
  });

  it("KEY-007 and KEY-008 no authority issues what is another's", async () => {
    const authorities = {
      rootCa: all.root,
      nodeCa: all.nodeCa,
      servingCa: all.servingCa,
      internalCa: all.internalCa,
      commandRoot: all.commandRoot,
    };
    for (const [name, ca] of Object.entries(authorities))
      for (const row of Object.values(leafProfiles).filter(({ issuedBy }) => issuedBy !== name)) {
        const names = row.names === 'agent' ? { identity } : row.names === 'host' ? { sans: { dns: ['a.example'] } } : {};
        await assert.rejects(
          issueLeaf({ ca, profile: row.kind, spki: createKey().spki, now, ...names }),
          refusedWith('PERMISSION_DENIED', 'wrong-issuer', new RegExp(`does not issue certificates of profile ${row.kind}`)),
        );
      }
    await assert.rejects(
      issueCa({ profile: 'servingCa', trustDomain, spki: createKey().spki, issuer: all.nodeCa, now }),
      refusedWith('PERMISSION_DENIED', 'wrong-issuer', /does not issue/),
    );
    await assert.rejects(
      issueCa({ profile: 'nodeCa', trustDomain, spki: createKey().spki, issuer: { self: createKey().signer }, now }),
      refusedWith('INVALID_INPUT', 'issuer', /issued by Better Compute root CA/),
    );
    await assert.rejects(
      issueCa({ profile: 'commandRoot', trustDomain, spki: createKey().spki, issuer: all.root, now }),
      refusedWith('INVALID_INPUT', 'issuer', /signed by its own key/),
    );
  });

  it('ID-001, ID-007 and ID-009 the SPIFFE id comes first, then at most three statements', async () => {
    const leaf = await node({ sans: { uris: [statement(1), statement(2), statement(3)] } });
    assert.deepEqual(leaf.uriSans, ['spiffe://fleet.example/site/fra1/node/n1', statement(1), statement(2), statement(3)]);
    assert.deepEqual(parseCertificate(leaf.der).uriSans, leaf.uriSans);
    await assert.rejects(
      node({ sans: { uris: [1, 2, 3, 4].map(statement) } }),
      refusedWith('INVALID_INPUT', 'statement', /at most 4 URIs/),
    );
  });

  it('ID-010 and ID-012 no other URI, no DNS name, no address, no CN from the node CA', async () => {
    await assert.rejects(
      node({ sans: { uris: ['spiffe://fleet.example/site/fra1/node/n2'] } }),
      refusedWith('INVALID_INPUT', 'statement', /urn:bc statements only/),
    );
    await assert.rejects(node({ sans: { dns: ['n1.example'] } }), refusedWith('INVALID_INPUT', 'alternative-name', /no DNS names/));
    await assert.rejects(node({ sans: { ips: ['192.0.2.1'] } }), refusedWith('INVALID_INPUT', 'alternative-name', /no addresses/));
    await assert.rejects(node({ commonName: 'n1' }), refusedWith('INVALID_INPUT', 'subject', /its role and nothing else/));
    const { identity: _, ...anonymous } = { ca: all.nodeCa, profile: 'node' as const, spki: createKey().spki, identity, now };
    await assert.rejects(issueLeaf(anonymous), refusedWith('INVALID_INPUT', 'identity', /needs a trust domain/));
  });

  it('ID-025 and ID-026 each profile has its own roles', async () => {
    const roles = await Promise.all([
      ...(['node', 'site', 'ramdisk', 'nodeTenant'] as const).map((profile) => node({ profile })),
      issueLeaf({ ca: all.commandRoot, profile: 'worker', spki: createKey().spki, now }),
      issueLeaf({ ca: all.servingCa, profile: 'gateway', spki: createKey().spki, sans: { dns: ['g.example'] }, now }),
      ...['internal', 'gateway', 'worker-tls'].map((role) =>
        issueLeaf({
          ca: all.internalCa,
          profile: 'internal',
          role,
          spki: createKey().spki,
          sans: { dns: ['localhost'], ips: ['0:0::1'] },
          now,
        }),
      ),
    ]);
    assert.deepEqual(
      roles.map(({ role }) => role),
      ['node', 'site', 'ramdisk', 'node-tenant', 'worker', 'gateway', 'internal', 'gateway', 'worker-tls'],
    );
    assert.deepEqual(roles[6]?.ipSans, ['::1']);
    await assert.rejects(node({ role: 'site' }), refusedWith('INVALID_INPUT', 'role', /profile node has no role "site"/));
  });

  it('SIGN-003, SIGN-004 and SIGN-006 a worker has role worker, no extended key usage, and 24 hours', async () => {
    const worker = await issueLeaf({ ca: all.commandRoot, profile: 'worker', spki: createKey().spki, lifetimeMs: 48 * hour, now });
    assert.deepEqual(
      { role: worker.role, ekus: worker.ekus, life: worker.notAfter - now, usage: worker.keyUsage },
      { role: 'worker', ekus: null, life: day, usage: ['digitalSignature'] },
    );
    await assert.rejects(
      issueLeaf({ ca: all.commandRoot, profile: 'worker', spki: createKey().spki, identity, now }),
      refusedWith('INVALID_INPUT', 'alternative-name', /no alternative names/),
    );
  });

  it('control-plane certificates need a name, and are no nodes', async () => {
    const gateway = (change: Partial<IssueLeafOptions>): ReturnType<typeof issueLeaf> =>
      issueLeaf({ ca: all.servingCa, profile: 'gateway', spki: createKey().spki, now, ...change });
    await assert.rejects(gateway({}), refusedWith('INVALID_INPUT', 'alternative-name', /needs a DNS name or an address/));
    await assert.rejects(
      gateway({ sans: { dns: ['a.example'] }, commonName: 'b.example' }),
      refusedWith('INVALID_INPUT', 'common-name', /one of its names/),
    );
    await assert.rejects(gateway({ sans: { dns: ['*.example'] } }), refusedWith('INVALID_INPUT', 'alternative-name', /not a DNS name/));
    await assert.rejects(
      gateway({ sans: { ips: ['fe80::1%eth0'] } }),
      refusedWith('INVALID_INPUT', 'alternative-name', /not an IP address/),
    );
    await assert.rejects(gateway({ sans: { dns: ['a.example'] }, identity }), refusedWith('INVALID_INPUT', 'identity', /is no node/));
  });

  it('ID-003 an authority of something that is no trust domain is refused; a long one is left out of O', async () => {
    const key = createKey();
    const make = (domain: string): ReturnType<typeof issueCa> =>
      issueCa({ profile: 'rootCa', trustDomain: domain, spki: key.spki, issuer: { self: key.signer }, now });
    await assert.rejects(make('Fleet'), refusedWith('INVALID_INPUT', 'trust-domain', /not a trust domain/));
    assert.deepEqual(
      (await make('a'.repeat(65))).subject.attributes.map(({ oid }) => oid),
      [oids.commonName],
    );
  });

  it('H-15 a serial is 128 random bits behind 01; ten thousand do not repeat; a reserved one is used as it is', async () => {
    const serials = new Set(Array.from({ length: 10_000 }, () => createSerial()));
    assert.equal(serials.size, 10_000);
    for (const serial of serials) assert.match(serial, /^01[0-9a-f]{32}$/);
    assert.equal(
      createSerial((count) => new Uint8Array(count)),
      `01${'00'.repeat(16)}`,
    );
    assert.equal((await node({ serial: 'c0ffee' })).serial, 'c0ffee');
    await assert.rejects(node({ serial: 'C0FFEE' }), refusedWith('INVALID_INPUT', 'serial', /not a serial number/));
  });
});
