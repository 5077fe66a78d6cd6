/**
 * A management controller for tests and demonstrations: real HTTP, real TLS with a certificate of its own, a captured tree or a small
 * one, and a machine behind it that does what it is told. Quirks of the field are switched on by name, faults come by script.
 */
import { createHash, generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { encodePem, issueCa, signerFromPrivateKey } from '../../../pki/x509/index.ts';
import { FakeAccounts } from './accounts.ts';
import { type Answer, complaint, FakeChanges } from './changes.ts';
import { FakeMachine } from './machine.ts';
import { type Body, openTree } from './trees.ts';
import type { FakeBmc, FakeBmcOptions, FakeRequest, Fault } from './types.ts';
import { FakeView, sessionsPath } from './view.ts';

export { hasTree } from './trees.ts';
export type * from './types.ts';

interface Identity {
  readonly key: string;
  readonly cert: string;
  readonly pin: string;
}

async function newIdentity(): Promise<Identity> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const signer = signerFromPrivateKey(privateKey);
  const { der } = await issueCa({
    profile: 'rootCa',
    trustDomain: 'bmc.test',
    spki: signer.spki,
    issuer: { self: signer },
    now: Date.now(),
  });
  const spki = publicKey.export({ type: 'spki', format: 'der' });
  return {
    key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    cert: encodePem('CERTIFICATE', der),
    pin: createHash('sha256').update(spki).digest('hex'),
  };
}

export async function startFakeBmc(options: FakeBmcOptions): Promise<FakeBmc> {
  const identity = options.tls === false ? null : await newIdentity();
  const spare = options.tls === false ? null : await newIdentity();
  const fake = new FakeController(options, identity, spare);
  await fake.accept();
  return fake;
}

class FakeController implements FakeBmc {
  readonly state;
  readonly requests: FakeRequest[] = [];
  readonly effects;
  pinSha256: string;
  readonly #options: FakeBmcOptions;
  readonly #machine: FakeMachine;
  readonly #accounts: FakeAccounts;
  readonly #view: FakeView;
  readonly #changes: FakeChanges;
  readonly #server: HttpServer | HttpsServer;
  readonly #spare: Identity | null;
  #port: number;
  #underWay = 0;
  #overlaps = 0;

  constructor(options: FakeBmcOptions, identity: Identity | null, spare: Identity | null) {
    const now = options.now ?? Date.now;
    const tree = openTree(options.tree);
    this.#options = options;
    this.#spare = spare;
    this.#port = options.port ?? 0;
    this.#machine = new FakeMachine(options, now);
    this.#accounts = new FakeAccounts(options, this.#machine, now);
    this.#view = new FakeView({ tree, machine: this.#machine, accounts: this.#accounts, options, now });
    this.#changes = new FakeChanges({ tree, machine: this.#machine, accounts: this.#accounts, view: this.#view, options });
    this.state = this.#machine.state;
    this.pinSha256 = identity?.pin ?? '';
    this.effects = this.#counted();
    const handle = (request: IncomingMessage, response: ServerResponse): void => void this.#handle(request, response);
    this.#server = identity === null ? createHttpServer(handle) : createHttpsServer({ key: identity.key, cert: identity.cert }, handle);
    this.#server.on('tlsClientError', () => undefined);
  }

  get address(): string {
    return `${this.#options.host ?? '127.0.0.1'}:${this.#port}`;
  }

  #counted(): FakeBmc['effects'] {
    const [machine, accounts, changes, overlaps] = [this.#machine, this.#accounts, this.#changes, () => this.#overlaps] as const;
    return {
      resets: machine.resets,
      resetsAsked: machine.resetsAsked,
      mediaMoves: machine.mediaMoves,
      get sessionsOpen() {
        return accounts.sessions.size;
      },
      get sessionsOpened() {
        return accounts.opened;
      },
      get loginsFailed() {
        return accounts.loginsFailed;
      },
      get passwordChanges() {
        return accounts.passwordChanges;
      },
      get managerResets() {
        return changes.managerResets;
      },
      get overlaps() {
        return overlaps();
      },
    };
  }

