/**
 * The payload converter of the workflow sandbox: a payload that cannot be read becomes an `Undecodable` value, never an
 * exception. A thrown conversion fails the workflow task, and the task is retried for ever: one garbage signal from the CLI would
 * wedge a rotation. With this, every handler sees a value that its shape check refuses, and the workflow goes on.
 */
import { defaultPayloadConverter, type Payload, type PayloadConverter } from '@temporalio/common';
import { Undecodable } from './shared/undecodable.ts';

export const payloadConverter: PayloadConverter = {
  toPayload: (value) => defaultPayloadConverter.toPayload(value),
  // The interface promises the caller's type; what it really is, is the handler's to check.
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters
  fromPayload: <T>(payload: Payload): T => {
    try {
      return defaultPayloadConverter.fromPayload<T>(payload);
    } catch (error) {
      return new Undecodable(error instanceof Error ? error.message : 'not readable') as T;
    }
  },
};
