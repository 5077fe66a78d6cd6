/**
 * Writes the reference pages that follow from code: docs/errors.md from the error table, the refusals and the bounds, docs/protocol.md from
 * the .proto files with each declaration's own comment (TRN-005). `--check` writes nothing and fails when a page is old.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createFileRegistry, type DescEnum, type DescMessage, type DescService, fromBinary } from '@bufbuild/protobuf';
import { type FileDescriptorProto, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { errorTable } from '../domain/errors.ts';
import { type RefusalRow, refusalTable } from '../gateway/grpc/refusals.ts';
import { bounds } from '../proto/bounds.ts';
import { purposes } from '../proto/signing-input.ts';

const root = new URL('..', import.meta.url);

function errorsPage(): string {
  const rows = Object.entries(errorTable).map(
    ([code, row]) => `| ${code} | ${row.exit} | ${row.grpc} | ${row.http} | ${row.retryable ? 'yes' : 'no'} | ${row.hint} |`,
  );
  const sizes = Object.entries(bounds).map(([name, value]) => `| ${name} | ${value} |`);
  const refusals = Object.entries<RefusalRow>(refusalTable).map(
    ([reason, { code, message, pushbackMs }]) => `| ${reason} | ${code} | ${message} | ${pushbackMs ?? ''} |`,
  );
  const signed = Object.entries(purposes).map(([name, parts]) => `| ${name} | ${parts.join(', ')} |`);
  return [
    '# Errors and bounds',
    '',
    'Generated from `domain/errors.ts`, `gateway/grpc/refusals.ts`, `proto/bounds.ts` and `proto/signing-input.ts`: `npm run docs`.',
    '',
    '## Codes',
    '',
    'Every error has one of these codes. `details.reason` says more, in kebab-case.',
    '',
    '| code | exit | gRPC | HTTP | retry | what to do |',
    '|---|---|---|---|---|---|',
    ...rows,
    '',
    '## Refusals that end a stream',
    '',
    'What a gateway says in `x-bc-reason`; `grpc-status` is that of the code. With a wait, `grpc-retry-pushback-ms` asks for that long and',
    'up to as much again. What the control plane refuses keeps its own reason.',
    '',
    '| reason | code | message | least wait, ms |',
    '|---|---|---|---|',
    ...refusals,
    '',
    '## Bounds, in bytes',
    '',
    '| what | at most |',
    '|---|---|',
    ...sizes,
    '',
    '## Signing purposes',
    '',
    '| purpose | parts |',
    '|---|---|',
    ...signed,
    '',
  ].join('\n');
}

/**
 * Comments by declaration path, as descriptor.proto numbers them.
 *
 * @throws for a declaration without one: the reference has nothing to say about it (TRN-005)
 */
function commentsOf(file: FileDescriptorProto): (path: number[]) => string {
  const byPath = new Map<string, string>();
  for (const location of file.sourceCodeInfo?.location ?? []) {
    byPath.set(
      location.path.join('.'),
      (location.leadingComments || location.trailingComments)
        .trim()
        .replaceAll(/\s*\n\s*/g, ' ')
        .replaceAll('|', '\\|'),
    );
  }
  return (path) => {
    const comment = byPath.get(path.join('.')) ?? '';
    if (comment === '') throw new Error(`${file.name}: a declaration has no comment (path ${path.join('.')} in its descriptor)`);
    return comment;
  };
}

const messageField = 4;
const enumField = 5;
const serviceField = 6;

function typeOf(field: DescMessage['fields'][number]): string {
  if (field.fieldKind === 'list')
    return `repeated ${field.listKind === 'message' ? field.message.name : field.listKind === 'enum' ? field.enum.name : scalar(field.scalar)}`;
  if (field.fieldKind === 'message') return field.message.name;
  if (field.fieldKind === 'enum') return field.enum.name;
  return field.fieldKind === 'scalar' ? scalar(field.scalar) : 'map';
}

const scalarNames: Readonly<Record<number, string>> = { 4: 'uint64', 8: 'bool', 9: 'string', 12: 'bytes', 13: 'uint32' };
const scalar = (type: number): string => scalarNames[type] ?? `scalar ${type}`;

function messageSection(message: DescMessage, path: number[], comment: (path: number[]) => string): string[] {
  const fields = message.fields.map(
    (field, i) => `| ${field.number} | ${field.name} | ${typeOf(field)} | ${field.oneof?.name ?? ''} | ${comment([...path, 2, i])} |`,
  );
  const head = ['', `### ${message.name}`, '', comment(path)];
  return fields.length === 0
    ? [...head, '', 'No fields.']
    : [...head, '', '| # | field | type | one of | |', '|---|---|---|---|---|', ...fields];
}

function enumSection(type: DescEnum, path: number[], comment: (path: number[]) => string): string[] {
  const values = type.values.map((value, i) => `| ${value.number} | ${value.name} | ${comment([...path, 2, i])} |`);
  return ['', `### ${type.name}`, '', comment(path), '', '| # | value | |', '|---|---|---|', ...values];
}

function serviceSection(service: DescService, path: number[], comment: (path: number[]) => string): string[] {
  const rpcs = service.methods.map((method, i) => {
    const stream = method.methodKind === 'bidi_streaming' ? 'stream ' : '';
    return `| ${method.name} | ${stream}${method.input.name} | ${stream}${method.output.name} | ${comment([...path, 2, i])} |`;
  });
  return ['', `### service ${service.name}`, '', comment(path), '', '| rpc | takes | returns | |', '|---|---|---|---|', ...rpcs];
}

function protocolPage(): string {
  const buf = new URL('node_modules/.bin/buf', root).pathname;
  const image = execFileSync(buf, ['build', '--as-file-descriptor-set', '-o', '-'], { cwd: root.pathname, maxBuffer: 1 << 26 });
  const set = fromBinary(FileDescriptorSetSchema, image);
  const registry = createFileRegistry(set);
  const lines = ['# The agent protocol', '', 'Generated from `proto/`: `npm run docs`. Numbers are frozen; changes are additive only.'];
  for (const proto of set.file) {
    const file = registry.getFile(proto.name);
    if (file === undefined || !proto.package.startsWith('bettercompute.')) continue;
    const comment = commentsOf(proto);
    lines.push('', `## ${proto.name}`);
    file.services.forEach((service, i) => lines.push(...serviceSection(service, [serviceField, i], comment)));
    file.messages.forEach((message, i) => lines.push(...messageSection(message, [messageField, i], comment)));
    file.enums.forEach((type, i) => lines.push(...enumSection(type, [enumField, i], comment)));
  }
  return `${lines.join('\n')}\n`;
}

const pages: Readonly<Record<string, () => string>> = { 'docs/errors.md': errorsPage, 'docs/protocol.md': protocolPage };
const old: string[] = [];
for (const [path, render] of Object.entries(pages)) {
  const url = new URL(path, root);
  const text = render();
  if (process.argv.includes('--check')) {
    let have = '';
    try {
      have = readFileSync(url, 'utf8');
    } catch {
      // A page that is missing is old.
    }
    if (have !== text) old.push(path);
  } else {
    writeFileSync(url, text);
  }
}
if (old.length > 0) {
  process.stderr.write(`error: ${old.join(', ')} do(es) not follow from the code\nhint: npm run docs\n`);
  process.exit(1);
}
