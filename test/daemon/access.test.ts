/** What the access section does on a machine: files for sshd, and what is reported of them. */
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { create, toBinary } from '@bufbuild/protobuf';
import { withAccess } from '../../daemon/access/spec-with-access.ts';
import { sshAccessFiles } from '../../daemon/access/ssh-access.ts';
import { type SectionOutcome, sectionReports } from '../../daemon/agent/desired-state.ts';
import { openSpecStore } from '../../daemon/state/spec-store.ts';
import { createKrl, findRevocation, parseKrl, parseSshCertificateLine, parseSshKeyLine } from '../../pki/ssh/index.ts';
import { type AccessSpec, AccessSpecSchema, NodeSpecSchema, SectionState } from '../../proto/index.ts';
import { eventually } from '../harness/eventually.ts';
import { scratchFolder } from '../harness/scratch.ts';
import { createPair, createTestAuthorities } from '../pki/ssh/support.ts';

const silent = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

describe('the access section in the daemon', () => {
  const { breakGlass, sandbox } = createTestAuthorities('ed25519', Date.now);
  const authority = parseSshKeyLine(breakGlass.publicKey);
  const krlOf = (serials: readonly bigint[], version = 1n): Uint8Array =>
    createKrl({ version, generatedAt: 0, comment: '', certificates: [{ authority, serials, keyIds: [] }], keys: [] }).bytes;
  const section = (init: { sshKrl?: Uint8Array; sshUserCa?: string; jwks?: string[] } = {}): AccessSpec =>
    create(AccessSpecSchema, { sshUserCa: breakGlass.publicKey, ...init });
  const specOf = (access?: AccessSpec): Uint8Array =>
    toBinary(NodeSpecSchema, create(NodeSpecSchema, access === undefined ? {} : { access }));
  const open = async (name: string) => {
    const folder = join(scratchFolder(), name);
    const data = join(folder, 'data');
    const ssh = join(folder, 'ssh');
    mkdirSync(data, { recursive: true });
    const store = await withAccess(await openSpecStore(data), {
      files: sshAccessFiles({ folder: ssh, nodeId: 'node-1' }),
      log: silent,
      retryAfterMs: 5,
    });
    return {
      store,
      data,
      ssh,
      text: (file: string) => readFileSync(join(ssh, file), 'utf8'),
      bytes: (file: string) => readFileSync(join(ssh, file)),
    };
  };

  it('SSH-006 writes the list, the authority and what sshd includes, as whole files that sshd reads and only the daemon writes', async () => {
    const { store, ssh, text, bytes } = await open('written');
    await store.save({ generation: 1n, spec: specOf(section()) });
    assert.deepEqual(store.access, { isApplied: true, detail: '' });
    assert.deepEqual(readdirSync(ssh).sort(), ['revoked_keys', 'sshd.conf', 'user_ca']);
    for (const name of readdirSync(ssh)) assert.equal(statSync(join(ssh, name)).mode & 0o777, 0o644, name);
    assert.equal(statSync(ssh).mode & 0o777, 0o755);
    assert.equal(text('user_ca'), `${breakGlass.publicKey}\n`);
    assert.equal(
      text('sshd.conf').split('\n').slice(1).join('\n'),
      `RevokedKeys ${ssh}/revoked_keys\nTrustedUserCAKeys ${ssh}/user_ca\nAuthorizedPrincipalsCommand /bin/echo %u@node-1\nAuthorizedPrincipalsCommandUser nobody\n`,
    );
    const issued = await breakGlass.issueUserCertificate({
      publicKey: createPair('ed25519', 'ada').line,
      account: 'root',
      nodeId: 'node-1',
      keyId: 'ada',
      sessionEndsAt: Date.now() + 60_000,
    });
    const certificate = parseSshCertificateLine(issued.certificate);
    assert.equal(findRevocation(parseKrl(bytes('revoked_keys')), certificate), null, 'an empty list is a list');
    await store.save({ generation: 2n, spec: specOf(section({ sshKrl: krlOf([issued.serial]) })) });
    assert.equal(findRevocation(parseKrl(bytes('revoked_keys')), certificate), 'serial');
  });

  it('SSH-007 trusts the one authority that the section names: a second line, and a stranger to it, are in no file', async () => {
    const { store, text } = await open('one-authority');
    await store.save({ generation: 1n, spec: specOf(section()) });
    const sandboxBlob = sandbox.publicKey.split(' ')[1] as string;
    await store.save({ generation: 2n, spec: specOf(section({ sshUserCa: `${breakGlass.publicKey}\n${sandbox.publicKey}` })) });
    assert.equal(store.access?.isApplied, false);
    assert.match(
      store.access?.detail ?? '',
      /^the public key of the break-glass authority in the desired state is not one line of OpenSSH form$/,
    );
    assert.equal(text('user_ca'), `${breakGlass.publicKey}\n`, 'what was there stays');
    assert.ok(!text('user_ca').includes(sandboxBlob));
    store.close();
    await store.save({ generation: 3n, spec: specOf(section({ sshUserCa: '' })) });
    assert.equal(text('user_ca'), '', 'an authority that is taken out is trusted no more');
  });

  it('a list that does not read to its end replaces nothing, and is tried again', async () => {
    const { store, bytes } = await open('bad-list');
    await store.save({ generation: 1n, spec: specOf(section({ sshKrl: krlOf([7n]) })) });
    const kept = bytes('revoked_keys');
    await store.save({ generation: 2n, spec: specOf(section({ sshKrl: krlOf([7n, 8n], 2n).slice(0, -1) })) });
    assert.equal(store.access?.isApplied, false);
    assert.equal(store.current?.generation, 2n, 'the spec is taken all the same');
    assert.deepEqual(bytes('revoked_keys'), kept);
    store.close();
  });

  it('applies what it kept when it starts, and again when the folder can be written to', async () => {
    const { store, data, ssh, text } = await open('again');
    await store.save({ generation: 1n, spec: specOf(section()) });
    store.close();
    writeFileSync(join(ssh, 'user_ca'), `${sandbox.publicKey}\n`);
    chmodSync(ssh, 0o777);
    const files = sshAccessFiles({ folder: ssh, nodeId: 'node-1' });
    const restarted = await withAccess(await openSpecStore(data), { files, log: silent, retryAfterMs: 5 });
    assert.match(restarted.access?.detail ?? '', /^others may write to .*again\/ssh, and put an authority of theirs there: chmod go-w /);
    assert.equal(text('user_ca'), `${sandbox.publicKey}\n`);
    chmodSync(ssh, 0o755);
    await eventually('it is applied', () => restarted.access?.isApplied === true);
    assert.equal(text('user_ca'), `${breakGlass.publicKey}\n`);
    restarted.close();
  });

  it('a spec without the section leaves the files alone, and nothing is claimed without a folder', async () => {
    const { store, ssh } = await open('absent');
    await store.save({ generation: 1n, spec: specOf() });
    assert.deepEqual([store.access, existsSync(ssh)], [undefined, false]);
    const reported = (outcome?: SectionOutcome) => sectionReports(create(NodeSpecSchema, { access: section() }), { access: outcome })[0];
    assert.deepEqual(reported(), {
      section: 'access',
      state: SectionState.UNSUPPORTED,
      detail: 'the configuration of this daemon names no sshFolder',
    });
    assert.deepEqual(reported({ isApplied: true, detail: '' })?.state, SectionState.APPLIED);
    assert.deepEqual(reported({ isApplied: false, detail: 'why' }), { section: 'access', state: SectionState.FAILED, detail: 'why' });
  });
});
