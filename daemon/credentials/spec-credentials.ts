/**
 * Credentials that the desired state names for units of this machine (SEC-007, SEC-026, SEC-027), as files in a folder that the owner of the
 * machine names (`credentialsFolder` in config.json), for `LoadCredential=` of systemd:
 *
 *   k8s-join.token      the bootstrap token of section k8sJoin
 *   telemetry.headers   the headers of section telemetry
 *
 * Invariants: the folder and its files are this user's alone, and each file is replaced as a whole, only when its content is another one,
 * so that a unit which watches its path starts no more often than it must. A credential that the spec names no more is deleted; one
 * that cannot be had now leaves the file as it is, is reported, and is asked for again, ever more seldom. What is had is asked for
 * again once an hour: a secret that was set anew under its name arrives without a new spec.
 *
 * Threat model: the spec comes under a signature of the deployment, the secret sealed to this machine, both by a gateway that can
 * hold them back and no more. Whoever may read files of root on this machine reads these. The owner decides whether there are any at all.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { maxSecretBytes } from '../../domain/secrets/reference.ts';
import { hour, minute } from '../../domain/time.ts';
import type { NodeSpec } from '../../proto/index.ts';
import { decodeSpec, type SectionOutcome } from '../agent/desired-state.ts';
import type { AgentLog } from '../agent/log.ts';
import type { SecretPort } from '../secrets/port.ts';
import { openPrivateFolder, readIfPresent, writeDurably } from '../state/files.ts';
import type { SpecStore } from '../state/spec-store.ts';
import { type CredentialFile, credentialFiles } from './sections.ts';

export interface CredentialsOptions {
  readonly folder: string;
  readonly secrets: SecretPort;
  readonly log: AgentLog;
  /** Calls back after a while, unless it is taken back. */
  readonly after?: (ms: number, callback: () => void) => () => void;
}

export const credentialTimes = Object.freeze({ firstRetryMs: minute, refreshMs: hour });

const realAfter = (ms: number, callback: () => void): (() => void) => {
  const timer = setTimeout(callback, ms).unref();
  return () => clearTimeout(timer);
};

export class SpecCredentials {
  readonly #options: CredentialsOptions;
  readonly #outcomes = new Map<string, SectionOutcome>();
  readonly #stopped = new AbortController();
  #wanted: NodeSpec | undefined;
  #onChanged: (() => void) | undefined;
  #round: Promise<void> | undefined;
  #isStale = false;
  #failures = 0;
  #takeBack: () => void = () => undefined;

  constructor(options: CredentialsOptions) {
    this.#options = options;
  }

  /** Section → what became of it; a section that was not asked about yet is in none. */
  get outcomes(): ReadonlyMap<string, SectionOutcome> {
    return this.#outcomes;
  }

  /** From here on secrets can be asked for. @param onChanged another outcome: worth a status report */
  start(onChanged: () => void): void {
    this.#onChanged = onChanged;
    this.#begin();
  }

  /** What the spec says now. Answers at once; the files follow. */
  follow(spec: NodeSpec | undefined): void {
    this.#wanted = spec;
    this.#failures = 0;
    this.#begin();
  }

  /** Nothing more is asked for or written once it resolves. */
  async close(): Promise<void> {
    this.#stopped.abort();
    this.#takeBack();
    await this.#round;
  }

  #begin(): void {
    if (this.#onChanged === undefined || this.#stopped.signal.aborted) return;
    this.#takeBack();
    if (this.#round !== undefined) {
      this.#isStale = true;
      return;
    }
    this.#round = this.#applyAll().finally(() => {
      this.#round = undefined;
      if (this.#isStale) {
        this.#isStale = false;
        return this.#begin();
      }
      if (!this.#stopped.signal.aborted && this.#outcomes.size > 0)
        this.#takeBack = (this.#options.after ?? realAfter)(this.#waitMs(), () => this.#begin());
    });
  }

  /** A minute after the first failure, twice as long after each further one. */
  #waitMs(): number {
    const { firstRetryMs, refreshMs } = credentialTimes;
    return this.#failures === 0 ? refreshMs : Math.min(refreshMs, firstRetryMs * 2 ** Math.min(this.#failures - 1, 10));
  }

  async #applyAll(): Promise<void> {
    const spec = this.#wanted;
    const before = said(this.#outcomes);
    for (const one of credentialFiles) {
      const ref = spec === undefined ? undefined : one.refOf(spec);
      const outcome = await this.#apply(one, ref);
      if (this.#stopped.signal.aborted) return;
      if (ref === undefined) this.#outcomes.delete(one.section);
      else this.#outcomes.set(one.section, outcome);
    }
    this.#failures = [...this.#outcomes.values()].every(({ isApplied }) => isApplied) ? 0 : this.#failures + 1;
    if (said(this.#outcomes) !== before) this.#onChanged?.();
  }

  async #apply({ section, field, file }: CredentialFile, ref: string | undefined): Promise<SectionOutcome> {
    const { folder, secrets, log } = this.#options;
    const path = join(folder, file);
    try {
      if (ref === undefined || ref === '') {
        await rm(path, { force: true });
        return { isApplied: true, detail: ref === '' ? 'it names no secret' : '' };
      }
      await openPrivateFolder(folder);
      const value = await secrets.read(ref, { workflowId: `host:${section}`, stepId: field }, this.#stopped.signal);
      const present = await readIfPresent(path, maxSecretBytes);
      if (present?.equals(value) !== true) {
        await writeDurably(path, value);
        log.info({ section, ref, path }, 'a credential was written');
      }
      return { isApplied: true, detail: '' };
    } catch (error) {
      if (!this.#stopped.signal.aborted) log.warn({ err: error, section, ref }, 'a credential was not applied; it is asked for again');
      return { isApplied: false, detail: error instanceof Error ? error.message : String(error) };
    }
  }
}

const said = (outcomes: ReadonlyMap<string, SectionOutcome>): string => JSON.stringify([...outcomes]);

/** The kept spec, followed: whatever is saved is carried out, and what was kept is from the start on. */
export function withCredentials(store: SpecStore, credentials: SpecCredentials): SpecStore {
  const follow = (): void => credentials.follow(store.current === undefined ? undefined : decodeSpec(store.current.spec));
  follow();
  return {
    get current() {
      return store.current;
    },
    get access() {
      return store.access;
    },
    credentials: credentials.outcomes,
    async save(next) {
      await store.save(next);
      follow();
    },
  };
}
