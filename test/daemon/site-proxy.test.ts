import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { lookup } from 'node:dns';
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttps } from 'node:https';
import type { AddressInfo } from 'node:net';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import type { KindEnd } from '../../daemon/kinds/handler.ts';
import type { SecretBinding } from '../../daemon/secrets/port.ts';
import { memoryRefusals } from '../../daemon/site/bmc/credential-broker.ts';
import { siteSection } from '../../daemon/site/config.ts';
import { createSiteHandlers } from '../../daemon/site/index.ts';
import { type AllowRule, judgeAddress, judgeTarget, parseAllowRule } from '../../daemon/site/proxy/allow.ts';
import { createProxyHandler } from '../../daemon/site/proxy/handler.ts';
import { commandKinds } from '../../domain/commands/kinds.ts';
import { ControlError } from '../../domain/errors.ts';
import { parseCertificate, parsePemCertificates } from '../../pki/x509/index.ts';
import { site } from '../../proto/index.ts';
import { createDeployment } from '../harness/deployment.ts';
import { context } from './boot-stage.ts';

const ruleOf = (text: string): AllowRule => parseAllowRule(text).rule ?? assert.fail(parseAllowRule(text).problem ?? '');
const failsWith = (reason: string, message: RegExp) => (error: unknown) =>
  error instanceof ControlError && error.details['reason'] === reason && message.test(error.message);

