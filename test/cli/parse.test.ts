/** First table: a command line → the options its run receives. */
import assert from 'node:assert/strict';
import type { Command } from 'commander';
import { newCommandsRun } from '../../cli/commands/commands/run.ts';
import { newCommandsShow } from '../../cli/commands/commands/show.ts';
import { newCompletion } from '../../cli/commands/completion.ts';
import { newSignRelease } from '../../cli/commands/daemon/sign-release.ts';
import { newDaemonUpgrade } from '../../cli/commands/daemon/upgrade.ts';
import { newDoctor } from '../../cli/commands/doctor.ts';
import { newEnrolmentsCancel } from '../../cli/commands/enrolments/cancel.ts';
import { newEnrolmentsList } from '../../cli/commands/enrolments/list.ts';
import { newEnrolmentsShow } from '../../cli/commands/enrolments/show.ts';
import { newJoinsDecide } from '../../cli/commands/joins/decide.ts';
import { newJoinsList } from '../../cli/commands/joins/list.ts';
import { newEnrol, newReenrol } from '../../cli/commands/nodes/enrol.ts';
import { newNodesList } from '../../cli/commands/nodes/list.ts';
import { newNodesReboot } from '../../cli/commands/nodes/reboot.ts';
import { newNodesShow } from '../../cli/commands/nodes/show.ts';
import { newNodesRevoke } from '../../cli/commands/nodes/take-away.ts';
import { newRotationEvidence } from '../../cli/commands/rotation/evidence.ts';
import { newRotationList } from '../../cli/commands/rotation/list.ts';
import {
  newRotationAbort,
  newRotationExclude,
  newRotationForce,
  newRotationPause,
  newRotationResume,
} from '../../cli/commands/rotation/override.ts';
import { newRotationStart } from '../../cli/commands/rotation/start.ts';
import { newRotationStatus } from '../../cli/commands/rotation/status.ts';
import { newRotationVerify } from '../../cli/commands/rotation/verify.ts';
import { newRotationWatch } from '../../cli/commands/rotation/watch.ts';
import { newStuck } from '../../cli/commands/stuck.ts';
import { newTokensCreate } from '../../cli/commands/tokens/create.ts';
import { createTestIo, createTestPorts, parseWith } from './support.ts';

const ports = createTestPorts(createTestIo());
const actingAs = createTestPorts(createTestIo({ env: { BETTER_COMPUTE_ACTOR: 'night shift' } }));

/** Each command has options of its own; the table compares them as values. */
type Run = (options: any) => Promise<void>;
type Make = (run: Run) => Command;
const make = (newCommand: Make): Make => newCommand;

const target = { key: 'command-root', ca: '' };

