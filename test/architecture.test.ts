/**
 * The house, enforced: who may import whom, with the reason, in one table. A new edge is a change of this table, reviewed
 * as such. (docs/architecture.md draws it.)
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { type Import, importsIn, importsOf, projectRoot, sourcesOf } from './harness/imports.ts';

interface Layer {
  /** Our own folders or path beginnings whose values it may use. */
  readonly values: readonly string[];
  /** Folders it may use the types of, beyond those. */
  readonly types?: readonly string[];
  /** node: modules and packages it may use; 'any' for process edges. */
  readonly outside: readonly RegExp[] | 'any';
  readonly why: string;
}

const protobuf = /^@bufbuild\/protobuf(\/|$)/;
const crypto = /^node:(crypto|buffer)$/;

const layers: Readonly<Record<string, Layer>> = {
  domain: {
    values: [],
    outside: [],
    why: 'rules are decided without I/O, a clock or node: the same code runs everywhere, workflows included',
  },
  proto: { values: ['domain'], outside: [protobuf], why: 'the wire format belongs to both sides and knows neither' },
  'temporal.config.ts': { values: [], outside: [], why: 'names only; workflow code reads it' },
  pki: {
    values: ['domain', 'proto'],
    outside: [crypto, protobuf],
    why: 'bytes in, decisions out, no cryptography but node:crypto (KEY-006): a file or a socket in here would make trust depend on where it runs',
  },
  drizzle: {
    values: ['domain'],
    outside: [/^drizzle-orm/, /^pg(-.*)?$/, /^node:(fs|path|url|crypto|buffer)(\/promises)?$/],
    why: 'tables and statements; what they mean is said in services',
  },
  services: {
    values: ['domain', 'proto', 'pki', 'drizzle', 'temporal.config.ts'],
    outside: [/^drizzle-orm/, /^pg$/, crypto, protobuf, /^node:(os|events|timers\/promises)$/, /^(yaml|zod)$/],
    why: 'the rules applied to the database and to what people write (profiles, inventories: yaml, zod); who calls them (HTTP, Temporal, the gateway) is not their business',
  },
  gateway: {
    values: [
      'domain',
      'proto',
      'pki/x509',
      'pki/envelope',
      'pki/handshake',
      'pki/exec/verify.ts',
      'pki/enroll/renew.ts',
      'drizzle',
      'runtime',
      'services/processes.ts',
    ],
    types: ['pki', 'services'],
    outside: 'any',
    why: 'it relays and can forge nothing, for it holds no key of the bundle (KEY-013): it signs with its own serving key who it is, verifies, reads sessions and dispatch, and reaches the control plane through one port',
  },
  daemon: {
    values: ['domain', 'proto', 'pki', 'runtime'],
    outside: 'any',
    why: 'it lives on a machine of the fleet: no database, no service, nothing of the control plane',
  },
  activities: {
    values: ['domain', 'proto', 'pki', 'drizzle', 'services', 'temporal.config.ts', 'workflows'],
    types: ['runtime'],
    outside: [/^@temporalio\/(activity|client|common)$/, crypto, /^node:(os|timers\/promises)$/, /^drizzle-orm/, protobuf],
    why: 'thin steps over services',
  },
  workflows: {
    values: ['domain', 'temporal.config.ts'],
    types: ['activities', 'services'],
    outside: [/^@temporalio\/(workflow|common)$/],
    why: 'replayed code: no clock, no files, no network, and no activity code in the bundle',
  },
  api: {
    values: ['domain', 'proto', 'pki', 'drizzle', 'services', 'temporal.config.ts', 'runtime', 'workflows'],
    outside: 'any',
    why: 'an edge: it translates between HTTP and services, and starts workflows by their messages',
  },
  workers: {
    values: ['domain', 'proto', 'pki', 'drizzle', 'services', 'activities', 'workflows', 'temporal.config.ts', 'runtime', 'workers'],
    outside: 'any',
    why: 'composition roots: they may know everything, and nobody knows them',
  },
  runtime: {
    values: ['domain', 'temporal.config.ts', 'proto', 'pki/bundle', 'pki/signers'],
    types: ['pki'],
    outside: 'any',
    why: 'the edge of every process: configuration, log, health, life, connections; no rule of the domain lives here',
  },
  config: {
    values: ['domain', 'pki', 'services', 'runtime'],
    outside: [/^node:url$/],
    why: 'a deployment in code: it names what options are made of, and decides nothing itself',
  },
  cli: {
    values: [
      'domain',
      'proto',
      'pki',
      'drizzle',
      'services',
      'workflows',
      'workers',
      'temporal.config.ts',
      'runtime',
      'api',
      'daemon',
      'scripts/engines',
      'scripts/lib',
    ],
    outside: 'any',
    why: 'the operator’s hand: it may reach everything, and nobody imports it',
  },
};