describe('site.httpProxy', () => {
  const seen: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[] = [];
  const asked: (SecretBinding & { ref: string })[] = [];
  let answer: (request: IncomingMessage, response: ServerResponse) => void;
  let pinSha256: string;
  let secure: number;
  let plain: number;
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      seen.push({ method: request.method ?? '', url: request.url ?? '', headers: request.headers, body });
      answer(request, response);
    });
  };
  const servers: { close(): void; closeAllConnections(): void }[] = [];
  before(async () => {
    const { serving } = await createDeployment();
    const [leaf] = parsePemCertificates(serving.cert);
    pinSha256 = createHash('sha256')
      .update(parseCertificate(leaf as Uint8Array).spki)
      .digest('hex');
    const https = createHttps(serving, onRequest);
    const http = createHttp(onRequest);
    for (const server of [https, http]) await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    servers.push(https, http);
    secure = (https.address() as AddressInfo).port;
    plain = (http.address() as AddressInfo).port;
  });
  beforeEach(() => {
    seen.length = 0;
    asked.length = 0;
    answer = (_request, response) => void response.end('{"ok":true}');
  });
  after(() => {
    for (const server of servers) {
      server.closeAllConnections();
      server.close();
    }
  });

  const secrets = {
    read: async (ref: string, binding: SecretBinding) => {
      asked.push({ ref, ...binding });
      return Buffer.from('hunter-2-secret');
    },
  };
  const proxy = (over: MessageInitShape<typeof site.SiteHttpProxySchema>, resolve?: typeof lookup): Promise<KindEnd> =>
    createProxyHandler({
      secrets,
      allow: [`https://127.0.0.1:${secure}/redfish/`, `http://127.0.0.1:${plain}`, `https://*.site.example:${secure}`],
      ...(resolve === undefined ? {} : { lookup: resolve }),
    }).run(create(site.SiteHttpProxySchema, { nodeId: 'machine-1', method: 'GET', ...over }), context('wf/run-1/step.1'));
  const url = (path = '/redfish/v1'): string => `https://127.0.0.1:${secure}${path}`;
  const resultOf = (end: KindEnd) =>
    create(site.SiteHttpProxyResultSchema, (end.kind === 'succeeded' ? end.value : assert.fail()) as never);

  it('KIND-006 KIND-007 is one of the kinds of a site agent, which has a handler for each row of its role and no other', () => {
    const rows = Object.entries(commandKinds).filter(([, { roles }]) => (roles as readonly string[]).includes('site'));
    const handlers = createSiteHandlers({
      config: siteSection.parse({}),
      host: { root: '/', readBootId: async () => 'boot' },
      logs: { files: {} },
      upgrade: null,
      plugins: null,
      secrets,
      now: Date.now,
      refusals: memoryRefusals(),
      desk: null,
    });
    assert.deepEqual(Object.keys(handlers).sort(), rows.map(([kind]) => kind).sort());
  });

  it('SEC-022 sends secret headers that it asked for by the step of its command, and never brings them back', async () => {
    answer = (request, response) => {
      response.writeHead(207, {
        'set-cookie': 'a=b',
        'x-auth-token': 't',
        'www-authenticate': 'Basic',
        'x-echo': String(request.headers['x-auth-token']),
        etag: '"1"',
      });
      response.end(`you said ${String(request.headers['x-auth-token'])}`);
    };
    const headers = [
      { name: 'X-Auth-Token', valueRef: 'secret://bmc/machine-1' },
      { name: 'If-Match', value: '*' },
    ];
    const result = resultOf(await proxy({ method: 'POST', url: url('/redfish/v1/x?a=b'), headers, body: Buffer.from('{}'), pinSha256 }));
    assert.deepEqual(asked, [{ ref: 'secret://bmc/machine-1', workflowId: 'wf/run-1', stepId: 'step.1' }]);
    assert.deepEqual(
      [seen[0]?.method, seen[0]?.url, seen[0]?.body, seen[0]?.headers['x-auth-token'], seen[0]?.headers['if-match']],
      ['POST', '/redfish/v1/x?a=b', '{}', 'hunter-2-secret', '*'],
    );
    assert.equal(result.status, 207);
    const names = result.headers.map(({ name }) => name.toLowerCase());
    for (const hidden of ['set-cookie', 'x-auth-token', 'www-authenticate', 'connection'])
      assert.equal(names.includes(hidden), false, hidden);
    assert.equal(result.headers.find(({ name }) => name === 'x-echo')?.value, '***');
    assert.equal(Buffer.from(result.body).toString(), 'you said ***');
  });

  it('makes no request beyond the list of the owner, and follows nobody elsewhere', async () => {
    const refused: [string, string][] = [
      [`https://127.0.0.1:${secure}/other`, 'not-allowed'],
      [`https://127.0.0.1:${secure}/redfish/../other`, 'not-allowed'],
      [`https://127.0.0.1:${secure}/redfish/%2e%2e/other`, 'not-allowed'],
      [`https://127.0.0.1:${secure}/redfish/..%2fother`, 'proxy-url'],
      [`https://user:x@127.0.0.1:${secure}/redfish/`, 'proxy-url'],
      [`https://127.0.0.1:${secure}\\@other/redfish/`, 'proxy-url'],
      [`https://localhost:${secure}/redfish/`, 'not-allowed'],
      [`https://site.example:${secure}/`, 'not-allowed'],
      ['http://169.254.169.254/latest/meta-data/', 'not-allowed'],
      ['file:///etc/passwd', 'proxy-url'],
      ['', 'proxy-url'],
    ];
    for (const [target, reason] of refused) await assert.rejects(proxy({ url: target, pinSha256: '' }), failsWith(reason, /./), target);
    answer = (_request, response) => void response.writeHead(302, { location: 'http://169.254.169.254/' }).end();
    assert.equal(resultOf(await proxy({ url: url(), pinSha256 })).status, 302);
    assert.equal(seen.length, 1);
  });

  it('goes to no address that a name leads to of this machine, its link or no single machine', async () => {
    for (const address of ['127.0.0.1', '169.254.169.254', '::1', '::ffff:127.0.0.1', 'fe80::1', '0.0.0.0', '224.0.0.1']) {
      const resolve = ((_host: string, _options: unknown, callback: (error: null, all: { address: string; family: number }[]) => void) =>
        callback(null, [{ address, family: 4 }])) as unknown as typeof lookup;
      await assert.rejects(
        proxy({ url: `https://bmc.site.example:${secure}/`, pinSha256 }, resolve),
        failsWith('address-not-allowed', /leads to/),
        address,
      );
    }
    assert.equal(seen.length, 0);
    judgeAddress('10.0.0.1', ruleOf('https://*.site.example'));
    judgeAddress('127.0.0.1', ruleOf('https://127.0.0.1'));
  });

  it('sends nothing to a server with another key, nor to one that nobody vouches for', async () => {
    await assert.rejects(
      proxy({ url: url(), pinSha256: 'f'.repeat(64) }),
      failsWith('pin-mismatch', new RegExp(`has SHA-256 ${pinSha256}`)),
    );
    await assert.rejects(proxy({ url: url() }), failsWith('not-trusted', /not one that this machine trusts/));
    assert.equal(seen.length, 0);
  });

  it('SEC-022 names everything that is wrong with a request, a secret without TLS too, and never a value', async () => {
    const headers = [
      { name: 'Host', value: 'other' },
      { name: 'Authorization', value: 'Basic c2VjcmV0' },
      { name: 'X-A', value: 'a\r\nX-B: b' },
      { name: 'a b', value: '' },
      { name: 'X-Ref', valueRef: 'secret://x' },
    ];
    await assert.rejects(
      proxy({ method: 'get', nodeId: '', url: `http://127.0.0.1:${plain}/`, headers, pinSha256: 'x' }),
      (error: Error) =>
        [
          'node_id is no',
          'method must be one of GET',
          'pin_sha256 must be',
          '(Host) is of the connection',
          '(Authorization) holds a secret',
          '(X-A) has a value that no header has',
          'header 4 has a name',
          '(X-Ref) is a secret, which is not sent without TLS',
        ].every((part) => error.message.includes(part)) && !error.message.includes('c2VjcmV0'),
    );
    await assert.rejects(proxy({ url: url(), body: Buffer.from('x') }), failsWith('proxy-payload', /a GET has no body/));
    assert.equal(seen.length, 0);
  });

  it('brings back 256 KiB of an answer, and gives up a server that stops in the middle', async () => {
    answer = (_request, response) => void response.end(Buffer.alloc(400 * 1024, 'x'));
    const result = resultOf(await proxy({ url: url(), pinSha256 }));
    assert.deepEqual([result.body.length, result.truncated], [256 * 1024, true]);
    answer = (_request, response) => void response.writeHead(200, { 'content-length': 10 }).write('half');
    await assert.rejects(proxy({ url: url(), pinSha256, timeoutMs: 50 }), failsWith('timeout', /no whole answer from .* within 0\.05 s/));
  });

  it('repeats a read after a crash, and never a write', async () => {
    const { recover } = createProxyHandler({ secrets, allow: [`https://127.0.0.1:${secure}`] });
    const of = (method: string) => create(site.SiteHttpProxySchema, { nodeId: 'm', method, url: url(), pinSha256 });
    assert.equal((await recover?.(of('GET'), context('w/s.1')))?.kind, 'succeeded');
    assert.equal((await recover?.(of('POST'), context('w/s.1')))?.kind, 'interrupted');
    assert.equal(seen.length, 1);
  });

  it('takes rules that say what they mean, and no others', () => {
    for (const text of [
      'https://a',
      'https://a:8443/x/',
      'https://*.a.example',
      'https://10.0.0.0/8:443',
      'https://[fd00::]/8',
      'http://10.0.0.1',
    ])
      assert.equal(parseAllowRule(text).problem, null, text);
    for (const text of [
      '',
      '*',
      'a',
      'https://*',
      'https://a/x',
      'https://a/8',
      'https://10.0.0.0/33',
      'https://*.10.0.0.1',
      'https://a:0',
      'https://a/../x/',
      'ftp://a',
    ])
      assert.notEqual(parseAllowRule(text).problem, null, text);
    assert.equal(judgeTarget('https://10.9.9.9/x', [ruleOf('https://10.0.0.0/8')]).rule.text, 'https://10.0.0.0/8');
    assert.throws(
      () => judgeTarget('https://11.0.0.1/x', [ruleOf('https://10.0.0.0/8')]),
      failsWith('not-allowed', /allowed: https:\/\/10/),
    );
    assert.throws(() => siteSection.parse({ proxyAllow: ['ftp://a'] }), /must be https/);
  });
});
