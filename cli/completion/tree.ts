/** The command tree as completion sees it: names, flags, and the words an argument or a flag may be. */
import type { Command } from 'commander';

export interface CompletionNode {
  readonly name: string;
  readonly description: string;
  readonly commands: readonly CompletionNode[];
  readonly flags: readonly CompletionFlag[];
  /** Words of the first argument, where they are known. */
  readonly words: readonly string[];
}

export interface CompletionFlag {
  readonly long: string;
  readonly description: string;
  readonly takesValue: boolean;
  readonly words: readonly string[];
}

export function completionTree(command: Command): CompletionNode {
  return node(command, []);
}

function node(command: Command, inherited: readonly CompletionFlag[]): CompletionNode {
  const own = command.options.flatMap(({ long, hidden, description, required, optional, argChoices }): CompletionFlag[] =>
    long === undefined || long === null || hidden ? [] : [{ long, description, takesValue: required || optional, words: argChoices ?? [] }],
  );
  const help: CompletionFlag = { long: '--help', description: 'display help', takesValue: false, words: [] };
  const shared = [...inherited, ...own.filter(({ long }) => long === '--json')];
  const flags = [...new Map([...own, ...inherited, help].map((flag) => [flag.long, flag])).values()];
  return {
    name: command.name(),
    description: firstLine(command.description()),
    commands: command.commands.filter((child) => child.name() !== 'help').map((child) => node(child, shared)),
    flags,
    words: command.registeredArguments[0]?.argChoices ?? [],
  };
}

const firstLine = (text: string): string => text.split('\n', 1)[0] ?? '';

/** Every node with the words that lead to it, the program itself first (no words). */
export function walkTree(tree: CompletionNode, path: readonly string[] = []): { path: readonly string[]; node: CompletionNode }[] {
  return [{ path, node: tree }, ...tree.commands.flatMap((child) => walkTree(child, [...path, child.name]))];
}
