/**
 * How requests to one controller are let in: one session for each password, opened when it is first needed and closed in the end,
 * whatever happened in between (M44); controllers that have no session to give are asked with the password itself.
 *
 * Sessions are kept by the password's version: after a change of password nothing goes out under the old one's session (M42). A session
 * that runs out in the middle is opened again once. Every login asks its guard first: an account locks after a few that were refused.
 *
 * An answer that never came may have opened a session. In the end our own are looked for, by our name and our address, and closed.
 */
import { createHash } from 'node:crypto';
import { ControlError } from '../../../domain/errors.ts';
import { second } from '../../../domain/time.ts';
import { type BmcAddress, ownPath } from './address.ts';
import { isRefusal } from './refusals.ts';
import { asObject, listOf, parseLoosely, textOf } from './resource.ts';
import { type Exchange, mayHaveArrived } from './transport.ts';
import type { RawAnswer } from './whole-answer.ts';

export interface Credential {
  readonly username: string;
  readonly password: string;
  /** Another one for every other password. */
  readonly version: string;
}

/** Says whether a login may be tried (bmc/credential-broker.ts). */
export interface LoginGuard {
  beforeLogin(version: string): Promise<void>;
  loggedIn(): Promise<void>;
  refused(version: string): Promise<void>;
  notJudged(version: string): Promise<void>;
}

type Way =
  | { readonly kind: 'session'; readonly token: string; readonly path: string | null }
  /** judged: the controller has taken the password once. */
  | { readonly kind: 'basic'; judged: boolean };

export interface AuthorityPorts {
  readonly address: BmcAddress;
  readonly guard: LoginGuard;
  /** Sends as it is, without retries; throws what the transport throws. */
  readonly send: (exchange: Exchange, signal: AbortSignal) => Promise<RawAnswer>;
  readonly refusal: (exchange: Exchange, answer: RawAnswer) => ControlError;
  readonly localAddress: () => string | null;
  readonly note: (text: string) => void;
}

const defaultSessions = '/redfish/v1/SessionService/Sessions';
const closingMs = 15 * second;

/** Answers to a login that say nothing of the password. */
const noSessions = new Set([404, 405, 501]);

export class Authority {
  readonly #ports: AuthorityPorts;
  readonly #ways = new Map<string, Way>();
  readonly #hidden: string[] = [];
  #credential: Credential;
  #sessionsPath = defaultSessions;
  #lostLogin = false;
  #hasRefreshed = false;

  constructor(ports: AuthorityPorts, credential: Credential) {
    this.#ports = ports;
    this.#credential = credential;
  }

