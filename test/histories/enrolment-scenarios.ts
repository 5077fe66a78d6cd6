/** The kept enrolments over SSH: to their end, out of a step that refuses, and cancelled while the machine is waited for. */
import type { Client, WorkflowHandle } from '@temporalio/client';
import { EnrolmentWorld, startEnrolment, unfit, untilEnrolment } from '../workflows/enrolment-world.ts';

export interface EnrolmentStage {
  readonly client: Client;
  readonly enrolment: EnrolmentWorld;
}

export const enrolmentScenarios: Readonly<Record<string, (stage: EnrolmentStage) => Promise<WorkflowHandle>>> = Object.freeze({
  'enrolment-first': ({ client }) => startEnrolment(client, 'enrol'),
  'enrolment-again': ({ client }) => startEnrolment(client, 'reenrol'),
  'enrolment-refused-by-the-machine': ({ client, enrolment }) => {
    enrolment.before = (step) => {
      if (step === 'prepare') throw unfit('the machine is node "db-1" already');
    };
    return startEnrolment(client, 'enrol');
  },
  'enrolment-cancelled': async ({ client, enrolment }) => {
    enrolment.completes = false;
    const handle = await startEnrolment(client, 'reenrol');
    await untilEnrolment(handle, ({ phase }) => phase === 'completing');
    await handle.cancel();
    return handle;
  },
});

/** Of the kind that the story is about. */
export const enrolmentWorldOf = (name: string): EnrolmentWorld =>
  new EnrolmentWorld(name === 'enrolment-first' || name === 'enrolment-refused-by-the-machine' ? 'enrol' : 'reenrol');
