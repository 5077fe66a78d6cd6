/** docs/cli.md, made from the command tree: the help of every command, as the program itself prints it. */
import type { Command } from 'commander';
import type { CliIo } from './io.ts';
import { createProgram } from './program.ts';

const width = 100;

/** The whole page. The same tree gives the same bytes, whoever runs it and where. */
export async function cliPage(): Promise<string> {
  const program = await createProgram(quietIo);
  const sections = commandsOf(program).map(({ path, command }) => section(path, command));
  return `# The command line

Data goes to standard output, everything else to standard error; \`--json\` after any command makes the data JSON. An error is two
lines, \`error: …\` and \`hint: …\`, and with \`--json\` also an object \`{"error": {code, message, hint, exitCode, details}}\` on
standard output. Exit codes are those of [errors.md](errors.md); \`doctor\` exits 1 when it finds an error.

Where the deployment is comes from the environment (\`BETTER_COMPUTE_API_URL\`, \`BETTER_COMPUTE_OPERATOR_TOKEN\`, \`TEMPORAL_ADDRESS\`
or a Temporal profile, \`BETTER_COMPUTE_DATABASE_URL\`), else from the state folder of a stack that runs on this host. Who acts is
\`--actor\`, else \`BETTER_COMPUTE_ACTOR\`, else the operating-system user.

This page is generated from the program by \`npx tsx scripts/cli-docs.ts\`.

${sections.join('\n')}`;
}

/** A group is described by its verbs; only what runs has a section, under its whole name. */
function commandsOf(command: Command, path: readonly string[] = []): { path: string; command: Command }[] {
  const here = [...path, command.name()];
  const children = command.commands.filter((child) => child.name() !== 'help');
  if (children.length === 0) return [{ path: here.join(' '), command }];
  return children.flatMap((child) => commandsOf(child, here));
}

function section(path: string, command: Command): string {
  return `## ${path}\n\n\`\`\`text\n${helpOf(command)}\n\`\`\`\n`;
}

/** The help of one command with what it appends (examples), at a fixed width. */
export function helpOf(command: Command): string {
  let text = '';
  const write = (part: string): void => {
    text += part;
  };
  command.configureOutput({
    writeOut: write,
    writeErr: write,
    getOutHelpWidth: () => width,
    getErrHelpWidth: () => width,
    getOutHasColors: () => false,
  });
  command.outputHelp();
  return text.trimEnd();
}

const quietIo: CliIo = {
  out: () => undefined,
  err: () => undefined,
  env: {},
  now: () => 0,
  isTerminal: false,
  signal: new AbortController().signal,
  user: () => 'you',
  readInput: async () => null,
  confirm: async () => false,
  sleep: async () => undefined,
};