const accepted: readonly [string, Make, string[], unknown][] = [
  ['rotation start', make((run) => newRotationStart(ports, run)), [], { json: false, target, actor: 'ann', reason: '' }],
  [
    'rotation start',
    make((run) => newRotationStart(actingAs, run)),
    ['--reason', 'yearly'],
    { json: false, target, actor: 'night shift', reason: 'yearly' },
  ],
  ['rotation status', make(newRotationStatus), [], { json: false, target }],
  ['rotation status', make(newRotationStatus), ['--key', 'ca', '--ca', 'node'], { json: false, target: { key: 'ca', ca: 'node' } }],
  [
    'rotation abort',
    make((run) => newRotationAbort(ports, run)),
    ['--key', 'ticket', '--reason', 'wrong'],
    { json: false, target: { key: 'ticket', ca: '' }, actor: 'ann', reason: 'wrong', yes: false },
  ],
  ['rotation list', make(newRotationList), [], { json: false }],
  ['rotation watch', make(newRotationWatch), [], { json: false, target, intervalMs: 1_000 }],
  ['rotation watch', make(newRotationWatch), ['--every', '2m'], { json: false, target, intervalMs: 120_000 }],
  [
    'rotation pause',
    make((run) => newRotationPause(ports, run)),
    ['--reason', 'window'],
    { json: false, target, actor: 'ann', reason: 'window' },
  ],
  ['rotation resume', make((run) => newRotationResume(ports, run)), ['--actor', 'bob'], { json: false, target, actor: 'bob' }],
  [
    'rotation force',
    make((run) => newRotationForce(ports, run)),
    ['--phase', 'fleet', '--reason', 'scrap', '--yes'],
    { json: false, target, actor: 'ann', reason: 'scrap', phase: 'fleet', yes: true },
  ],
  [
    'rotation exclude',
    make((run) => newRotationExclude(ports, run)),
    ['node-3', '--reason', 'scrap'],
    { json: false, target, actor: 'ann', reason: 'scrap', node: 'node-3', yes: false },
  ],
  [
    'rotation abort',
    make((run) => newRotationAbort(ports, run)),
    ['--reason', 'wrong'],
    { json: false, target, actor: 'ann', reason: 'wrong', yes: false },
  ],
  ['rotation evidence', make(newRotationEvidence), ['--out', 'e.json'], { json: false, rotationId: null, out: 'e.json' }],
  ['rotation evidence', make(newRotationEvidence), ['r-1', '--out', 'e.json'], { json: false, rotationId: 'r-1', out: 'e.json' }],
  ['rotation verify', make(newRotationVerify), [], { json: false, path: null, pin: null, pki: null, demonstration: false }],
  [
    'rotation verify',
    make(newRotationVerify),
    ['e.json', '--pin', 'sha256/x', '--pki', 'p', '--demonstration'],
    { json: false, path: 'e.json', pin: 'sha256/x', pki: 'p', demonstration: true },
  ],
  [
    'nodes list',
    make(newNodesList),
    ['--state', 'revoked', '--limit', '5', '--after', 'n'],
    { json: false, state: 'revoked', limit: 5, after: 'n' },
  ],
  ['joins list', make(newJoinsList), ['--all'], { json: false, all: true }],
  [
    'joins approve',
    make((run) => newJoinsDecide(ports, 'approve', run)),
    ['5f0c', '--reason', 'mine', '--yes'],
    { json: false, what: 'approve', id: '5f0c', actor: 'ann', reason: 'mine', yes: true },
  ],
  [
    'joins refuse',
    make((run) => newJoinsDecide(ports, 'refuse', run)),
    ['5f0c', '--reason', 'not mine', '--actor', 'bob'],
    { json: false, what: 'refuse', id: '5f0c', actor: 'bob', reason: 'not mine', yes: false },
  ],
  ['nodes show', make(newNodesShow), ['node-1'], { json: false, node: 'node-1' }],
  [
    'nodes revoke',
    make((run) => newNodesRevoke(ports, run)),
    ['node-1', '--reason', 'stolen', '--yes'],
    { json: false, node: 'node-1', actor: 'ann', reason: 'stolen', yes: true },
  ],
  [
    'nodes reboot',
    make((run) => newNodesReboot(ports, run)),
    ['node-1', 'node-2', '--reason', 'kernel'],
    {
      json: false,
      nodes: ['node-1', 'node-2'],
      all: false,
      reason: 'kernel',
      actor: 'ann',
      wave: { percent: 10 },
      maxFailures: 0,
      healthGate: true,
      yes: false,
    },
  ],
  [
    'nodes reboot',
    make((run) => newNodesReboot(ports, run)),
    '--all --reason kernel --wave 25 --max-failures 2 --per-label rack=1 --pause 10m --no-health-gate --delay 5s --for 2h --key once --yes'.split(
      ' ',
    ),
    {
      json: false,
      nodes: [],
      all: true,
      reason: 'kernel',
      actor: 'ann',
      wave: { size: 25 },
      maxFailures: 2,
      perLabel: { label: 'rack', count: 1 },
      pause: 600_000,
      healthGate: false,
      delay: 5_000,
      for: 7_200_000,
      key: 'once',
      yes: true,
    },
  ],
  [
    'tokens create',
    make((run) => newTokensCreate(ports, run)),
    ['--site', 'eu-1', '--node', 'node-9', '--for', '15m', '--approver-set-sha256', 'a'.repeat(64)],
    {
      json: false,
      site: 'eu-1',
      role: 'node',
      tenant: 'default',
      node: 'node-9',
      lifetimeMs: 900_000,
      actor: 'ann',
      approverSetSha256: 'a'.repeat(64),
    },
  ],
  [
    'commands run',
    make((run) => newCommandsRun(ports, run)),
    ['service.restart', 'n1', 'n2', '--payload', '{"unit":"nginx.service"}', '--deadline', '1h', '--no-wait'],
    {
      json: false,
      kind: 'service.restart',
      nodes: ['n1', 'n2'],
      all: false,
      payload: { unit: 'nginx.service' },
      deadlineMs: 3_600_000,
      reason: null,
      actor: 'ann',
      key: null,
      wait: false,
      yes: false,
    },
  ],
  [
    'daemon sign-release',
    make(newSignRelease),
    ['bcd', '--release', '0.2.0', '--platform', 'linux-x64', '--key', 'release.pem', '--out', 'bcd.json'],
    { json: false, program: 'bcd', release: '0.2.0', platform: 'linux-x64', key: 'release.pem', out: 'bcd.json' },
  ],
  [
    'daemon upgrade',
    make((run) => newDaemonUpgrade(ports, run)),
    ['n1', '--release', 'bcd.json', '--url', 'https://d.example.com/bcd', '--reason', 'new'],
    {
      json: false,
      nodes: ['n1'],
      all: false,
      release: 'bcd.json',
      url: 'https://d.example.com/bcd',
      reason: 'new',
      actor: 'ann',
      wait: true,
    },
  ],
  ['commands show', make(newCommandsShow), ['command/x'], { json: false, id: 'command/x' }],
  [
    'nodes enrol',
    make((run) => newEnrol(ports, run)),
    ['web-7', '--address', '10.0.0.7', '--port', '2222', '--sudo', '--credential', 'file://web', '--reason', 'rack'],
    {
      json: false,
      kind: 'enrol',
      nodes: ['web-7'],
      address: '10.0.0.7',
      port: 2222,
      sudo: true,
      credential: 'file://web',
      site: 'default',
      role: 'node',
      dryRun: false,
      wait: false,
      reason: 'rack',
      actor: 'ann',
    },
  ],
  [
    'nodes reenrol',
    make((run) => newReenrol(ports, run)),
    ['web-7', 'web-8', '--reason', 'copied'],
    { json: false, kind: 'reenrol', nodes: ['web-7', 'web-8'], dryRun: false, wait: false, goOn: false, reason: 'copied', actor: 'ann' },
  ],
  [
    'nodes reenrol',
    make((run) => newReenrol(actingAs, run)),
    ['web-7', '--no-sudo', '--login', 'root', '--wait', '--go-on', '--dry-run', '--reason', 'copied'],
    {
      json: false,
      kind: 'reenrol',
      nodes: ['web-7'],
      sudo: false,
      login: 'root',
      dryRun: true,
      wait: true,
      goOn: true,
      reason: 'copied',
      actor: 'night shift',
    },
  ],
  ['enrolments list', make(newEnrolmentsList), [], { json: false, node: null, open: false, limit: 100 }],
  [
    'enrolments list',
    make(newEnrolmentsList),
    ['--node', 'web-7', '--open', '--limit', '5'],
    { json: false, node: 'web-7', open: true, limit: 5 },
  ],
  ['enrolments show', make(newEnrolmentsShow), ['enr-1'], { json: false, id: 'enr-1' }],
  [
    'enrolments cancel',
    make((run) => newEnrolmentsCancel(ports, run)),
    ['enr-1', '--reason', 'wrong', '--yes'],
    { json: false, id: 'enr-1', actor: 'ann', reason: 'wrong', yes: true },
  ],
  ['stuck', make(newStuck), [], { json: false }],
  ['doctor', make(newDoctor), ['--pki', 'p'], { json: false, pki: 'p', supportBundle: null }],
  ['doctor', make(newDoctor), ['--support-bundle', 's.json'], { json: false, pki: null, supportBundle: 's.json' }],
  ['completion', make((run) => newCompletion(run as never)), ['zsh'], 'zsh'],
];

