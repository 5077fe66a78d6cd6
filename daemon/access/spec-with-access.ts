/**
 * The kept desired state together with what it does to the machine: whatever is saved is applied, and what was kept is applied
 * again at each start. A section that cannot be applied is reported and tried again; it never keeps the spec from being taken.
 */
import type { AccessSpec } from '../../proto/index.ts';
import { decodeSpec, type SectionOutcome } from '../agent/desired-state.ts';
import type { AgentLog } from '../agent/log.ts';
import type { KeptSpec, SpecStore } from '../state/spec-store.ts';
import type { AccessFiles } from './ssh-access.ts';

export interface SpecWithAccess extends SpecStore {
  /** No further attempt. */
  close(): void;
}

export interface WithAccessOptions {
  readonly files: AccessFiles;
  readonly log: AgentLog;
  /** Whether exec tickets are for something here. */
  readonly takesTickets?: boolean;
  readonly retryAfterMs?: number;
}

const defaultRetryMs = 60_000;

/** Applies what is kept before it answers. */
export async function withAccess(
  store: SpecStore,
  { files, log, takesTickets = false, retryAfterMs = defaultRetryMs }: WithAccessOptions,
): Promise<SpecWithAccess> {
  let access: SectionOutcome | undefined;
  let retry: NodeJS.Timeout | undefined;
  let isClosed = false;

  const attempt = async (section: AccessSpec): Promise<void> => {
    clearTimeout(retry);
    try {
      await files.apply(section);
      access = {
        isApplied: true,
        detail: takesTickets || section.jwks.length === 0 ? '' : 'logins are; this daemon takes no exec tickets',
      };
    } catch (error) {
      const detail = error instanceof Error ? error.message : String(error);
      log.warn({ err: error }, 'the access section was not applied; it is tried again');
      access = { isApplied: false, detail };
      if (!isClosed) retry = setTimeout(() => void apply(store.current), retryAfterMs).unref();
    }
  };
  const apply = async (kept: KeptSpec | undefined): Promise<void> => {
    const section = kept === undefined ? undefined : decodeSpec(kept.spec).access;
    // A spec without the section says nothing about logins: the files stay.
    if (section === undefined) access = undefined;
    else await attempt(section);
  };

  await apply(store.current);
  return {
    get current() {
      return store.current;
    },
    get access() {
      return access;
    },
    async save(next) {
      await store.save(next);
      await apply(next);
    },
    close() {
      isClosed = true;
      clearTimeout(retry);
    },
  };
}
