/**
 * The steps of an enrolment on the machine itself (queue bc-hosts). Each may be repeated: what is there stays there. While a step talks to a machine
 * it beats, so that the loss of its worker is noticed in seconds.
 */
import { heartbeat } from '@temporalio/activity';
import { second } from '../domain/time.ts';
import { translated } from './failures.ts';
import type { HostsPort } from './host-ports.ts';

interface OnHost {
  readonly enrolmentId: string;
}

export interface HostActivities {
  reachHost(input: OnHost): Promise<{ readonly system: string; readonly version: string }>;
  installDaemon(input: OnHost): Promise<{ readonly program: 'uploaded' | 'present' }>;
  prepareIdentity(input: OnHost): Promise<{ readonly csrSha256: string; readonly generation: string | null }>;
  mintIdentity(input: OnHost): Promise<{ readonly deadlineMs: number; readonly clockOffMs: number }>;
  startDaemon(input: OnHost): Promise<void>;
  tidyHost(input: OnHost): Promise<{ readonly detail: string }>;
  [name: string]: (...args: never[]) => Promise<unknown>;
}

const beatEveryMs = 5 * second;

async function beating<T>(step: () => Promise<T>): Promise<T> {
  const timer = setInterval(() => heartbeat(), beatEveryMs);
  try {
    return await step();
  } finally {
    clearInterval(timer);
  }
}

export const createHostActivities = ({ hosts }: { readonly hosts: HostsPort }): HostActivities =>
  translated<HostActivities>({
    reachHost: ({ enrolmentId }) => beating(() => hosts.reach(enrolmentId)),
    installDaemon: ({ enrolmentId }) => beating(() => hosts.install(enrolmentId)),
    prepareIdentity: ({ enrolmentId }) => beating(() => hosts.prepare(enrolmentId)),
    mintIdentity: ({ enrolmentId }) => beating(() => hosts.mint(enrolmentId)),
    startDaemon: ({ enrolmentId }) => beating(() => hosts.start(enrolmentId)),
    tidyHost: ({ enrolmentId }) => beating(() => hosts.tidy(enrolmentId)),
  });
