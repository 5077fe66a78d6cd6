/**
 * A client for one management controller's Redfish service: what it reads is bounded, what it writes is written once.
 *
 * GET is repeated while the controller is silent or answers 5xx, for a minute in all, and the outage is noted (M1). POST and PATCH are
 * repeated only where nothing was sent: their callers read again, compare and decide. One request is under way at a time (M14).
 * Links are followed as they come and only within the controller; nothing is guessed but the service root.
 *
 * A client lives for one operation; `close` ends its sessions and connections in every case.
 */
import { ControlError, isControlError } from '../../../domain/errors.ts';
import { minute, second } from '../../../domain/time.ts';
import { type BmcAddress, ownPath } from './address.ts';
import { Authority, type Credential, type LoginGuard } from './authority.ts';
import { ifMatchLadder } from './etag.ts';
import { refusalOf } from './refusals.ts';
import { fieldOf, type Json, linkAt, parseAnswer, type Resource } from './resource.ts';
import { awaitTask, type TaskEnd } from './tasks.ts';
import { createTransport, type Exchange, mayHaveArrived, type Transport, type TransportLimits } from './transport.ts';
import { quirksOf, type VendorQuirks, vendorOf } from './vendors.ts';
import type { RawAnswer } from './whole-answer.ts';

export interface RedfishClientOptions {
  readonly address: BmcAddress;
  readonly credential: Credential;
  readonly guard: LoginGuard;
  /** null: first contact, any key is taken. */
  readonly pinSha256: string | null;
  readonly signal: AbortSignal;
  readonly now: () => number;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Before the number of each request: what a message names it by. */
  readonly requestPrefix: string;
  readonly limits?: Partial<TransportLimits>;
}

export interface ServiceRoot {
  readonly body: Json;
  readonly vendor: string;
  readonly quirks: VendorQuirks;
  /** Levels that $expand may go down; 0: it is not known there. */
  readonly expandLevels: number;
}

export const patience = Object.freeze({ wholeMs: minute, firstMs: second, mostMs: 8 * second });

/** Of one operation: no tree that we know has more resources. */
export const requestsMax = 4000;

const rootPath = '/redfish/v1/';

export class RedfishClient {
  readonly address: BmcAddress;
  readonly signal: AbortSignal;
  readonly notes: string[] = [];
  /** Requests that were sent. */
  requests = 0;
  /** False once the controller refused an expansion that it had advertised. */
  mayExpand = true;
  readonly #options: RedfishClientOptions;
  readonly #transport: Transport;
  readonly #authority: Authority;
  #root: ServiceRoot | undefined;
  #lastWriteMs = Number.NEGATIVE_INFINITY;