const refused: readonly [string, Make, string[], RegExp][] = [
  ['rotation force', make((run) => newRotationForce(ports, run)), ['--reason', 'x'], /required option '--phase <gate>' not specified/],
  [
    'rotation force',
    make((run) => newRotationForce(ports, run)),
    ['--phase', 'drop', '--reason', 'x'],
    /Allowed choices are processes, fleet, signers, confirm/,
  ],
  ['rotation abort', make((run) => newRotationAbort(ports, run)), [], /required option '--reason <text>' not specified/],
  ['rotation abort', make((run) => newRotationAbort(ports, run)), ['--reason', '  '], /A reason has words/],
  ['rotation exclude', make((run) => newRotationExclude(ports, run)), ['--reason', 'x'], /missing required argument 'node'/],
  ['rotation watch', make(newRotationWatch), ['--every', '5'], /a number with a unit/],
  ['rotation start', make((run) => newRotationStart(ports, run)), ['--key', 'ca'], /--key ca needs --ca node\|serving\|internal/],
  ['rotation status', make(newRotationStatus), ['--ca', 'node'], /--ca belongs to --key ca, not to --key command-root/],
  [
    'rotation watch',
    make(newRotationWatch),
    ['--key', 'tikcet'],
    /Allowed choices are command-root, approvers, ca, gateway, ticket, workload/,
  ],
  ['rotation evidence', make(newRotationEvidence), [], /required option '--out <file>' not specified/],
  ['nodes list', make(newNodesList), ['--limit', '0'], /a whole number above 0/],
  ['nodes list', make(newNodesList), ['--state', 'gone'], /Allowed choices are active, quarantined, revoked, retired/],
  ['joins approve', make((run) => newJoinsDecide(ports, 'approve', run)), ['5f0c'], /required option '--reason <text>' not specified/],
  ['nodes show', make(newNodesShow), ['a', 'b'], /too many arguments/],
  ['nodes enrol', make((run) => newEnrol(ports, run)), ['a', 'b', '--reason', 'x'], /too many arguments/],
  ['nodes enrol', make((run) => newEnrol(ports, run)), ['a'], /required option '--reason <text>' not specified/],
  ['nodes enrol', make((run) => newEnrol(ports, run)), ['a', '--port', '65536', '--reason', 'x'], /It must be a port, 1 to 65535/],
  ['nodes enrol', make((run) => newEnrol(ports, run)), ['a', '--role', 'king', '--reason', 'x'], /Allowed choices are node, site/],
  ['nodes reenrol', make((run) => newReenrol(ports, run)), ['--reason', 'x'], /missing required argument 'nodes'/],
  ['nodes reenrol', make((run) => newReenrol(ports, run)), ['a', '--site', 'eu-1', '--reason', 'x'], /unknown option '--site'/],
  ['enrolments list', make(newEnrolmentsList), ['--limit', '0'], /a whole number above 0/],
  ['enrolments show', make(newEnrolmentsShow), [], /missing required argument 'enrolment'/],
  ['enrolments cancel', make((run) => newEnrolmentsCancel(ports, run)), ['enr-1'], /required option '--reason <text>' not specified/],
  ['tokens create', make((run) => newTokensCreate(ports, run)), ['--role', 'king'], /Allowed choices are node, site/],
  [
    'tokens create',
    make((run) => newTokensCreate(ports, run)),
    ['--approver-set-sha256', 'ABC'],
    /It must be 64 lower-case hex digits, as pki trust-version prints them/,
  ],
  ['commands run', make((run) => newCommandsRun(ports, run)), ['node.explode', 'n1'], /Allowed choices are inventory.refresh/],
  ['commands run', make((run) => newCommandsRun(ports, run)), ['inventory.refresh', 'n1', '--payload', '[1]'], /It must be a JSON object/],
  ['daemon sign-release', make(newSignRelease), ['bcd', '--release', 'v0.2', '--key', 'k', '--out', 'o'], /It must be MAJOR\.MINOR\.PATCH/],
  ['daemon sign-release', make(newSignRelease), ['bcd', '--release', '0.2.0', '--out', 'o'], /'--key <key>' not specified/],
  [
    'daemon upgrade',
    make((run) => newDaemonUpgrade(ports, run)),
    ['n1', '--release', 'r', '--reason', 'x', '--url', 'ftp://d/bcd'],
    /It must be an http or https URL without a user name/,
  ],
  ['doctor', make(newDoctor), ['--pkj', 'x'], /unknown option '--pkj'\n\(Did you mean --pki\?\)/],
];

describe('what a command line means', () => {
  for (const [name, command, argv, options] of accepted) {
    it(`${name} ${argv.join(' ')}`.trim(), async () => assert.deepEqual(await parseWith(command, argv), options));
  }
  for (const [name, command, argv, message] of refused) {
    it(`refuses: ${name} ${argv.join(' ')}`.trim(), () => assert.rejects(parseWith(command, argv), message));
  }
});
