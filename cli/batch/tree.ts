/** A scope as a tree in the terminal: kind, operation, machines with the places of their leaves. */
import { createScope } from '../../pki/quorum/index.ts';
import type { BatchDocument } from './document.ts';
import { fieldsText, type Operation, operationsOf } from './operations.ts';
import { shown } from './printable.ts';

interface Branch {
  readonly text: string;
  readonly branches: readonly Branch[];
}

export function treeText({ batch, leaves }: BatchDocument): string {
  const scope = createScope(
    batch.id,
    leaves.map(({ subject, kind, payloadSha256 }) => ({ subject, kind, payloadSha256: Buffer.from(payloadSha256, 'hex') })),
  );
  const places = new Map(
    scope.leaves.map(({ subject, kind, payloadSha256, hash }, place) => [
      `${kind} ${Buffer.from(payloadSha256).toString('hex')} ${subject}`,
      { place, hash },
    ]),
  );
  const operations = operationsOf(leaves);
  const kinds = [...new Set(operations.map(({ kind }) => kind))].map((kind): Branch => {
    const own = operations.filter((operation) => operation.kind === kind);
    const count = own.reduce((sum, { subjects }) => sum + subjects.length, 0);
    return { text: `${shown(kind)}  ${count}`, branches: own.map((operation) => operationBranch(operation, places)) };
  });
  return [`${scope.root.toString('hex')}  root of ${scope.size}`, ...linesOf(kinds, '')].join('\n');
}

function operationBranch(operation: Operation, places: ReadonlyMap<string, { readonly place: number; readonly hash: Buffer }>): Branch {
  const { kind, payloadSha256, subjects } = operation;
  return {
    text: textOf(operation),
    branches: subjects.map((subject) => {
      const leaf = places.get(`${kind} ${payloadSha256} ${subject}`);
      return { text: `${shown(subject, 120)}  #${leaf?.place ?? '?'} ${leaf?.hash.toString('hex', 0, 6) ?? ''}`, branches: [] };
    }),
  };
}

function textOf({ form, payloadSha256, fields, why }: Operation): string {
  switch (form) {
    case 'decoded':
      return `${payloadSha256.slice(0, 12)}  ${fieldsText(fields)}`;
    case 'opaque':
      return `${payloadSha256.slice(0, 12)}  opaque: ${why}`;
    case 'any-payload':
      return 'any payload';
  }
}

function linesOf(branches: readonly Branch[], indent: string): readonly string[] {
  return branches.flatMap(({ text, branches: inner }, index) => {
    const isLast = index === branches.length - 1;
    return [`${indent}${isLast ? '└─ ' : '├─ '}${text}`, ...linesOf(inner, `${indent}${isLast ? '   ' : '│  '}`)];
  });
}
