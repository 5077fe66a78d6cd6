/** `better-compute completion <shell>`: a script made from the command tree, so it never knows less than the program. */
import { Argument, Command } from 'commander';
import { withExamples } from '../command.ts';
import { bashScript, fishScript, zshScript } from '../completion/scripts.ts';
import { type CompletionNode, completionTree } from '../completion/tree.ts';
import type { CliIo } from '../io.ts';

const scripts = Object.freeze({ bash: bashScript, zsh: zshScript, fish: fishScript }) satisfies Record<
  string,
  (tree: CompletionNode) => string
>;
export type Shell = keyof typeof scripts;

export function newCompletion(run: (shell: Shell) => void): Command {
  const command = new Command('completion')
    .description('Print the completion script of a shell')
    .addArgument(new Argument('<shell>', 'bash, zsh or fish').choices(Object.keys(scripts)))
    .action((shell: Shell) => run(shell));
  return withExamples(command, [
    'source <(better-compute completion bash)',
    'better-compute completion zsh > "${fpath[1]}/_better-compute"',
    'better-compute completion fish > ~/.config/fish/completions/better-compute.fish',
  ]);
}

export function register(program: Command, io: CliIo): void {
  program.addCommand(newCompletion((shell) => io.out(scripts[shell](completionTree(program)))));
}
