/**
 * The search attributes of the namespace, registered before the first workflow task: an unregistered one fails every task of a
 * workflow for ever, so a worker that cannot have them does not start.
 */
import type { Connection } from '@temporalio/client';
import proto from '@temporalio/proto';
import { ControlError } from '../domain/errors.ts';
import { searchAttributes } from '../temporal.config.ts';

const { IndexedValueType } = proto.temporal.api.enums.v1;

const types = Object.freeze({
  Keyword: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
  KeywordList: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
  Datetime: IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
  Int: IndexedValueType.INDEXED_VALUE_TYPE_INT,
} as const);

type Name = keyof typeof searchAttributes;

const names = Object.keys(searchAttributes) as Name[];

/** The command that registers one by hand. */
export const registerCommand = (namespace: string, missing: readonly Name[]): string =>
  `temporal operator search-attribute create --namespace ${namespace} ${missing.map((name) => `--name ${name} --type ${searchAttributes[name]}`).join(' ')}`;

/** @throws ControlError INVALID_CONFIG with the command to run, when one is missing or of another type */
export async function ensureSearchAttributes(connection: Connection, namespace: string): Promise<void> {
  const missing = await missingIn(connection, namespace);
  if (missing.length === 0) return;
  try {
    await connection.operatorService.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(missing.map((name) => [name, types[searchAttributes[name]]])),
    });
  } catch (cause) {
    // Another worker may have been faster: what counts is what is there.
    const left = await missingIn(connection, namespace);
    if (left.length > 0) throw refused(namespace, left, cause);
  }
}

async function missingIn(connection: Connection, namespace: string): Promise<Name[]> {
  const listed = await connection.operatorService.listSearchAttributes({ namespace });
  const custom = listed.customAttributes ?? {};
  const wrong = names.filter((name) => custom[name] !== undefined && custom[name] !== types[searchAttributes[name]]);
  if (wrong.length > 0) {
    throw new ControlError(
      'INVALID_CONFIG',
      `search attribute(s) ${wrong.join(', ')} of namespace ${namespace} have another type than ${wrong.map((name) => searchAttributes[name]).join(', ')}`,
      {
        details: { reason: 'search-attribute-type' },
      },
    );
  }
  return names.filter((name) => custom[name] === undefined);
}

const refused = (namespace: string, missing: readonly Name[], cause: unknown): ControlError =>
  new ControlError(
    'INVALID_CONFIG',
    `namespace ${namespace} lacks the search attribute(s) ${missing.join(', ')}; run: ${registerCommand(namespace, missing)}`,
    {
      details: { reason: 'search-attributes', missing },
      cause,
    },
  );
