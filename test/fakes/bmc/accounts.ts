/** The account and the sessions of a fake controller: a limit of sessions, a lockout after refused logins, a password that must change. */
import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FakeMachine } from './machine.ts';
import type { FakeBmcOptions } from './types.ts';

interface Session {
  readonly id: string;
  readonly token: string;
  readonly user: string;
  readonly from: string;
  readonly password: string;
}

export class FakeAccounts {
  readonly sessions = new Map<string, Session>();
  opened = 0;
  loginsFailed = 0;
  passwordChanges = 0;
  mustChange: boolean;
  #failedInARow = 0;
  readonly #options: FakeBmcOptions;
  readonly #machine: FakeMachine;
  readonly #now: () => number;

  constructor(options: FakeBmcOptions, machine: FakeMachine, now: () => number) {
    this.#options = options;
    this.#machine = machine;
    this.#now = now;
    this.mustChange = machine.has('password-change-required');
  }

  /** @returns whether the login is right; a wrong one counts */
  login(user: string, password: string): boolean {
    const { state } = this.#machine;
    if (this.#now() < state.lockedUntilMs) return false;
    if (user === this.#options.credential.username && password === state.password) {
      this.#failedInARow = 0;
      return true;
    }
    this.loginsFailed += 1;
    this.#failedInARow += 1;
    const threshold = this.#options.lockoutThreshold ?? 3;
    if (threshold > 0 && this.#failedInARow >= threshold) state.lockedUntilMs = this.#now() + (this.#options.lockoutMs ?? 600_000);
    return false;
  }

  /** null: there is no room. */
  open(user: string, from: string): Session | null {
    if (this.sessions.size >= (this.#options.sessionsMax ?? 8)) return null;
    this.opened += 1;
    const session = { id: String(this.opened), token: randomBytes(12).toString('hex'), user, from, password: this.#machine.state.password };
    this.sessions.set(session.id, session);
    return session;
  }

  close(id: string): boolean {
    return this.sessions.delete(id);
  }

  setPassword(password: string): void {
    this.#machine.state.password = password;
    this.passwordChanges += 1;
    this.mustChange = false;
    if (!this.#machine.has('sessions-survive-password')) this.sessions.clear();
  }

  isKnown(request: IncomingMessage): boolean {
    const token = request.headers['x-auth-token'];
    if (typeof token === 'string') return [...this.sessions.values()].some((session) => session.token === token);
    const basic = /^Basic (.+)$/.exec(request.headers.authorization ?? '')?.[1];
    if (basic === undefined) return false;
    const [user = '', ...rest] = Buffer.from(basic, 'base64').toString('utf8').split(':');
    return this.login(user, rest.join(':'));
  }
}
