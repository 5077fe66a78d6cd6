/**
 * The workflow bundle: built once per content, kept under a name that is the hash of what went in. A worker that starts with
 * unchanged workflows starts without the bundler; what no version has used for long is taken away. Node's modules are refused by the bundler itself, in whatever depth.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { extname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, type WorkflowBundleOption } from '@temporalio/worker';
import { ControlError } from '../domain/errors.ts';
import { pruneBundles, touchBundle } from './bundle-cache.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
/** What a workflow may be made of (the layers' rule). */
const sources = ['workflows', 'domain', 'temporal.config'];
/** `.ts` when run from source, `.js` when run from a build. */
const extension = extname(fileURLToPath(import.meta.url));

export interface WorkflowBundleOptions {
  /** Where bundles are kept; default `.cache` beside the sources. */
  readonly cacheFolder?: string;
  /** Another entry than workflows/index, for tests. */
  readonly workflowsPath?: string;
}

export async function loadWorkflowBundle(options: WorkflowBundleOptions = {}): Promise<WorkflowBundleOption> {
  const { cacheFolder = join(root, '.cache'), workflowsPath = join(root, 'workflows', `index${extension}`) } = options;
  const folder = join(cacheFolder, 'workflow-bundles');
  const codePath = join(folder, `${contentHash(workflowsPath)}.js`);
  const bundle = existsSync(codePath) ? { codePath } : keep(await build(workflowsPath), { folder, codePath });
  const now = Date.now();
  touchBundle(codePath, now);
  pruneBundles(folder, now);
  return bundle;
}

/** @throws ControlError INTERNAL with the bundler's own first complaints */
async function build(workflowsPath: string): Promise<string> {
  const complaints: string[] = [];
  const nothing = (): void => {};
  const hear = (message: string): void => void complaints.push(message);
  const logger = { log: nothing, trace: nothing, debug: nothing, info: nothing, warn: hear, error: hear };
  try {
    const payloadConverterPath = join(root, 'workflows', `tolerant-converter${extension}`);
    const workflowInterceptorModules = [join(root, 'workflows', 'shared', `inbox${extension}`)];
    return (await bundleWorkflowCode({ workflowsPath, payloadConverterPath, workflowInterceptorModules, logger })).code;
  } catch (cause) {
    const why = complaints
      .join('\n')
      .split('\n')
      .filter((line) => /ERROR|Error:|not allowed|disallowed/i.test(line))
      .slice(0, 6);
    throw new ControlError('INTERNAL', `the workflows do not bundle: ${why.join('; ') || String(cause)}`, {
      cause,
      details: { reason: 'workflow-bundle' },
    });
  }
}

/** Whole or not at all: another worker may start at the same moment. An unwritable folder only costs the next start. */
function keep(code: string, at: { folder: string; codePath: string }): WorkflowBundleOption {
  const half = `${at.codePath}.${process.pid}`;
  try {
    mkdirSync(at.folder, { recursive: true });
    writeFileSync(half, code);
    renameSync(half, at.codePath);
    return { codePath: at.codePath };
  } catch {
    rmSync(half, { force: true });
    return { code };
  }
}

function contentHash(workflowsPath: string): string {
  const hash = createHash('sha256').update(sdkVersion()).update(workflowsPath);
  for (const path of [...sources.flatMap((name) => filesUnder(name)), workflowsPath]) {
    hash.update(`\0${relative(root, path)}\0`).update(readFileSync(path));
  }
  return hash.digest('hex').slice(0, 32);
}

function filesUnder(name: string): string[] {
  const path = join(root, name);
  if (!existsSync(path)) return [`${path}${extension}`];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && extname(entry.name) === extension)
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

const sdkVersion = (): string => (createRequire(import.meta.url)('@temporalio/worker/package.json') as { version: string }).version;
