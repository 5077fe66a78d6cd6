/**
 * The runtime `fakehw` (WID-028): instances that a file declares, in place of a hypervisor, so that the metadata service can be seen
 * end to end on a machine that runs none. It is no hardware, and bcd says so when it starts.
 *
 *   { "instances": [ { "instanceId": "i-1", "address": "127.0.0.11", "reservationId": "r-1", "state": "running" } ] }
 *
 * Read at every look, as a runtime would be asked: an instance that the file stops or leaves out is served no more.
 */
import { z } from 'zod';
import { ControlError } from '../../domain/errors.ts';
import { isWorkloadId } from '../../pki/workload/index.ts';
import { readIfPresent } from '../state/files.ts';
import { canonicalAddress } from './address.ts';
import type { InstanceRuntime, RunningInstance } from './runtime.ts';

const maxBytes = 256 * 1024;

const instance = z.strictObject({
  instanceId: z.string().refine(isWorkloadId, 'is no instance id'),
  address: z.string().transform((text, context) => {
    const address = canonicalAddress(text);
    if (address !== null) return address;
    context.addIssue({ code: 'custom', message: 'must be an IP address' });
    return z.NEVER;
  }),
  /** Of the reservation that it is said to hold (SIGN-014). */
  reservationId: z
    .string()
    .regex(/^[\x21-\x7e]{1,128}$/, 'must be 1 to 128 printable characters')
    .exactOptional(),
  state: z.enum(['running', 'stopped']).default('running'),
});

type FakeInstance = z.infer<typeof instance>;

const schema = z.strictObject({ instances: z.array(instance).max(1_024) }).superRefine(({ instances }, context) => {
  const running = instances.filter(({ state }) => state === 'running');
  for (const field of ['instanceId', 'address'] as const) {
    const values = running.map((one) => one[field]);
    const twice = values.find((value, at) => values.indexOf(value) !== at);
    if (twice !== undefined) context.addIssue({ code: 'custom', message: `two running instances have ${field} ${twice}` });
  }
});

/** @throws NOT_FOUND without the file; INVALID_CONFIG with every problem of it */
export async function openFakeHardware(path: string): Promise<InstanceRuntime> {
  await readInstances(path);
  return {
    async findByAddress(address) {
      const found = (await readInstances(path)).find((one) => one.state === 'running' && one.address === address);
      return found === undefined ? null : shown(found);
    },
    async listRunning() {
      return (await readInstances(path)).filter(({ state }) => state === 'running').map(shown);
    },
  };
}

const shown = ({ instanceId, reservationId }: FakeInstance): RunningInstance => ({ instanceId, reservationId: reservationId ?? null });

async function readInstances(path: string): Promise<readonly FakeInstance[]> {
  const content = await readIfPresent(path, maxBytes);
  if (content === undefined)
    throw new ControlError('NOT_FOUND', `there is no file of instances ${path}`, { details: { reason: 'no-instances-file' } });
  const parsed = schema.safeParse(parseJson(path, content.toString('utf8')));
  if (parsed.success) return parsed.data.instances;
  const problems = parsed.error.issues.map((issue) => `${issue.path.map(String).join('.') || 'the content'}: ${issue.message}`);
  throw new ControlError('INVALID_CONFIG', `${path}: ${problems.join('; ')}`, { details: { reason: 'instances-file', problems } });
}

function parseJson(path: string, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new ControlError('INVALID_CONFIG', `${path} is not JSON`, { cause, details: { reason: 'instances-file' } });
  }
}