  constructor(options: RedfishClientOptions) {
    const { address, credential, guard, pinSha256, limits } = options;
    this.#options = options;
    this.address = address;
    this.signal = options.signal;
    this.#transport = createTransport({ address, pinSha256, ...(limits === undefined ? {} : { limits }) });
    this.#authority = new Authority(
      {
        address,
        guard,
        send: (exchange, signal) => this.#send(exchange, signal),
        refusal: (exchange, answer) => this.refusal(exchange, answer),
        localAddress: () => this.#transport.localAddress,
        note: (text) => this.note(text),
      },
      credential,
    );
  }

  get seenPin(): string | null {
    return this.#transport.seenPin;
  }

  now(): number {
    return this.#options.now();
  }

  sleep(ms: number): Promise<void> {
    return this.#options.sleep(ms, this.signal);
  }

  /** For people, once each. */
  note(text: string): void {
    if (!this.notes.includes(text) && this.notes.length < 32) this.notes.push(text);
  }

  /** The service root, read once and without a login. */
  async root(): Promise<ServiceRoot> {
    if (this.#root !== undefined) return this.#root;
    const exchange: Exchange = { method: 'GET', path: rootPath, headers: {} };
    const answer = await this.#patiently(() => this.#send(exchange, this.signal));
    if (answer.status !== 200) throw this.refusal(exchange, answer);
    const body = parseAnswer(answer, this.#what(exchange));
    const vendor = vendorOf(body);
    const levels = fieldOf(body, 'ProtocolFeaturesSupported', 'ExpandQuery', 'MaxLevels');
    const knowsExpand = fieldOf(body, 'ProtocolFeaturesSupported', 'ExpandQuery', 'NoLinks') === true;
    const expandLevels = knowsExpand ? Math.max(1, typeof levels === 'number' ? Math.min(levels, 6) : 1) : 0;
    this.#authority.sessionsAt(linkAt(body, 'Links', 'Sessions'));
    const quirks = quirksOf(vendor);
    if (!quirks.keepConnections) this.#transport.dropAfterEach();
    this.#root = { body, vendor, quirks, expandLevels };
    return this.#root;
  }

  /** @throws NOT_FOUND (bmc-missing) and what else the controller's refusal means */
  async get(path: string): Promise<Resource> {
    if (this.requests >= requestsMax) {
      throw new ControlError('INVALID_RESPONSE', `${this.address.key} led through ${requestsMax} requests without an end`, {
        details: { reason: 'too-many' },
      });
    }
    const exchange: Exchange = { method: 'GET', path, headers: {} };
    const answer = await this.#patiently(() => this.#authorised(exchange));
    if (answer.status !== 200) throw this.refusal(exchange, answer);
    const body = parseAnswer(answer, this.#what(exchange));
    const tag = answer.headers['etag'] ?? body['@odata.etag'];
    return { path, body, etag: typeof tag === 'string' && tag.length <= 256 ? tag : null };
  }

  /** What a link leads to. @throws INVALID_RESPONSE (foreign-link) for one that leads elsewhere */
  async follow(link: unknown, what: string): Promise<Resource> {
    return this.get(this.path(link, what));
  }

  path(link: unknown, what: string): string {
    const path = ownPath(link, this.address);
    if (path !== null) return path;
    const shown = typeof link === 'string' ? `"${link.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 80)}"` : 'nowhere';
    throw new ControlError(
      'INVALID_RESPONSE',
      `${this.address.key}: the link to ${what} leads ${shown}, out of the controller; it is not followed`,
      {
        details: { reason: 'foreign-link' },
      },
    );
  }

  /** PATCH up the ladder of tags. @param etag of the resource that is changed; null: none is known */
  async patch(path: string, body: Json, etag: string | null): Promise<TaskEnd> {
    let refusal: ControlError | undefined;
    for (const tag of ifMatchLadder(etag)) {
      const exchange = writing('PATCH', path, { body, headers: tag === null ? {} : { 'if-match': tag } });
      const answer = await this.#write(exchange);
      if (answer.status !== 412 && answer.status !== 428) return this.#ended(exchange, answer);
      refusal = this.refusal(exchange, answer);
      this.note(`${path} was not changed under ${tag === null ? 'no tag' : `tag ${tag.slice(0, 40)}`} (${answer.status}): tried otherwise`);
    }
    throw refusal ?? new ControlError('INTERNAL', 'the ladder of tags is empty');
  }

  /** An action, or a member of a collection. Sent once. */
  async post(path: string, body: Json): Promise<TaskEnd> {
    const exchange = writing('POST', path, { body, headers: {} });
    return this.#ended(exchange, await this.#write(exchange));
  }

  /** Requests go out under this password from here on; sessions of the other are closed in the end. */
  use(credential: Credential): void {
    this.#authority.use(credential);
  }

  /** A secret that is about to be sent, and must not come back in a message. */
  hide(secret: string): void {
    this.#authority.hide(secret);
  }

  /** Whether the password in use is right: a session was opened with it, or a request was let in. @throws UNAUTHENTICATED (credential-refused) */
  async proveLogin(): Promise<void> {
    const { body } = await this.root();
    await this.#patiently(async () => {
      await this.#authority.headers(this.signal);
      return letIn;
    }, 'POST');
    if (!this.#authority.isUnproven) return;
    // Any answer but 401 will do: what the account may read is not the question.
    const path = this.path(linkAt(body, 'Systems'), 'its systems');
    await this.#patiently(() => this.#authorised({ method: 'GET', path, headers: {} }));
  }

  /** @returns sessions of other passwords that were closed */
  closeOthers(): Promise<number> {
    return this.#authority.closeOthers(this.signal);
  }

  /** @returns sessions of ours that were closed */
  async close(): Promise<number> {
    try {
      return await this.#authority.close();
    } finally {
      await this.#transport.close();
    }
  }

  refusal(exchange: Exchange, answer: RawAnswer): ControlError {
    const requestId = `${this.#options.requestPrefix}-${this.requests}`;
    return refusalOf({ address: this.address.key, exchange, answer, requestId, secrets: this.#authority.secrets });
  }

  async #ended(exchange: Exchange, answer: RawAnswer): Promise<TaskEnd> {
    if (answer.status >= 400 || answer.status < 200 || (answer.status >= 300 && answer.status < 400)) throw this.refusal(exchange, answer);
    if (answer.status !== 202) return { kind: 'completed', body: {} };
    const end = await awaitTask(answer, {
      address: this.address,
      get: (path) => this.#patiently(() => this.#authorised({ method: 'GET', path, headers: {} })),
      now: () => this.now(),
      sleep: (ms) => this.sleep(ms),
      secrets: this.#authority.secrets,
    });
    if (end.kind === 'unknown') this.note(`${exchange.method} ${exchange.path}: ${end.why}; its effect was looked at instead`);
    if (end.kind !== 'failed') return end;
    if (end.answer !== null) throw this.refusal(exchange, end.answer);
    throw new ControlError('INVALID_STATE', `${this.#what(exchange)}: its task ended as ${end.state}: "${end.message}"`, {
      details: { reason: 'bmc-task-failed', state: end.state },
    });
  }

  async #write(exchange: Exchange): Promise<RawAnswer> {
    const { quirks } = await this.root();
    const waitMs = this.#lastWriteMs + quirks.writeSpacingMs - this.now();
    if (waitMs > 0) await this.sleep(waitMs);
    try {
      return await this.#patiently(() => this.#authorised(exchange), exchange.method);
    } finally {
      this.#lastWriteMs = this.now();
    }
  }

  /** Under our session; once more under a new one when it ran out. */
  async #authorised(exchange: Exchange): Promise<RawAnswer> {
    for (;;) {
      const headers = await this.#authority.headers(this.signal);
      const answer = await this.#send({ ...exchange, headers: { ...exchange.headers, ...headers } }, this.signal);
      if (answer.status !== 401) {
        await this.#authority.accepted();
        return answer;
      }
      await this.#authority.refresh(() => this.refusal(exchange, answer));
    }
  }

  async #send(exchange: Exchange, signal: AbortSignal): Promise<RawAnswer> {
    this.requests += 1;
    const requestId = `${this.#options.requestPrefix}-${this.requests}`;
    return this.#transport.send({ ...exchange, headers: { ...usualHeaders, 'x-request-id': requestId, ...exchange.headers } }, signal);
  }

  /** Repeats what may be repeated, until it is answered or the patience ends. */
  async #patiently(attempt: () => Promise<RawAnswer>, method: Exchange['method'] = 'GET'): Promise<RawAnswer> {
    const sinceMs = this.now();
    for (let waitMs: number = patience.firstMs; ; waitMs = Math.min(2 * waitMs, patience.mostMs)) {
      const outcome = await attempt().catch((error: unknown) => {
        if (!isOutage(error) || (method !== 'GET' && mayHaveArrived(error))) throw error;
        return error;
      });
      const isSilent = isControlError(outcome) || (method === 'GET' && outages.has((outcome as RawAnswer).status));
      const spentMs = this.now() - sinceMs;
      if (!isSilent && spentMs >= second) this.note(`the controller did not answer for ${Math.round(spentMs / second)} s`);
      if (!isSilent) return outcome as RawAnswer;
      if (spentMs + waitMs > patience.wholeMs) {
        if (isControlError(outcome)) throw outcome;
        return outcome as RawAnswer;
      }
      await this.sleep(waitMs);
    }
  }

  #what({ method, path }: Exchange): string {
    return `${this.address.key} ${method} ${path}`;
  }
}

/** 501 is no outage: it will never do that. */
const outages = new Set([500, 502, 503, 504]);

const isOutage = (error: unknown): boolean => isControlError(error) && error.details['reason'] === 'bmc-unreachable';

const letIn: RawAnswer = Object.freeze({ status: 200, headers: {}, text: '' });

const usualHeaders = Object.freeze({
  accept: 'application/json',
  // Compression makes some controllers weaken their tags.
  'accept-encoding': 'identity',
  'odata-version': '4.0',
});

const writing = (
  method: 'POST' | 'PATCH',
  path: string,
  { body, headers }: { body: Json; headers: Readonly<Record<string, string>> },
): Exchange => ({ method, path, headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body) });