  /** What must never be seen of us in a message. */
  get secrets(): readonly string[] {
    const { username, password } = this.#credential;
    const tokens = [...this.#ways.values()].flatMap((way) => (way.kind === 'session' ? [way.token] : []));
    return [password, basicOf({ username, password }), ...tokens, ...this.#hidden];
  }

  /** Another secret that goes to the controller, and must not come back in a message. */
  hide(secret: string): void {
    this.#hidden.push(secret);
  }

  /** The controller is asked with the password itself, and has not taken it yet: a session proves it, this does not. */
  get isUnproven(): boolean {
    const way = this.#ways.get(this.#credential.version);
    return way?.kind === 'basic' && !way.judged;
  }

  /** From the service root, which needs no login. */
  sessionsAt(link: unknown): void {
    this.#sessionsPath = ownPath(link, this.#ports.address) ?? defaultSessions;
  }

  /** From here on requests go out under this password. */
  use(credential: Credential): void {
    this.#hidden.push(this.#credential.password);
    this.#credential = credential;
  }

  /** @throws UNAUTHENTICATED (credential-refused, credential-stopped), UNAVAILABLE */
  async headers(signal: AbortSignal): Promise<Record<string, string>> {
    const { version } = this.#credential;
    const way = this.#ways.get(version) ?? (await this.#login(signal));
    this.#ways.set(version, way);
    return headersOf(way, this.#credential);
  }

  /** An answer other than 401 came to a request of ours. */
  async accepted(): Promise<void> {
    const way = this.#ways.get(this.#credential.version);
    if (way?.kind !== 'basic' || way.judged) return;
    way.judged = true;
    await this.#ports.guard.loggedIn();
  }

  /** 401 to a request: once a session may have run out, and the request is worth another try. @throws UNAUTHENTICATED (credential-refused) */
  async refresh(refusal: () => ControlError): Promise<void> {
    const { version } = this.#credential;
    const way = this.#ways.get(version);
    this.#ways.delete(version);
    if (way?.kind === 'session' && !this.#hasRefreshed) {
      this.#hasRefreshed = true;
      return;
    }
    await this.#ports.guard.refused(version);
    throw loginRefused(refusal());
  }

  /** Closes what was opened; never throws, and is not kept from it by the command's end. @returns how many sessions */
  async close(): Promise<number> {
    const signal = AbortSignal.timeout(closingMs);
    let closed = 0;
    const sessions = [...this.#ways.values()].filter((way) => way.kind === 'session');
    const last = sessions.at(-1);
    for (const way of sessions) {
      if (way === last) await this.#closeLost(headersOf(way, this.#credential), signal);
      if (await this.#logout(way, signal)) closed += 1;
    }
    if (last === undefined) await this.#closeLost({ authorization: basicOf(this.#credential) }, signal);
    this.#ways.clear();
    return closed;
  }

  /** Closes sessions of other passwords than the one in use, under the one in use. @returns how many */
  async closeOthers(signal: AbortSignal): Promise<number> {
    const own = this.#ways.get(this.#credential.version);
    let closed = 0;
    for (const [version, way] of this.#ways) {
      if (way === own) continue;
      this.#ways.delete(version);
      if (way.kind !== 'session' || way.path === null || own === undefined) continue;
      if (await this.#delete(way.path, { headers: headersOf(own, this.#credential), signal })) closed += 1;
    }
    return closed;
  }

  async #login(signal: AbortSignal): Promise<Way> {
    const { guard } = this.#ports;
    const { username, password, version } = this.#credential;
    await guard.beforeLogin(version);
    const exchange = loginOf(this.#sessionsPath, { username, password });
    const answer = await this.#ports.send(exchange, signal).catch(async (error: unknown) => {
      if (mayHaveArrived(error)) this.#lostLogin = true;
      else await guard.notJudged(version);
      throw error;
    });
    const token = answer.headers['x-auth-token'] ?? '';
    if (answer.status < 300 && token !== '') {
      await guard.loggedIn();
      const at = answer.headers['location'] ?? (parseLoosely(answer) ?? {})['@odata.id'];
      return { kind: 'session', token, path: ownPath(at, this.#ports.address) };
    }
    return this.#withoutSession(exchange, answer);
  }

  /** No session came of it: why, and whether the password itself will do. */
  async #withoutSession(exchange: Exchange, answer: RawAnswer): Promise<Way> {
    const { guard, note } = this.#ports;
    const { version } = this.#credential;
    const refusal = this.#ports.refusal(exchange, answer);
    if (isRefusal(refusal, 'session-limit')) {
      note('the controller has no session left: asked with the password itself');
      return { kind: 'basic', judged: false };
    }
    if (noSessions.has(answer.status)) return { kind: 'basic', judged: false };
    if (answer.status >= 500) this.#lostLogin = true;
    if (answer.status >= 500 || isRefusal(refusal, 'password-change-required')) {
      await guard.notJudged(version);
      if (answer.status < 500) return { kind: 'basic', judged: true };
      throw refusal;
    }
    if (answer.status < 400) throw refusal;
    await guard.refused(version);
    throw isRefusal(refusal, 'locked-out') ? refusal : loginRefused(refusal);
  }

  async #logout(way: Way & { kind: 'session' }, signal: AbortSignal): Promise<boolean> {
    if (way.path === null) return false;
    return this.#delete(way.path, { headers: { 'x-auth-token': way.token }, signal });
  }

  /** Gone is as good as closed. What fails three times runs out by itself. */
  async #delete(path: string, { headers, signal }: { headers: Record<string, string>; signal: AbortSignal }): Promise<boolean> {
    for (let tries = 0; tries < 3; tries += 1) {
      const answer = await this.#ports.send({ method: 'DELETE', path, headers, isKept: true }, signal).catch(() => undefined);
      if (answer !== undefined && (answer.status < 300 || answer.status === 404 || answer.status === 401)) return answer.status < 300;
    }
    this.#ports.note(`session ${path} could not be closed; it ends by the controller's own time limit`);
    return false;
  }

  /** A login whose answer was lost: its session is ours by name and by address, and none of those we know. */
  async #closeLost(headers: Record<string, string>, signal: AbortSignal): Promise<void> {
    if (!this.#lostLogin) return;
    this.#lostLogin = false;
    const known = new Set([...this.#ways.values()].flatMap((way) => (way.kind === 'session' && way.path !== null ? [way.path] : [])));
    const read = async (path: string) => {
      for (let tries = 0; tries < 3; tries += 1) {
        const answer = await this.#ports.send({ method: 'GET', path, headers }, signal).catch(() => undefined);
        if (answer !== undefined && answer.status < 500) return answer.status < 300 ? parseLoosely(answer) : undefined;
      }
      return undefined;
    };
    const members = listOf((await read(this.#sessionsPath)) ?? {}, 'Members').slice(0, 64);
    for (const member of members) {
      const path = ownPath(asObject(member)?.['@odata.id'], this.#ports.address);
      if (path === null || known.has(path)) continue;
      const session = (await read(path)) ?? {};
      const isOurs =
        textOf(session, 'UserName') === this.#credential.username &&
        textOf(session, 'ClientOriginIPAddress') === this.#ports.localAddress();
      if (isOurs) await this.#delete(path, { headers, signal });
    }
  }
}

const loginRefused = (refusal: ControlError): ControlError =>
  new ControlError('UNAUTHENTICATED', `${refusal.message}; no other login is tried with this password`, {
    details: { ...refusal.details, reason: 'credential-refused' },
  });

const basicOf = ({ username, password }: { username: string; password: string }): string =>
  `Basic ${Buffer.from(`${username}:${password}`, 'utf8').toString('base64')}`;

const headersOf = (way: Way, credential: Credential): Record<string, string> =>
  way.kind === 'session' ? { 'x-auth-token': way.token } : { authorization: basicOf(credential) };

const loginOf = (path: string, { username, password }: { username: string; password: string }): Exchange => ({
  method: 'POST',
  path,
  headers: { 'content-type': 'application/json' },
  isKept: true,
  body: JSON.stringify({ UserName: username, Password: password }),
});

/** Tells passwords apart without telling them. @param key of this agent alone: nobody else can try passwords against it */
export const versionOf = ({ username, password }: { username: string; password: string }, key: Uint8Array): string =>
  createHash('sha256')
    .update(key)
    .update(JSON.stringify([username, password]))
    .digest('hex')
    .slice(0, 16);