  changeCertificate(): void {
    if (this.#spare === null) return;
    this.pinSha256 = this.#spare.pin;
    (this.#server as HttpsServer).setSecureContext({ key: this.#spare.key, cert: this.#spare.cert });
  }

  async refuse(): Promise<void> {
    const closed = new Promise<void>((resolve) => void this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  async accept(): Promise<void> {
    this.#server.listen(this.#port, this.#options.host ?? '127.0.0.1');
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  close(): Promise<void> {
    return this.#server.listening ? this.refuse() : Promise.resolve();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#underWay += 1;
    if (this.#underWay > 1) {
      this.#overlaps += 1;
      if (this.#machine.has('wedges-on-overlap')) this.state.wedged = true;
    }
    response.on('close', () => void (this.#underWay -= 1));
    const text = await readAll(request).catch(() => '');
    const noted: FakeRequest = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      body: parsed(text),
      status: 0,
    };
    this.requests.push(noted);
    if (this.state.wedged) return;
    const fault = this.#options.script?.(noted, this.requests.length);
    if (fault?.kind === 'cut-before') return void request.socket.destroy();
    if (fault?.kind === 'hang') return;
    if (fault?.kind === 'flood') return flood(response, fault.bytes);
    const answer = fault?.kind === 'answer' ? null : await this.#answer(noted, request);
    if (fault?.kind === 'cut-after') return void request.socket.destroy();
    send(response, noted, faulty(fault) ?? answer ?? { status: 500 });
  }

  async #answer({ method, path: whole, body }: FakeRequest, request: IncomingMessage): Promise<Answer> {
    const [path = '', query = ''] = whole.split('?');
    const plain = path.replace(/\/$/, '');
    const isManagerReset = plain.endsWith('/Manager.Reset');
    if (this.#changes.isStuck && !isManagerReset) return { status: 504, body: '<html><h1>504 Gateway Time-out</h1></html>' };
    const isOpen = plain === '/redfish/v1' || plain === '/redfish' || (method === 'POST' && plain === sessionsPath);
    if (!isOpen && !this.#accounts.isKnown(request)) return complaint(401, 'NoValidSession');
    const object = (typeof body === 'object' && body !== null ? body : {}) as Body;
    if (method === 'POST') return this.#changes.post(plain, object, request);
    if (method === 'DELETE') return this.#changes.delete(plain);
    if (method === 'PATCH') return this.#changes.patch(plain, object, header(request, 'if-match'));
    return this.#get(plain, query);
  }

  #get(path: string, query: string): Answer {
    if (path === '/redfish') return { status: 200, body: { v1: '/redfish/v1/' } };
    if (this.#accounts.mustChange && path !== '/redfish/v1')
      return complaint(403, 'PasswordChangeRequired', [openTree(this.#options.tree).account]);
    const task = this.#changes.readTask(path);
    if (task !== undefined) return task;
    const body = this.#view.read(path);
    if (body === undefined) return complaint(404, 'ResourceMissingAtURI', [path]);
    const wantsMore = query.includes('$expand=');
    if (wantsMore && this.#machine.has('no-expand')) return complaint(501, 'QueryNotSupported');
    return { status: 200, headers: { etag: this.#view.tagOf(body) }, body: wantsMore ? this.#view.expanded(body) : body };
  }
}

const header = (request: IncomingMessage, name: string): string | undefined => {
  const value = request.headers[name];
  return typeof value === 'string' ? value : undefined;
};

const faulty = (fault: Fault | undefined): Answer | undefined =>
  fault?.kind === 'answer' || fault?.kind === 'answer-after'
    ? { status: fault.status, body: fault.body, ...(fault.headers === undefined ? {} : { headers: fault.headers }) }
    : undefined;

function send(response: ServerResponse, noted: FakeRequest, { status, body, headers }: Answer): void {
  noted.status = status;
  const text = body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body);
  const type = typeof body === 'string' && body.startsWith('<') ? 'text/html' : 'application/json';
  response.writeHead(status, { ...(text === '' ? {} : { 'content-type': type }), 'odata-version': '4.0', ...headers });
  response.end(text);
}

/** Bytes until the other side has had enough. */
function flood(response: ServerResponse, bytes: number): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  const chunk = Buffer.alloc(64 * 1024, ' ');
  let left = bytes;
  const more = (): void => {
    while (left > 0 && !response.destroyed) {
      left -= chunk.length;
      if (!response.write(chunk)) return void response.once('drain', more);
    }
    response.end();
  };
  response.on('error', () => undefined);
  more();
}

async function readAll(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