/** Workflow files that others may take values from: the words of the conversation, not the story. */
const workflowWords = /^workflows\/([a-z-]+\/(messages|state)|shared\/[a-z-]+|[a-z-]+)\.ts$/;

const inside = (path: string, places: readonly string[]): boolean => places.some((place) => path === place || path.startsWith(`${place}/`));

function complaint(layer: string, { values, types = [], outside, why }: Layer, edge: Import): string | null {
  const told = `${edge.from} imports ${edge.to}: ${layer} may not (${why})`;
  if (!edge.ours) return outside === 'any' || outside.some((allowed) => allowed.test(edge.to)) || edge.typeOnly ? null : told;
  if (inside(edge.to, [layer])) return null;
  if (edge.typeOnly && inside(edge.to, [...values, ...types])) return null;
  if (!inside(edge.to, values)) return told;
  const word = !inside(edge.to, ['workflows']) || layer === 'workers' || workflowWords.test(edge.to);
  return word ? null : `${edge.from} imports ${edge.to}: only messages and state of a workflow are for others`;
}

const filesOf = (layer: string): string[] => (layer.endsWith('.ts') ? [layer] : sourcesOf(layer));

describe('architecture', () => {
  for (const [layer, rule] of Object.entries(layers)) {
    it(`${layer} imports only what it may: ${rule.why}`, () => {
      const complaints = filesOf(layer).flatMap((file) => importsOf(file).map((edge) => complaint(layer, rule, edge)));
      assert.deepEqual(
        complaints.filter((text) => text !== null),
        [],
      );
    });
  }

  it('every folder of sources has its row', () => {
    const apart = ['node_modules', 'dist', 'docs', 'test', 'scripts', 'coverage', 'profiles'];
    const folders = readdirSync(projectRoot, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && !apart.includes(entry.name))
      .map((entry) => entry.name);
    assert.deepEqual(
      folders.filter((folder) => !Object.hasOwn(layers, folder)),
      [],
    );
  });

  it('scripts of the set-up need nothing that has to be installed', () => {
    const setup = [
      'scripts/setup.mjs',
      'scripts/build.mjs',
      'scripts/run.mjs',
      ...sourcesOf('scripts/lib'),
      ...sourcesOf('scripts/engines'),
    ];
    const installed = setup
      .filter((file) => !file.endsWith('temporal-sdk-download.mjs'))
      .flatMap(importsOf)
      .filter((edge) => !edge.ours && !edge.to.startsWith('node:') && edge.to !== 'tsx/esm/api');
    assert.deepEqual(installed, []);
  });

  describe('the reader of imports', () => {
    const read = (text: string): string[] => importsIn(text, 'pki/x509/a.ts').map((edge) => `${edge.to}${edge.typeOnly ? ' (types)' : ''}`);

    it('sees every form an import has', () => {
      assert.deepEqual(read("import { a } from '../../domain/errors.ts';"), ['domain/errors.ts']);
      assert.deepEqual(read("import type { A } from './der.ts';"), ['pki/x509/der.ts (types)']);
      assert.deepEqual(read("import { type A, type B } from './der.ts';"), ['pki/x509/der.ts (types)']);
      assert.deepEqual(read("import { type A, b } from './der.ts';"), ['pki/x509/der.ts']);
      assert.deepEqual(read("import 'node:fs';\nexport * from './b.ts';"), ['node:fs', 'pki/x509/b.ts']);
      assert.deepEqual(read("import {\n  a,\n  b,\n} from 'pg';"), ['pg']);
      assert.deepEqual(read("const x = await import('../../drizzle/client.ts');"), ['drizzle/client.ts']);
    });

    it('finds a forbidden edge', () => {
      const [edge] = importsIn("import { readFileSync } from 'node:fs';", 'pki/x509/a.ts');
      assert.ok(edge !== undefined && layers['pki'] !== undefined);
      assert.match(complaint('pki', layers['pki'], edge) ?? '', /^pki\/x509\/a\.ts imports node:fs: pki may not \(bytes in, decisions out/);
    });
  });
});
