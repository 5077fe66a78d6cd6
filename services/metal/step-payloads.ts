/**
 * What the command of a profile's own step says: the same bytes in the leaf that approvers sign and in the command that is sent, made of the
 * plan alone. `{machine}` and `{run}` in an address, a header, a body or an input stand for the machine's id and the run's.
 */
import { create, type DescMessage, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema, anyPack } from '@bufbuild/protobuf/wkt';
import { formatSubject } from '../../domain/batch/subjects.ts';
import type { OwnStep, StepKind } from '../../domain/metal/profile-steps.ts';
import { driver, NodeRebootSchema, ServiceRestartSchema, site } from '../../proto/index.ts';
import type { ScopeLeafInput } from './types.ts';

export interface StepTarget {
  readonly machineId: string;
  readonly runId: string;
}

type Maker = (step: OwnStep, target: StepTarget) => Any | undefined;

const packed = <D extends DescMessage>(schema: D, init: MessageInitShape<D>): Any => anyPack(schema, create(schema, init));

const filled = (text: string, { machineId, runId }: StepTarget): string =>
  text.replaceAll('{machine}', machineId).replaceAll('{run}', runId);
const bytesOf = (text: string, target: StepTarget): Uint8Array => new TextEncoder().encode(filled(text, target));

const makers: Readonly<Record<StepKind, Maker>> = Object.freeze({
  'driver.invoke': ({ do: { 'driver.invoke': call }, on }, target) =>
    call &&
    packed(driver.DriverInvokeSchema, {
      ...call,
      input: bytesOf(call.input, target),
      // A ramdisk runs what names its run; a system is no run's.
      runId: on === 'ramdisk' ? target.runId : '',
    }),
  'site.httpProxy': ({ do: { 'site.httpProxy': request } }, target) =>
    request &&
    packed(site.SiteHttpProxySchema, {
      nodeId: target.machineId,
      method: request.method,
      url: filled(request.url, target),
      headers: request.headers.map(({ name, value = '', valueRef = '' }) => ({ name, value: filled(value, target), valueRef })),
      body: bytesOf(request.body, target),
      pinSha256: request.pinSha256,
    }),
  'service.restart': ({ do: { 'service.restart': restart } }) => restart && packed(ServiceRestartSchema, restart),
  'node.reboot': ({ do: { 'node.reboot': reboot } }, target) =>
    reboot && packed(NodeRebootSchema, { reason: filled(reboot.reason, target) }),
});

export function stepPayload(step: OwnStep, target: StepTarget): Any {
  const payload = makers[step.kind](step, target);
  if (payload === undefined) throw new TypeError(`step ${step.name} does not say what ${step.kind} does`);
  return payload;
}

/** As services/command-queue takes it. */
export const encodeStepPayload = (step: OwnStep, target: StepTarget): Uint8Array => toBinary(AnySchema, stepPayload(step, target));

/** One leaf for each step that destroys and says what it sends (BAT-036); what it has not said has none (BAT-037). */
export function stepLeaves(target: StepTarget, steps: readonly OwnStep[]): ScopeLeafInput[] {
  return steps.flatMap((step) => {
    if (step.harmless || !step.declared) return [];
    const { typeUrl, value } = stepPayload(step, target);
    const form = step.on === 'site' ? 'target' : 'node';
    return [{ subject: formatSubject({ form, nodeId: target.machineId }), kind: step.kind, payload: { typeUrl, value } }];
  });
}
