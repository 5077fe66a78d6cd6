import assert from 'node:assert/strict';
import { findStoredSpec } from '../../drizzle/queries/nodes.ts';
import { createBundle, type PkiBundle } from '../../pki/bundle/index.ts';
import { desiredStateFromStored, verifyDesiredState } from '../../pki/envelope/index.ts';
import {
  createBreakGlassAuthority,
  findRevocation,
  parseKrl,
  parseSshCertificateLine,
  sshSignerFromPrivateKey,
} from '../../pki/ssh/index.ts';
import { decodeMessage, NodeSpecSchema } from '../../proto/index.ts';
import { readAuditEvents } from '../../services/audit.ts';
import { writeNodeSpec } from '../../services/desired-state.ts';
import { accessKeysOf, type NodeAccessOptions, writeAccess, writeAccessOfAll } from '../../services/node-access.ts';
import { getSshCertificate, listSshCertificates, recordSshCertificate, revokeSshCertificate } from '../../services/ssh-certificates.ts';
import { useDatabase } from '../harness/postgres.ts';
import { createPair } from '../pki/ssh/support.ts';
import { addNode, keyring, refused, testBundle, trustDomain } from './support.ts';

const hour = 3_600_000;

describe('break-glass certificates in the database', () => {
  const used = useDatabase();
  let bundle: PkiBundle;
  let access: NodeAccessOptions;
  const announced: string[] = [];
  before(async () => {
    bundle = await testBundle();
    access = {
      db: used.db,
      worker: await keyring(used.db, { now: Date.now }),
      trustDomain,
      keys: accessKeysOf(bundle),
      announce: async (ids) => void announced.push(...ids),
    };
    for (const id of ['node-1', 'node-2', 'node-3']) await addNode(used.db, id);
    await addNode(used.db, 'ramdisk-1', 'ramdisk');
  });

  const issue = async (nodeId: string, endsIn = hour) => {
    const { sshCa } = bundle;
    assert.ok(sshCa);
    const authority = createBreakGlassAuthority({
      publicKey: sshCa.publicKey,
      signer: sshSignerFromPrivateKey(sshCa.privateKey),
      now: Date.now,
    });
    const issued = await authority.issueUserCertificate({
      publicKey: createPair('ed25519', 'ada').line,
      account: 'root',
      nodeId,
      keyId: 'ada: boot loop',
      sessionEndsAt: Date.now() + endsIn,
    });
    const { serial, principal, validBefore } = issued;
    const issuance = {
      serial,
      nodeId,
      account: 'root',
      principal,
      keyId: 'ada: boot loop',
      publicKey: 'SHA256:x',
      issuedTo: 'ada',
      validBefore,
    };
    await recordSshCertificate(used.db, issuance);
    return { ...issued, id: String(serial), issuance, parsed: parseSshCertificateLine(issued.certificate) };
  };
  const revoke = (serial: string) => revokeSshCertificate({ db: used.db, serial, actor: 'ada', reason: 'laptop lost' });
  /** What the node is sent, as it verifies it. */
  const accessOf = async (nodeId: string) => {
    const stored = await findStoredSpec(used.db, nodeId);
    assert.ok(stored?.body && stored.signature);
    const desired = desiredStateFromStored({ body: stored.body, signature: stored.signature });
    const roots = [bundle.commandSigning!.certificate.der];
    const { body } = verifyDesiredState(desired, { roots, now: Date.now(), nodeId, required: true, trustDomain });
    return { generation: stored.generation, access: decodeMessage(NodeSpecSchema, body.spec, 'desiredStateBody').access };
  };

  it('SSH-005 every issuance is a row with its serial, and an event of the trail, before the certificate leaves', async () => {
    const { id, issuance } = await issue('node-1');
    const [row] = await listSshCertificates(used.db, { nodeId: 'node-1', limit: 10 });
    const { issuedAt, ...facts } = row!;
    assert.ok(issuedAt > 0);
    assert.deepEqual(facts, { ...issuance, serial: id, revokedAt: null });
    const events = (await readAuditEvents(used.db, { afterSeq: 0, limit: 100 })).filter((event) => event.key === `ssh/${id}`);
    assert.deepEqual(
      events.map(({ actor, action, subject }) => [actor, action, subject]),
      [['ada', 'ssh.sign', 'node-1']],
    );
    await assert.rejects(
      recordSshCertificate(used.db, { ...issuance, serial: 77n, nodeId: 'nobody' }),
      refused('NOT_FOUND', /no node is called nobody: no certificate is issued for one/, 'unknown-node'),
    );
    await assert.rejects(recordSshCertificate(used.db, issuance), { code: 'CONFLICT' });
  });

  it('SSH-006 a serial that is taken back stands in the list of its node, in the next generation, and in no other node’s', async () => {
    const [gone, kept, other] = [await issue('node-1'), await issue('node-1'), await issue('node-2')];
    await writeAccess(access, 'node-1');
    await writeAccess(access, 'node-2');
    const before = await accessOf('node-1');
    assert.equal(before.access?.sshKrl.length, 0);
    assert.deepEqual(await revoke(gone.id), { nodeId: 'node-1', already: false });
    announced.length = 0;
    assert.equal(await writeAccess(access, 'node-1'), before.generation + 1);
    assert.deepEqual(announced, ['node-1']);
    const after = await accessOf('node-1');
    const krl = parseKrl(after.access!.sshKrl);
    assert.equal(findRevocation(krl, gone.parsed), 'serial');
    assert.equal(findRevocation(krl, kept.parsed), null);
    assert.equal(findRevocation(krl, other.parsed), null);
    assert.equal(await writeAccess(access, 'node-2'), (await accessOf('node-2')).generation);
    assert.equal((await accessOf('node-2')).access?.sshKrl.length, 0);

    assert.deepEqual(await revoke(gone.id), { nodeId: 'node-1', already: true });
    assert.equal(await writeAccess(access, 'node-1'), after.generation, 'nothing changed, nothing is written');
    await revoke(kept.id);
    await writeAccess(access, 'node-1');
    const both = parseKrl((await accessOf('node-1')).access!.sshKrl);
    assert.deepEqual([findRevocation(both, gone.parsed), findRevocation(both, kept.parsed)], ['serial', 'serial']);
    assert.ok(both.version >= krl.version);
  });

  it('SSH-007 the section names the break-glass authority and never the sandbox authority', async () => {
    await writeAccess(access, 'node-1');
    const { access: section } = await accessOf('node-1');
    assert.equal(section?.sshUserCa, bundle.sshCa?.publicKey);
    const stored = await findStoredSpec(used.db, 'node-1');
    const blob = bundle.sandboxSshCa!.publicKey.split(' ')[1]!;
    assert.ok(!JSON.stringify(stored?.spec).includes(blob));
    assert.ok(!Buffer.from(stored!.body!).includes(blob));
  });

  it('brings every machine up to date: the first time, after a new ticket key, and what a crash left between row and list', async () => {
    await writeNodeSpec({ ...access, nodeId: 'node-3', spec: { daemon: { statusIntervalSeconds: 9 } }, now: Date.now() });
    await writeAccessOfAll(access, { pageSize: 1 });
    assert.equal(await writeAccessOfAll(access), 0);
    assert.equal((await findStoredSpec(used.db, 'ramdisk-1'))?.generation, 0);
    assert.deepEqual((await findStoredSpec(used.db, 'node-3'))?.spec['daemon'], { statusIntervalSeconds: 9 });

    const lost = await issue('node-3');
    await revoke(lost.id);
    assert.equal(await writeAccessOfAll(access), 1);
    assert.equal(findRevocation(parseKrl((await accessOf('node-3')).access!.sshKrl), lost.parsed), 'serial');

    const other = accessKeysOf(await createBundle({ trustDomain, now: Date.now() }));
    const keys = { ...access.keys, jwks: [...access.keys.jwks, ...other.jwks] };
    assert.equal(await writeAccessOfAll({ ...access, keys }), 3);
    assert.deepEqual((await accessOf('node-1')).access?.jwks, keys.jwks);
  });

  it('a writer that is overtaken reads again; one that always is says so', async () => {
    let overtakes = 1;
    let status = 10;
    const overtaken: NodeAccessOptions = {
      ...access,
      keys: { ...access.keys, jwks: ['{"a":1}'] },
      worker: {
        async current() {
          if (overtakes > 0) {
            overtakes -= 1;
            const { spec } = (await findStoredSpec(used.db, 'node-2'))!;
            await writeNodeSpec({
              ...access,
              nodeId: 'node-2',
              spec: { ...spec, daemon: { statusIntervalSeconds: ++status } },
              now: Date.now(),
            });
          }
          return access.worker.current();
        },
      },
    };
    await writeAccess(overtaken, 'node-2');
    const { spec } = (await findStoredSpec(used.db, 'node-2'))!;
    assert.deepEqual([spec['daemon'], (spec['access'] as { jwks: string[] }).jwks], [{ statusIntervalSeconds: 11 }, ['{"a":1}']]);
    overtakes = 100;
    await assert.rejects(
      writeAccess({ ...overtaken, keys: access.keys }, 'node-2'),
      refused('CONFLICT', /the spec of node node-2 changed meanwhile/, 'spec-changed'),
    );
    await assert.rejects(writeAccess(access, 'nobody'), refused('NOT_FOUND', /no node is called nobody/, 'unknown-node'));
  });

  it('refuses what is no serial, a serial nobody gave out, and a revocation without a name or a reason', async () => {
    for (const bad of ['0', '-1', 'x', '9223372036854775808', '1'.repeat(50)])
      await assert.rejects(
        getSshCertificate(used.db, bad),
        refused('INVALID_INPUT', /is no serial: a whole number from 1 to 9223372036854775807/, 'ssh-serial'),
      );
    await assert.rejects(revoke('4711'), refused('NOT_FOUND', /no certificate 4711 was issued here/, 'unknown-ssh-certificate'));
    await assert.rejects(
      revokeSshCertificate({ db: used.db, serial: '4711', actor: 'ada', reason: ' ' }),
      refused('INVALID_INPUT', /needs an actor and a reason/, 'reason-needed'),
    );
  });
});
