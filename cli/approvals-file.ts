/** The signatures of approvers as `batch sign-override` and `batch sign-approvers` leave them: one JSON file each, or a list in one. */
import { readFileSync } from 'node:fs';
import { Option } from 'commander';
import { ControlError } from '../domain/errors.ts';

export interface ApprovalInFile {
  readonly kid: string;
  /** base64url. */
  readonly sig: string;
}

/** A signature is 86 characters; a file of them is small. */
const longestFile = 65_536;

export const approvalsOption = (): Option =>
  new Option('--approvals <files>', 'signatures of approvers, comma-separated files; needed once an approver set is published').argParser(
    readApprovalFiles,
  );

/** @throws INVALID_INPUT naming the file and what it lacks */
export const readApprovalFiles = (list: string): ApprovalInFile[] =>
  list
    .split(',')
    .map((path) => path.trim())
    .filter((path) => path !== '')
    .flatMap(readOne);

function readOne(path: string): ApprovalInFile[] {
  const value = parse(path);
  return (Array.isArray(value) ? (value as unknown[]) : [value]).map((one) => {
    const { kid, sig } = (typeof one === 'object' && one !== null ? one : {}) as { kid?: unknown; sig?: unknown };
    if (typeof kid === 'string' && typeof sig === 'string') return { kid, sig };
    throw bad(path, 'does not hold {"kid": …, "sig": …} as `better-compute batch sign-override` writes it');
  });
}

function parse(path: string): unknown {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw bad(path, 'cannot be read', cause);
  }
  if (text.length > longestFile) throw bad(path, `has ${text.length} characters, at most ${longestFile} are expected`);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw bad(path, 'is not JSON', cause);
  }
}

const bad = (path: string, what: string, cause?: unknown): ControlError =>
  new ControlError('INVALID_INPUT', `${path} ${what}`, { details: { reason: 'bad-approval-file', file: path }, cause });
