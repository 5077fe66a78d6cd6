import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { parseBootCmdline } from '../../domain/metal/cmdline.ts';
import { parsePinsFile } from '../../pki/enroll/index.ts';
import { verifyEnvelope } from '../../pki/envelope/index.ts';
import { approverSetDigest } from '../../pki/trust/index.ts';
import { parseCertificate, verifyChain } from '../../pki/x509/index.ts';
import { decodeMessage, site } from '../../proto/index.ts';
import { createApprover, quorumOfApprovers } from '../harness/approvers.ts';
import { createDeployment, type TestDeployment } from '../harness/deployment.ts';
import { removeScratchFolders } from '../harness/scratch.ts';
import {
  answerIn,
  assertion,
  type BootStage,
  bootStage,
  cleanUp,
  files,
  hash,
  mac,
  prepare,
  runId,
  scriptOf,
  token,
} from './boot-stage.ts';

describe('the boot server', () => {
  let deployment: TestDeployment;
  let stage: BootStage;
  before(async () => {
    deployment = await createDeployment({ now: 1_799_999_000_000 });
  });
  beforeEach(async () => {
    stage = await bootStage(deployment);
  });
  afterEach(() => stage.close());
  after(removeScratchFolders);

  const problemOf = async (response: Response) => {
    const problem = (await response.json()) as { code: string; message: string; details: Record<string, unknown> };
    return { status: response.status, code: problem.code, reason: problem.details['reason'], message: problem.message };
  };

  describe('entries', () => {
    it('SEC-023 hands the ramdisk its token, asked for by the workflow of its entry, and everything it needs to join', async () => {
      const server = await stage.start();
      const end = await prepare(server);
      assert.deepEqual(end.kind === 'succeeded' ? end.value : end, {
        scriptUrl: `${server.baseUrl}/ipxe/${mac}`,
        uefiHttpUrl: `${server.baseUrl}/uefi/${mac}/boot.efi`,
      });
      const script = await scriptOf(server, '52-54-00-00-00-01.ipxe');
      const line = parseBootCmdline(/^kernel .* initrd=initramfs (.*) \|\| goto again$/m.exec(script)?.[1] ?? '');
      const { pins, ...facts } = line;
      assert.deepEqual(facts, {
        site: server.baseUrl,
        entryId: 'entry-1',
        token: token.toString('base64url'),
        bootNonce: '03'.repeat(16),
        nodeId: 'machine-1',
        runId,
        gatewayUrl: 'https://gateway.test:7443',
        macAddress: mac,
      });
      const { trustDomain, serverName } = parsePinsFile(Buffer.from(pins, 'base64url').toString());
      assert.deepEqual([trustDomain, serverName], ['test.example', 'gw.test']);
      assert.deepEqual(stage.asked, [
        { ref: `secret://run/${runId}/boot/entry-1`, workflowId: `machine/machine-1/provision/${runId}`, stepId: '' },
      ]);
    });

    it('PIN-001 BAT-030 pins the ramdisk to the approvers that this agent enforces, so that a new boot knows them', async () => {
      const fields = quorumOfApprovers({ approvers: [createApprover(), createApprover()] });
      stage.state.identity = { quorum: { kind: 'held', fields, epoch: 1 } };
      const server = await stage.start();
      await prepare(server);
      const script = await scriptOf(server, '52-54-00-00-00-01.ipxe');
      const { pins } = parseBootCmdline(/^kernel .* initrd=initramfs (.*) \|\| goto again$/m.exec(script)?.[1] ?? '');
      assert.equal(parsePinsFile(Buffer.from(pins, 'base64url').toString()).approverSetSha256, approverSetDigest(fields));
    });

    it('M6 answers after a restart as before it, and makes the machine wait while the token cannot be had', async () => {
      await prepare(await stage.start());
      await stage.close();
      assert.equal(
        (await readFile(join(stage.stateFolder, 'machine-machine-1.json'), 'utf8')).includes(token.toString('base64url')),
        false,
      );
      stage.state.secret = null;
      const server = await stage.start();
      assert.equal(answerIn(await scriptOf(server)), 'hold');
      stage.state.secret = Buffer.alloc(32, 9);
      assert.equal(answerIn(await scriptOf(server)), 'hold', 'another token than the one of the entry');
      stage.state.secret = token;
      assert.equal(answerIn(await scriptOf(server)), 'ramdisk');
    });

    it('M6 holds while an entry stands, expired or used, and lets go when it is cleaned up; what was seen is told then', async () => {
      const server = await stage.start();
      assert.equal(answerIn(await scriptOf(server)), 'hold', 'unknown');
      await prepare(server);
      assert.equal(answerIn(await scriptOf(server)), 'ramdisk');
      assert.equal((await assertion(server)).status, 200);
      assert.equal(answerIn(await scriptOf(server)), 'hold', 'used');
      stage.state.now += 3_600_000;
      assert.equal(answerIn(await scriptOf(server)), 'hold', 'expired');
      const seen = {
        removed: 1,
        scriptsServed: 1,
        lastSeenAtMs: 1_800_000_000_000n,
        assertedAtMs: 1_800_000_000_000n,
        refusedAssertions: 0,
      };
      for (const _twice of [1, 2]) {
        const end = await cleanUp(server);
        assert.deepEqual(end.kind === 'succeeded' ? end.value : end, seen);
      }
      assert.equal(answerIn(await scriptOf(server)), 'local');
      await cleanUp(server, { answer: site.BootAnswer.HOLD });
      assert.equal(answerIn(await scriptOf(server)), 'hold');
    });

    it('M6 sends nobody unknown to the disk while a record does not read back', async () => {
      await stage.close();
      stage = await bootStage(deployment, { defaultAnswer: 'local' });
      await prepare(await stage.start());
      await stage.close();
      await writeFile(join(stage.stateFolder, 'machine-machine-1.json'), '{"format":');
      const server = await stage.start();
      assert.equal(answerIn(await scriptOf(server)), 'hold');
      assert.ok(stage.log.some(({ level, message }) => level === 'error' && /does not read back/.test(message)));
      await cleanUp(server);
      assert.equal(answerIn(await scriptOf(server)), 'local');
      assert.equal(answerIn(await scriptOf(server, '52:54:00:00:00:99')), 'local', 'nothing is damaged any more');
      assert.ok((await readdir(stage.stateFolder)).includes('machine-machine-1.json.previous'));
    });

    it('refuses an address that another machine under maintenance has, and takes it over from one that is not', async () => {
      const server = await stage.start();
      await prepare(server);
      const other = { nodeId: 'machine-2', entryId: 'entry-2' };
      await assert.rejects(
        prepare(server, other),
        /52:54:00:00:00:01 of machine machine-2 is an address of machine-1, which is under maintenance/,
      );
      await cleanUp(server);
      assert.equal((await prepare(server, other)).kind, 'succeeded');
      assert.match(await scriptOf(server), / bc\.node=machine-2 /);
    });

    it('names everything that is wrong with a payload, and touches nothing', async () => {
      const server = await stage.start();
      await assert.rejects(
        prepare(server, {
          runId: 'x',
          entryId: '../x',
          macAddresses: ['ff:ff:ff:ff:ff:ff'],
          bootNonce: Buffer.alloc(3),
          kernel: { name: '../../etc/shadow', sha256: 'x' },
          kernelArgs: 'a || shell',
        }),
        (error: Error) =>
          [
            'run_id must',
            'entry_id must',
            'mac_addresses holds "ff:ff',
            'boot_nonce has 3',
            'kernel.name is no',
            'kernel_args: "||"',
          ].every((part) => error.message.includes(part)),
      );
      await assert.rejects(cleanUp(server, { answer: site.BootAnswer.UNSPECIFIED }), /answer must be LOCAL or HOLD/);
      await assert.rejects(
        prepare(server, { kernel: { name: 'vmlinuz', sha256: 'f'.repeat(64) } }),
        /vmlinuz has SHA-256 .* is what is to be handed out/,
      );
      await assert.rejects(prepare(server, { kernel: { name: 'none', sha256: 'f'.repeat(64) } }), /has no file "none"/);
      stage.state.secret = Buffer.alloc(3);
      await assert.rejects(prepare(server), /discovery token has 3 bytes, not 16 to 256/);
      assert.equal(answerIn(await scriptOf(server)), 'hold');
      assert.deepEqual(await readdir(stage.stateFolder), []);
    });
  });

  describe('assertions', () => {
    it('JOIN-018 M68 signs one key for a token; a second key is refused, said and told at the end of the run', async () => {
      const server = await stage.start();
      await prepare(server);
      const first = await assertion(server);
      assert.equal(first.headers.get('content-type'), 'application/octet-stream');
      const signed = decodeMessage(site.SignedDiscoveryAssertionSchema, new Uint8Array(await first.arrayBuffer()), 'joinRequest');
      const said = decodeMessage(site.DiscoveryAssertionSchema, signed.body, 'joinRequest');
      const { chain, key } = {
        chain: signed.signature?.chain ?? [],
        key: parseCertificate(stage.stored.identity.chain[0] as Uint8Array).spki,
      };
      verifyEnvelope({ signature: signed.signature, purpose: 'discovery', parts: [signed.body], key });
      verifyChain(chain, { anchors: [deployment.bundle.nodeCa.certificate.der], purpose: 'client', now: stage.state.now });
      assert.deepEqual(
        [said.nodeId, said.runId, said.entryId, said.agentNodeId, said.macAddress, said.systemUuid, said.systemSerial],
        ['machine-1', runId, 'entry-1', 'agent-1', mac, 'uuid-1', 'serial-1'],
      );
      assert.equal(Buffer.from(said.tokenSha256).toString('hex'), hash(token));
      assert.equal(Buffer.from(said.csrSha256).toString('hex'), 'a'.repeat(64));
      assert.deepEqual(Buffer.from(said.bootNonce), Buffer.alloc(16, 3));
      assert.equal(said.expiresAtMs - said.issuedAtMs, 600_000n);

      assert.equal((await assertion(server)).status, 200, 'the same key, whose answer was lost');
      const second = await problemOf(await assertion(server, { csrSha256: 'b'.repeat(64) }));
      assert.deepEqual([second.status, second.code, second.reason], [401, 'REPLAYED', 'entry-used']);
      assert.ok(stage.log.some(({ level, facts }) => level === 'error' && facts['event'] === 'boot.second-assertion'));
      assert.deepEqual(stage.refusals, ['entry-used']);
      await stage.close();
      const again = await stage.start();
      assert.equal((await assertion(again, { csrSha256: 'b'.repeat(64) })).status, 401, 'used for good, over a restart');
      const end = await cleanUp(again);
      assert.equal(end.kind === 'succeeded' ? (end.value as { refusedAssertions: number }).refusedAssertions : 0, 2);
      assert.equal((await assertion(again)).status, 403, 'cleaned up');
    });

    it('M68 of two keys that come at once with one token, one is signed', async () => {
      const server = await stage.start();
      await prepare(server);
      const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => assertion(server, { csrSha256: String(n).repeat(64) })));
      assert.equal(answers.filter(({ status }) => status === 200).length, 1);
      assert.equal(answers.filter(({ status }) => status === 401).length, 7);
    });

    it('refuses a wrong token, an address without an entry, the end of its time, and any body that is none', async () => {
      const server = await stage.start();
      await prepare(server);
      for (const wrong of [{ token: Buffer.alloc(32, 8) }, { macAddress: '52:54:00:00:00:02' }])
        assert.deepEqual((await problemOf(await assertion(server, wrong))).reason, 'no-entry');
      for (const body of ['', '{', '[]', '{"token":"AA"}', `{"token":"${'A'.repeat(4_000)}"}`, JSON.stringify({ x: 1 })]) {
        const { status, code, message } = await problemOf(await fetch(`${server.baseUrl}/v1/assert`, { method: 'POST', body }));
        assert.deepEqual([status, code], [400, 'MALFORMED']);
        assert.equal(message.includes('AAAA'), false);
      }
      const large = await problemOf(await fetch(`${server.baseUrl}/v1/assert`, { method: 'POST', body: 'x'.repeat(5_000) }));
      assert.deepEqual([large.status, large.code], [413, 'FRAME_TOO_LARGE']);
      stage.state.now += 600_000;
      assert.equal((await problemOf(await assertion(server))).reason, 'entry-expired');
      assert.equal((await fetch(`${server.baseUrl}/v1/assert`)).status, 405);
    });
  });

  describe('artefacts', () => {
    it('hands a file out under the checksum of an entry, whole, in parts, by its tag and by its head', async () => {
      const server = await stage.start();
      const url = `${server.baseUrl}/artefacts/initramfs`;
      assert.equal((await problemOf(await fetch(url))).message, 'nobody vouches for the artefact initramfs');
      await prepare(server);
      const all = await fetch(url);
      assert.deepEqual(Buffer.from(await all.arrayBuffer()), files.initramfs);
      const etag = all.headers.get('etag') ?? '';
      assert.equal(etag, `"sha256-${hash(files.initramfs)}"`);
      const of = async (headers: Record<string, string>, method = 'GET') => {
        const {
          status,
          headers: got,
          ...answer
        } = await fetch(url, { method, headers }).then(async (one) => ({
          status: one.status,
          headers: one.headers,
          body: Buffer.from(await one.arrayBuffer()),
        }));
        return { status, range: got.get('content-range'), length: got.get('content-length'), body: answer.body };
      };
      const { length } = files.initramfs;
      const part = (first: number, last: number) => ({
        status: 206,
        range: `bytes ${first}-${last}/${length}`,
        length: String(last - first + 1),
        body: files.initramfs.subarray(first, last + 1),
      });
      assert.deepEqual(await of({ range: 'bytes=10-19' }), part(10, 19));
      assert.deepEqual(await of({ range: 'bytes=11990-' }), part(11_990, length - 1));
      assert.deepEqual(await of({ range: 'bytes=-5' }), part(length - 5, length - 1));
      assert.deepEqual(await of({ range: 'bytes=0-99999999' }), part(0, length - 1));
      assert.deepEqual(await of({ range: 'bytes=5-6', 'if-range': etag }), part(5, 6));
      for (const headers of [
        { range: 'bytes=5-6', 'if-range': '"old"' },
        { range: 'bytes=1-2,4-5' },
        { range: 'bytes=9-1' },
        { range: 'lines=1-2' },
      ])
        assert.equal((await of(headers as never)).status, 200, JSON.stringify(headers));
      assert.deepEqual([(await of({ range: `bytes=${length}-` })).status, (await of({ range: 'bytes=-0' })).status], [416, 416]);
      assert.equal((await of({ 'if-none-match': `"x", W/${etag}` })).status, 304);
      assert.deepEqual(await of({}, 'HEAD'), { status: 200, range: null, length: String(length), body: Buffer.alloc(0) });
      assert.equal(await (await fetch(`${url}.sha256`)).text(), `${hash(files.initramfs)}  initramfs\n`);
    });

    it('hands nothing out that is not what was vouched for, nor anything outside of its folder', async () => {
      const server = await stage.start();
      await prepare(server);
      await writeFile(join(stage.artefacts, 'vmlinuz'), 'another kernel');
      const differs = await problemOf(await fetch(`${server.baseUrl}/artefacts/vmlinuz`));
      assert.deepEqual([differs.status, differs.reason], [409, 'artefact-differs']);
      assert.ok(stage.log.some(({ level, message }) => level === 'error' && /not what it is to be/.test(message)));
      await writeFile(join(stage.artefacts, 'image.raw'), 'image');
      assert.equal((await fetch(`${server.baseUrl}/artefacts/image.raw`)).status, 409);
      assert.equal(await (await fetch(`${server.baseUrl}/artefacts/image.raw?sha256=${hash(Buffer.from('image'))}`)).text(), 'image');
      assert.equal((await fetch(`${server.baseUrl}/artefacts/image.raw?sha256=${'0'.repeat(64)}`)).status, 409);
      await writeFile(join(stage.artefacts, 'image.raw.sha256'), `${hash(Buffer.from('image'))}  image.raw\n`);
      assert.equal(await (await fetch(`${server.baseUrl}/artefacts/image.raw`)).text(), 'image');
      await symlink('/etc/passwd', join(stage.artefacts, 'link'));
      const passwd = hash(await readFile('/etc/passwd'));
      for (const path of ['link', '..%2f..%2fetc%2fpasswd', '.', '..', 'a/b', '%00', 'x'.repeat(200)])
        assert.equal((await fetch(`${server.baseUrl}/artefacts/${path}?sha256=${passwd}`)).status, 404, path);
    });

    it('serves the loader to firmware that boots over HTTP and the script to iPXE, which would load itself for ever', async () => {
      await stage.close();
      stage = await bootStage(deployment, { loaders: { efiX64: 'snponly.efi' } });
      await writeFile(join(stage.artefacts, 'snponly.efi'), 'MZ loader');
      const server = await stage.start();
      const by = async (path: string, agent: string) => {
        const answer = await fetch(server.baseUrl + path, { headers: { 'user-agent': agent } });
        return [answer.headers.get('content-type'), (await answer.text()).slice(0, 9)];
      };
      for (const path of [`/uefi/${mac}/boot.efi`, '/boot.efi']) {
        assert.deepEqual(await by(path, 'UefiHttpBoot/1.0'), ['application/efi', 'MZ loader'], path);
        assert.deepEqual(
          await by(path, 'iPXE/1.21.1+git'),
          ['text/plain; charset=utf-8', '#!ipxe\nec'.replace('ec', path === '/boot.efi' ? ':w' : 'ec')],
          path,
        );
      }
      assert.equal((await fetch(`${server.baseUrl}/boot-arm64.efi`)).status, 404);
    });
  });

  it('outlives what a hostile machine sends', async () => {
    const server = await stage.start();
    const { port } = new URL(server.baseUrl);
    for (const bytes of [
      'GET / HTTP/1.1\r\n\r\n',
      '\x16\x03\x01\x02\x00\x01',
      `GET /ipxe/${'a'.repeat(9_000)} HTTP/1.1\r\nhost: x\r\n\r\n`,
      'POST /v1/assert HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
      'GET http://other/ipxe/52:54:00:00:00:01 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
      'GET /ipxe/00:00:00:00:00:00 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
      'GET /ipxe/%%% HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n',
    ]) {
      const socket = connect(Number(port), '127.0.0.1');
      let said = '';
      socket.setEncoding('latin1').on('data', (text: string) => (said += text));
      socket.write(bytes);
      await once(socket, 'close');
      assert.match(said, /^HTTP\/1\.1 4\d\d /, bytes.slice(0, 60));
      assert.doesNotMatch(said, /kernel|sanboot/);
    }
    assert.equal(await (await fetch(`${server.baseUrl}/healthz`)).text(), 'ok\n');
  });
});
