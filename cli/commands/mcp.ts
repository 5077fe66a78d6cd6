/** `better-compute mcp`: serves an agent over standard input and output until it hangs up. */
import { Command } from 'commander';
import { actorOption, withExamples } from '../command.ts';
import type { CliIo } from '../io.ts';
import { createPorts, type Ports } from '../ports.ts';

export interface McpRunOptions {
  readonly agent: string;
  readonly delegation: string;
  readonly actor: string;
}

export function newMcp(ports: Ports, run: (options: McpRunOptions) => Promise<void>): Command {
  const command = new Command('mcp')
    .description(
      'Serve an agent by the Model Context Protocol on standard input and output: it looks, and proposes batches for people to approve',
    )
    .requiredOption('--agent <name>', 'what the agent is called in the records')
    .requiredOption('--delegation <id>', 'what entitles it to act for the person')
    .addOption(actorOption(ports.io))
    .action((flags: McpRunOptions) => run({ agent: flags.agent, delegation: flags.delegation, actor: flags.actor }));
  return withExamples(command, ['better-compute mcp --agent assistant-7 --delegation ticket-4711 --actor olga']);
}

export async function mcpRun(options: McpRunOptions, ports: Ports): Promise<void> {
  const [{ StdioServerTransport }, { createMcpServer }, { version }] = await Promise.all([
    import('@modelcontextprotocol/sdk/server/stdio.js'),
    import('../mcp/server.ts'),
    import('../program.ts'),
  ]);
  const server = createMcpServer(ports, { ...options, version });
  const ended = new Promise<void>((resolve) => {
    // eslint-disable-next-line unicorn/prefer-add-event-listener -- the SDK has a field here, and no events
    server.server.onclose = resolve;
    process.stdin.once('end', resolve);
    ports.io.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  await server.connect(new StdioServerTransport());
  ports.io.err(`serving ${options.agent} for ${options.actor}; it may propose, people approve`);
  await ended;
  await server.close();
}

export function register(program: Command, io: CliIo, ports: Ports = createPorts(io)): void {
  program.addCommand(newMcp(ports, (options) => mcpRun(options, ports)));
}
