/** The three shells. Each script is a table of the tree and the few lines that look things up in it. */
import { shellQuoted as quote } from '../../runtime/shell.ts';
import { type CompletionNode, walkTree } from './tree.ts';

const wordsOf = (node: CompletionNode): string[] => [...node.commands.map(({ name }) => name), ...node.words];

/** Words and flags by path; flags with known values by path and flag. */
export function bashScript(tree: CompletionNode): string {
  const rows = walkTree(tree).map(
    ({ path, node }) =>
      `    ${quote(path.join(' '))}) words=${quote([...wordsOf(node), ...node.flags.map(({ long }) => long)].join(' '))} ;;`,
  );
  const values = flagValues(tree).map(
    ({ path, long, words }) => `    ${quote(`${path} ${long}`)}) COMPREPLY=($(compgen -W ${quote(words.join(' '))} -- "$cur")); return ;;`,
  );
  const taking = [...new Set(walkTree(tree).flatMap(({ node }) => node.flags.filter((flag) => flag.takesValue).map(({ long }) => long)))];
  return `# bash completion of better-compute; generated
_better_compute() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}" path='' words='' i word
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    case "\${COMP_WORDS[i-1]}" in ${taking.join('|')}) continue ;; esac
    [[ "$word" == -* ]] && continue
    case "\${path:+$path }$word" in
${walkTree(tree)
  .filter(({ path }) => path.length > 0)
  .map(({ path }) => `      ${quote(path.join(' '))}) path=${quote(path.join(' '))} ;;`)
  .join('\n')}
    esac
  done
  case "$path $prev" in
${values.join('\n')}
  esac
  case "$prev" in ${taking.join('|')}) COMPREPLY=($(compgen -f -- "$cur")); return ;; esac
  case "$path" in
${rows.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _better_compute better-compute
`;
}

const flagValues = (tree: CompletionNode): { path: string; long: string; words: readonly string[] }[] =>
  walkTree(tree).flatMap(({ path, node }) =>
    node.flags.filter(({ words }) => words.length > 0).map(({ long, words }) => ({ path: path.join(' '), long, words })),
  );

/** zsh's own idiom: one function a command, `_arguments` for its flags, `_describe` for what comes next. */
export function zshScript(tree: CompletionNode): string {
  return `#compdef better-compute
# zsh completion of better-compute; generated
${walkTree(tree)
  .map(({ path, node }) => zshFunction(path, node))
  .join('\n')}
if [[ "$funcstack[1]" == "_better-compute" ]]; then _better-compute "$@"; else compdef _better-compute better-compute; fi
`;
}

const zshName = (path: readonly string[]): string => ['_better-compute', ...path].join('__');
const zshText = (text: string): string => text.replace(/[[\]:\\]/g, (char) => `\\${char}`);

function zshFunction(path: readonly string[], node: CompletionNode): string {
  const flags = node.flags.map(({ long, description, takesValue, words }) => {
    const value = takesValue ? `:value:${words.length > 0 ? `(${words.join(' ')})` : '_files'}` : '';
    return quote(`${long}[${zshText(description)}]${value}`);
  });
  const words = wordsOf(node);
  const rest =
    node.commands.length > 0
      ? [quote('1:command:->command'), quote('*::arg:->next')]
      : words.length > 0
        ? [quote(`1:word:(${words.join(' ')})`)]
        : [];
  const described = node.commands.map(({ name, description }) => quote(`${name}:${zshText(description)}`)).join(' ');
  const dispatch = node.commands.map(({ name }) => `      ${name}) ${zshName([...path, name])} ;;`).join('\n');
  const states =
    node.commands.length === 0
      ? ''
      : `
  case "$state" in
    command) local -a commands=(${described}); _describe command commands ;;
    next) case "$line[1]" in
${dispatch}
    esac ;;
  esac`;
  return `${zshName(path)}() {
  local context state line
  typeset -A opt_args
  _arguments -C ${[...flags, ...rest].join(' \\\n    ')}${states}
}`;
}

export function fishScript(tree: CompletionNode): string {
  const lines = walkTree(tree).flatMap(({ path, node }) => {
    const when = path.length === 0 ? '' : ` -n ${quote(path.map((word) => `__fish_seen_subcommand_from ${word}`).join('; and '))}`;
    const below =
      node.commands.length === 0 ? '' : `; and not __fish_seen_subcommand_from ${node.commands.map(({ name }) => name).join(' ')}`;
    const here =
      path.length === 0
        ? ' -n __fish_use_subcommand'
        : ` -n ${quote(path.map((word) => `__fish_seen_subcommand_from ${word}`).join('; and ') + below)}`;
    return [
      ...node.commands.map(({ name, description }) => `complete -c better-compute -f${here} -a ${name} -d ${quote(description)}`),
      ...node.words.map((word) => `complete -c better-compute -f${here} -a ${quote(word)}`),
      ...node.flags.map(({ long, description, takesValue, words }) => {
        const value = takesValue ? (words.length > 0 ? ` -x -a ${quote(words.join(' '))}` : ' -r') : '';
        return `complete -c better-compute${when} -l ${long.slice(2)}${value} -d ${quote(description)}`;
      }),
    ];
  });
  return `# fish completion of better-compute; generated\n${lines.join('\n')}\n`;
}
