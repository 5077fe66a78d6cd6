/** What the steps on a machine over SSH need: each is told an enrolment's id, and reads everything else where an operator wrote it. */
import type { EnrolmentState } from '../domain/enrolment/states.ts';
import type { Enrolment, EnrolmentProgress } from '../services/enrolments/index.ts';

export interface HostsPort {
  /** Looks, and changes nothing. @throws INVALID_STATE (machine-unfit) with every reason */
  reach(enrolmentId: string): Promise<{ readonly system: string; readonly version: string }>;
  /** Program, pins and unit of a machine that is new; the pins of one that serves, beside its own. */
  install(enrolmentId: string): Promise<{ readonly program: 'uploaded' | 'present' }>;
  /** The key is made there, beside the identity that serves. */
  prepare(enrolmentId: string): Promise<{ readonly csrSha256: string; readonly generation: string | null }>;
  /** The machine says that it hears this control plane; then, and only then, its key is minted. */
  mint(enrolmentId: string): Promise<{ readonly deadlineMs: number; readonly clockOffMs: number }>;
  /** The daemon is stopped and started: it completes at its start. */
  start(enrolmentId: string): Promise<void>;
  /** Behind the end of one that did not complete. */
  tidy(enrolmentId: string): Promise<{ readonly detail: string }>;
}

export interface EnrolmentsPort {
  get(id: string): Promise<Enrolment>;
  progress(id: string): Promise<EnrolmentProgress & { readonly now: number }>;
  end(input: { readonly id: string; readonly as: 'fail' | 'cancel'; readonly reason: string }): Promise<EnrolmentState>;
}
