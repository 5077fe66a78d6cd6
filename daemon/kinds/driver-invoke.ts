/**
 * driver.invoke: a method of one of this machine's own plugins (KIND-008, docs/plugins.md, docs/adr/0009). Which there are, and which of
 * their methods destroy, is the word of the machine's owner, in files that nobody else can write; the command names the manifest
 * that it means, and another one is refused.
 *
 * Threat model: a control plane in other hands calls methods with inputs of its own making. It calls nothing that the owner has not put
 * there, and nothing that his manifest calls destructive without the approvers' word over the very bytes of the call.
 */
import type { Message } from '@bufbuild/protobuf';
import { ControlError } from '../../domain/errors.ts';
import { second } from '../../domain/time.ts';
import { driver } from '../../proto/index.ts';
import type { AgentLog } from '../agent/log.ts';
import { assertInvocation, judgeInvocation } from '../plugins/judge.ts';
import { endProcessesOf } from '../plugins/leftovers.ts';
import { assertProgram, type OpenedPlugin, openPlugin } from '../plugins/plugin-folder.ts';
import { runPlugin, shown } from '../plugins/run-plugin.ts';
import { type KindContext, type KindEnd, type KindHandler, succeeded } from './handler.ts';

export interface PluginPorts {
  /** Of the plugins. */
  readonly folder: string;
  readonly log: AgentLog;
}

/** null: the machine's owner names no folder of plugins. */
export function driverInvokeHandler(ports: PluginPorts | null): KindHandler {
  if (ports === null) return { isOffered: false, run: () => Promise.reject(noPlugins()) };
  const judged = async (payload: Message) => {
    const asked = payload as driver.DriverInvoke;
    assertInvocation(asked);
    const plugin = await openPlugin(ports.folder, asked.plugin);
    const method = judgeInvocation(plugin, asked);
    await assertProgram(plugin);
    return { asked, plugin, method };
  };
  return {
    prepare: async (payload) => ({ version: (await judged(payload)).plugin.manifest.version }),
    async run(payload, context) {
      const { asked, plugin, method } = await judged(payload);
      const limits = { timeoutMs: method.timeoutSeconds * second, maxOutputBytes: method.maxOutputBytes };
      return invoke({ ports, asked, plugin, limits }, context);
    },
    async recover(payload, { commandId }) {
      const { plugin, method } = payload as driver.DriverInvoke;
      const left = await endProcessesOf(commandId, null);
      const still = left === 0 ? '' : `; ${left} process(es) of it ran on and were ended`;
      return {
        kind: 'interrupted',
        message: `the daemon stopped while ${method} of plugin ${plugin} ran: how far it came is not known, and it is not repeated${still}`,
      };
    },
  };
}

interface Invoking {
  readonly ports: PluginPorts;
  readonly asked: driver.DriverInvoke;
  readonly plugin: OpenedPlugin;
  readonly limits: { readonly timeoutMs: number; readonly maxOutputBytes: number };
}

async function invoke({ ports, asked, plugin, limits }: Invoking, { commandId, signal }: KindContext): Promise<KindEnd> {
  const { method, input } = asked;
  const { executable, folder, manifest } = plugin;
  const { output, said } = await runPlugin({ plugin: manifest.name, method, executable, folder, commandId, input, signal, ...limits });
  if (said !== '') ports.log.info({ commandId, plugin: manifest.name, method, said: shown(said) }, 'the plugin said');
  return succeeded(driver.DriverInvokeResultSchema, { output });
}

const noPlugins = (): ControlError =>
  new ControlError(
    'UNSUPPORTED',
    'this machine hosts no plugins: its owner names no folder of them (pluginsFolder of config.json; for a ramdisk, bcd ramdisk --plugins)',
    { details: { reason: 'no-plugins' } },
  );
